/* Sets of safetensors files: shards behind an index, folders, files side by side. The files are
 * written here from the format's description, not by moeref's writer. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../ref/io/safetensors.h"

Suite *suite_checkpoint(void);

static char folder[64];
static struct mr_checkpoint *set;
static struct mr_error err;

static const char *at(const char *name)
{
    static char path[2][256]; /* two may be in use at once */
    static int turn;
    turn = !turn;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

static void put_file(const char *name, const void *bytes, size_t size)
{
    FILE *f = fopen(at(name), "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(bytes, 1, size, f), size);
    ck_assert_int_eq(fclose(f), 0);
}

static void put_text(const char *name, const char *text)
{
    put_file(name, text, strlen(text));
}

/* A file of two one-byte tensors whose values are both value. */
static void put_shard(const char *name, const char *first, const char *second, char value)
{
    char image[512] = {0};
    int n = snprintf(image + 8, sizeof image - 8,
                     "{\"%s\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                     "\"%s\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[1,2]}}",
                     first, second);
    image[0] = (char)n;
    image[1] = (char)(n >> 8);
    image[8 + n] = image[9 + n] = value;
    put_file(name, image, (size_t)n + 10);
}

static void start(void)
{
    strcpy(folder, "/tmp/moeref-ck-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    ck_assert_int_eq(mr_checkpoint_new(&set, &err), MR_OK);
}

static void stop(void)
{
    static const char *const names[] = {
        "s1", "s2", "s3", "link", "model.safetensors", "i.json", "model.safetensors.index.json"};
    mr_checkpoint_free(set);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unlink(at(names[i]));
    ck_assert_int_eq(rmdir(folder), 0);
}

static void add(const char *path)
{
    ck_assert_msg(mr_checkpoint_add(set, path, &err) == MR_OK, "%s", err.text);
}

/* The value of a tensor's one byte. */
static char value_of(const char *name, const char *file)
{
    struct mr_tensor t;
    const char *path;
    ck_assert_msg(mr_checkpoint_find(set, name, &t, &path, &err) == MR_OK, "%s", err.text);
    ck_assert_str_eq(path, at(file));
    ck_assert(mr_checkpoint_has(set, name) && t.bytes == 1);
    return *(const char *)t.data;
}

static void expect(enum mr_status found, enum mr_status wanted, const char *word)
{
    ck_assert_msg(found == wanted, "%s: %s", mr_status_name(found), err.text);
    ck_assert_msg(strstr(err.text, word), "no '%s' in: %s", word, err.text);
}

static void lost(const char *name, enum mr_status status, const char *word)
{
    struct mr_tensor t;
    expect(mr_checkpoint_find(set, name, &t, NULL, &err), status, word);
}

struct seen {
    char names[128];
    int left;
};

static bool note(void *context, const char *name)
{
    struct seen *seen = context;
    strcat(strcat(seen->names, name), " ");
    return --seen->left > 0;
}

#define INDEX(map) "{\"metadata\":{\"total_size\":4},\"weight_map\":{" map "}}\n"

START_TEST(validate_index_is_lazy)
{
    put_shard("s1", "b", "a", 1);
    put_shard("s2", "c", "d", 2);
    put_text("i.json",
             INDEX("\"c\":\"s2\",\"a\":\"s1\",\"gone\":\"s3\",\"b\":\"s1\",\"x\":\"s2\""));
    add(at("i.json"));
    struct seen seen = {.left = 100};
    mr_checkpoint_each(set, note, &seen);
    ck_assert_str_eq(seen.names, "c a gone b x ");
    seen = (struct seen){.left = 2};
    mr_checkpoint_each(set, note, &seen);
    ck_assert_str_eq(seen.names, "c a ");
    ck_assert(mr_checkpoint_has(set, "gone") && !mr_checkpoint_has(set, "d"));
    unlink(at("s2")); /* not opened yet: now missed only by who asks for it */
    ck_assert_int_eq(value_of("a", "s1"), 1);
    ck_assert_int_eq(value_of("b", "s1"), 1);
    lost("c", MR_ERR_MISSING, "which is not there");
    put_shard("s2", "c", "d", 2);
    ck_assert_int_eq(value_of("c", "s2"), 2);
    unlink(at("s2")); /* open: stays */
    ck_assert_int_eq(value_of("c", "s2"), 2);
    lost("gone", MR_ERR_MISSING, "s3");
    lost("x", MR_ERR_MISSING, "no tensor 'x' in this shard");
    lost("d", MR_ERR_MISSING, "no tensor 'd' in ");
}
END_TEST

START_TEST(validate_folder)
{
    expect(mr_checkpoint_add(set, folder, &err), MR_ERR_MISSING, "neither");
    put_shard("model.safetensors", "a", "b", 1);
    add(folder);
    ck_assert_int_eq(value_of("a", "model.safetensors"), 1);
    mr_checkpoint_free(set);
    ck_assert_int_eq(mr_checkpoint_new(&set, &err), MR_OK);
    put_shard("s1", "a", "b", 2);
    put_text("model.safetensors.index.json", INDEX("\"a\":\"s1\""));
    char slashed[80];
    snprintf(slashed, sizeof slashed, "%s/", folder);
    add(slashed);
    ck_assert_int_eq(value_of("a", "s1"), 2);
}
END_TEST

START_TEST(validate_side_by_side)
{
    put_shard("s1", "b", "a", 1);
    put_shard("s2", "c", "d", 2);
    add(at("s1"));
    add(at("s2"));
    ck_assert_int_eq(symlink(at("s1"), at("link")), 0);
    add(at("link")); /* the same file: passed over */
    add(at("s1"));
    ck_assert_int_eq(value_of("a", "s1"), 1);
    ck_assert_int_eq(value_of("d", "s2"), 2);
    struct seen seen = {.left = 100};
    mr_checkpoint_each(set, note, &seen);
    ck_assert_str_eq(seen.names, "b a c d ");
    put_text("i.json", INDEX("\"a\":\"link\",\"d\":\"s1\"")); /* a shard given twice is one file */
    add(at("i.json"));
    ck_assert_int_eq(value_of("a", "s1"), 1);
    lost("d", MR_ERR_MISSING, "though");
}
END_TEST

START_TEST(reject_duplicates)
{
    put_shard("s1", "b", "a", 1);
    put_shard("s2", "c", "a", 1);
    add(at("s1"));
    add(at("s2"));
    lost("a", MR_ERR_FORMAT, "in two files");
    ck_assert(strstr(err.text, "/s1") && strstr(err.text, "/s2"));
    ck_assert_int_eq(value_of("b", "s1"), 1);
    lost("z", MR_ERR_MISSING, at("s2"));
}
END_TEST

START_TEST(reject_index)
{
    static const struct {
        const char *text, *word;
    } bad[] = {
        {"", "not JSON"},
        {"[]", "expected an object, found an array"},
        {"{}", "weight_map: expected an object, found nothing"},
        {"{\"weight_map\":[]}", "weight_map: expected an object, found an array"},
        {INDEX("\"a\":1"), "'a': expected a file name"},
        {INDEX("\"a\":\"s1\",\"a\":\"s1\""), "twice"},
        {INDEX("\"a\":\"\xff\""), "expected UTF-8"},
        {INDEX("\"a\":\"../s1\""), "beside the index, found '../s1'"},
        {INDEX("\"a\":\"/etc/passwd\""), "beside the index"},
        {INDEX("\"a\":\"sub/s1\""), "beside the index"},
        {INDEX("\"a\":\"\\u002e\\u002e\\u002fs1\""), "beside the index"},
        {INDEX("\"a\":\"..\""), "beside the index"},
        {INDEX("\"a\":\".\""), "beside the index"},
        {INDEX("\"a\":\"\""), "beside the index"},
    };
    put_shard("s1", "b", "a", 1);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put_text("i.json", bad[i].text);
        expect(mr_checkpoint_add(set, at("i.json"), &err), MR_ERR_FORMAT, bad[i].word);
        ck_assert(strstr(err.text, at("i.json")) || strstr(err.text, "i.json"));
    }
    ck_assert(!mr_checkpoint_has(set, "a")); /* nothing of what was refused stayed */
    expect(mr_checkpoint_add(set, at("s3"), &err), MR_ERR_IO, "No such file");
    expect(mr_checkpoint_add(set, at("s3.json"), &err), MR_ERR_IO, "No such file");
    lost("a", MR_ERR_MISSING, "no file");
}
END_TEST

START_TEST(reject_broken_shard)
{
    put_text("s1", "{}");
    put_text("i.json", INDEX("\"a\":\"s1\""));
    add(at("i.json"));
    lost("a", MR_ERR_FORMAT, "8 bytes of header length");
    ck_assert(strstr(err.text, "i.json"));
}
END_TEST

static void refused_path(const char *path, const char *word)
{
    struct mr_safetensors *file;
    struct mr_error err;
    enum mr_status status = mr_safetensors_open(path, &file, &err);
    ck_assert_ptr_null(file);
    ck_assert_msg(status == MR_ERR_IO || status == MR_ERR_FORMAT, "%s", mr_status_name(status));
    ck_assert_msg(strstr(err.text, word) && strstr(err.text, path), "no '%s' in: %s", word,
                  err.text);
}

START_TEST(reject_paths)
{
    put_text("s1", "");
    ck_assert_int_eq(mkfifo(at("s2"), 0600), 0);
    refused_path(folder, "found a folder");
    refused_path(at("s2"), "found a FIFO"); /* and does not wait for a writer */
    refused_path("/dev/null", "character device");
    refused_path("/no/such/file", "No such file");
    refused_path(at("s1"), "found 0 bytes");
    refused_path(at("s1/x"), "Not a directory");
    if (geteuid()) { /* root reads anything */
        chmod(at("s1"), 0);
        refused_path(at("s1"), "Permission denied");
    }
}
END_TEST

/* 100,000 tensors: lookups by name must not walk the list. */
START_TEST(verify_many_tensors)
{
    const size_t many = 100000;
    char *image = malloc(many * 100), *p = image + 8;
    ck_assert_ptr_nonnull(image);
    *p++ = '{';
    for (size_t i = 0; i < many; i++)
        p += sprintf(p, "%s\"t.%zu\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%zu,%zu]}",
                     i ? "," : "", i * 7919 % many, i, i + 1);
    *p++ = '}';
    size_t length = (size_t)(p - image) - 8;
    for (int i = 0; i < 8; i++) image[i] = (char)(length >> 8 * i);
    for (size_t i = 0; i < many; i++) *p++ = (char)(i % 251);
    struct mr_safetensors *file;
    enum mr_status status = mr_safetensors_parse(image, (size_t)(p - image), "t", &file, &err);
    ck_assert_msg(status == MR_OK, "%s", err.text);
    ck_assert_uint_eq(mr_safetensors_count(file), many);
    size_t right = 0; /* an assertion for each would take longer than the lookups */
    for (size_t i = 0; i < many; i++) {
        char name[32];
        struct mr_tensor t;
        snprintf(name, sizeof name, "t.%zu", i * 7919 % many);
        right += mr_safetensors_find(file, name, &t) && *(const unsigned char *)t.data == i % 251;
    }
    ck_assert_uint_eq(right, many);
    mr_safetensors_close(file);
    free(image);
}
END_TEST

Suite *suite_checkpoint(void)
{
    Suite *s = suite_create("checkpoint");
    TCase *c = tcase_create("checkpoint");
    tcase_add_checked_fixture(c, start, stop);
    tcase_set_timeout(c, 60); /* sanitizers on a busy machine */
    tcase_add_test(c, validate_index_is_lazy);
    tcase_add_test(c, validate_folder);
    tcase_add_test(c, validate_side_by_side);
    tcase_add_test(c, reject_duplicates);
    tcase_add_test(c, reject_index);
    tcase_add_test(c, reject_broken_shard);
    tcase_add_test(c, reject_paths);
    tcase_add_test(c, verify_many_tensors);
    suite_add_tcase(s, c);
    return s;
}
