/* Writing safetensors: exact bytes, and what the reader makes of them. */
#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../ref/io/safetensors.h"

Suite *suite_writer(void);

static char folder[64], path[128];
static struct mr_writer *w;
static struct mr_error err;

static void start(void)
{
    strcpy(folder, "/tmp/moeref-wr-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/out", folder);
    ck_assert_int_eq(mr_writer_new(path, &w, &err), MR_OK);
}

/* No test may leave anything but the file itself. */
static void stop(void)
{
    unlink(path);
    ck_assert_msg(rmdir(folder) == 0, "something is left in %s", folder);
}

static void ok(enum mr_status status)
{
    ck_assert_msg(status == MR_OK, "%s", err.text);
}

static void expect(enum mr_status found, enum mr_status wanted, const char *word)
{
    ck_assert_msg(found == wanted, "%s: %s", mr_status_name(found), err.text);
    ck_assert_msg(strstr(err.text, word), "no '%s' in: %s", word, err.text);
}

static size_t declare(const char *name, enum mr_dtype dtype, int ndim, uint64_t a, uint64_t b)
{
    size_t index = 99;
    ok(mr_writer_declare(w, name, dtype, ndim, (uint64_t[]){a, b}, &index, &err));
    return index;
}

static size_t slurp(char *buffer, size_t room)
{
    FILE *f = fopen(path, "rb");
    if (!f) return 0;
    size_t n = fread(buffer, 1, room, f);
    fclose(f);
    return n;
}

START_TEST(validate_bytes)
{
    size_t i8 = declare("i8", MR_I8, 1, 3, 0), f32 = declare("f\"\xc3\xa9\n", MR_F32, 2, 1, 2);
    size_t u8 = declare("u8", MR_U8, 1, 2, 0), f64 = declare("f64", MR_F64, 0, 0, 0);
    ck_assert(i8 == 0 && f32 == 1 && u8 == 2 && f64 == 3);
    ok(mr_writer_metadata(w, "z", "1", &err));
    ok(mr_writer_metadata(w, "a", "\\", &err));
    ok(mr_writer_begin(w, &err));
    ok(mr_writer_put(w, u8, 1, "2", 1, &err)); /* any order, any pieces */
    ok(mr_writer_put(w, f64, 0, "DDDDDDDD", 8, &err));
    ok(mr_writer_put(w, u8, 0, "1", 1, &err));
    ok(mr_writer_put(w, f32, 0, "FFFFffff", 8, &err));
    ok(mr_writer_put(w, i8, 0, "abc", 3, &err));
    ok(mr_writer_put(w, i8, 3, NULL, 0, &err));
    ok(mr_writer_finish(w, &err));
    const char *json =
        "{\"__metadata__\":{\"z\":\"1\",\"a\":\"\\\\\"},"
        "\"f64\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[0,8]},"
        "\"f\\\"\xc3\xa9\\n\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[8,16]},"
        "\"i8\":{\"dtype\":\"I8\",\"shape\":[3],\"data_offsets\":[16,19]},"
        "\"u8\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[19,21]}}";
    char wanted[1024] = {0}, found[1024];
    size_t padded = (strlen(json) + 7) / 8 * 8;
    wanted[0] = (char)padded;
    wanted[1] = (char)(padded >> 8);
    memset(wanted + 8, ' ', padded);
    memcpy(wanted + 8, json, strlen(json));
    memcpy(wanted + 8 + padded, "DDDDDDDDFFFFffffabc12", 21);
    ck_assert_uint_eq(slurp(found, sizeof found), 8 + padded + 21);
    ck_assert_mem_eq(found, wanted, 8 + padded + 21);
}
END_TEST

START_TEST(validate_empty)
{
    char found[64];
    ok(mr_writer_begin(w, &err));
    ok(mr_writer_finish(w, &err));
    ck_assert_uint_eq(slurp(found, sizeof found), 16);
    ck_assert_mem_eq(found, "\10\0\0\0\0\0\0\0{}      ", 16);
}
END_TEST

START_TEST(corroborate_read_back)
{
    unsigned char data[2048];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (unsigned char)(i * 37 >> 2);
    for (int d = 0; d < MR_DTYPE_COUNT; d++) {
        char name[64];
        snprintf(name, sizeof name, "%s \\ \xf0\x9f\x98\x80", mr_dtype_name(d));
        declare(name, d, 2, 4, (uint64_t)(2 * d)); /* the first holds nothing */
    }
    ok(mr_writer_metadata(w, "k\x7f", "v", &err));
    ok(mr_writer_begin(w, &err));
    for (int d = 0; d < MR_DTYPE_COUNT; d++)
        ok(mr_writer_put(w, (size_t)d, 0, data + d, (uint64_t)d * mr_dtype_bits(d), &err));
    ok(mr_writer_finish(w, &err));
    struct mr_safetensors *file;
    ok(mr_safetensors_open(path, &file, &err));
    ck_assert_str_eq(mr_safetensors_metadata(file, "k\x7f"), "v");
    ck_assert_uint_eq(mr_safetensors_count(file), MR_DTYPE_COUNT);
    unsigned width = 64;
    for (int d = 0; d < MR_DTYPE_COUNT; d++) {
        char name[64];
        struct mr_tensor t;
        snprintf(name, sizeof name, "%s \\ \xf0\x9f\x98\x80", mr_dtype_name(d));
        ck_assert(mr_safetensors_find(file, name, &t));
        ck_assert(t.dtype == (enum mr_dtype)d && t.ndim == 2 && t.shape[0] == 4);
        ck_assert_uint_eq(t.shape[1], 2 * d);
        ck_assert_uint_eq(t.bytes, (unsigned)d * mr_dtype_bits(d));
        ck_assert(!memcmp(t.data, data + d, t.bytes));
        t = mr_safetensors_tensor(file, (size_t)d);
        if (t.bytes) { /* falling width; with a header of n*8 bytes every tensor is aligned */
            ck_assert_uint_le(mr_dtype_bits(t.dtype), width);
            width = mr_dtype_bits(t.dtype);
            if (width >= 8) ck_assert_uint_eq((uintptr_t)t.data % (width / 8), 0);
        }
    }
    mr_safetensors_close(file);
}
END_TEST

static void *fill(void *argument)
{
    size_t start_at = (size_t)argument;
    for (size_t i = start_at; i < 4096; i += 4) {
        unsigned char byte = (unsigned char)(i * 7 >> 3);
        if (mr_writer_put(w, 0, i, &byte, 1, NULL)) return w;
    }
    return NULL;
}

START_TEST(verify_threads)
{
    declare("t", MR_U8, 1, 4096, 0);
    ok(mr_writer_begin(w, &err));
    pthread_t threads[4];
    for (size_t i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, fill, (void *)i), 0);
    for (size_t i = 0; i < 4; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        ck_assert_ptr_null(failed);
    }
    ok(mr_writer_finish(w, &err));
    static char found[8192];
    size_t n = slurp(found, sizeof found);
    ck_assert_uint_gt(n, 4096);
    for (size_t i = 0; i < 4096; i++)
        ck_assert_int_eq((unsigned char)found[n - 4096 + i], (unsigned char)(i * 7 >> 3));
}
END_TEST

START_TEST(verify_old_file_stays)
{
    char found[64];
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    fputs("old", f);
    fclose(f);
    declare("t", MR_U8, 1, 2, 0);
    ok(mr_writer_begin(w, &err));
    ok(mr_writer_put(w, 0, 0, "x", 1, &err));
    expect(mr_writer_finish(w, &err), MR_ERR_USAGE, "1 of its 2 bytes");
    ck_assert_uint_eq(slurp(found, sizeof found), 3);
    ok(mr_writer_new(path, &w, &err));
    declare("t", MR_U8, 1, 2, 0);
    ok(mr_writer_begin(w, &err));
    mr_writer_abandon(w);
    mr_writer_abandon(NULL);
    ck_assert_uint_eq(slurp(found, sizeof found), 3);
    char tmp[160]; /* a killed run with the same process number, as in containers */
    snprintf(tmp, sizeof tmp, "%s.tmp.%ld", path, (long)getpid());
    ck_assert_int_eq(symlink(path, tmp), 0);
    ok(mr_writer_new(path, &w, &err));
    ok(mr_writer_begin(w, &err));
    ck_assert_uint_eq(slurp(found, sizeof found), 3); /* the link was not written through */
    ok(mr_writer_finish(w, &err));
    ck_assert_uint_eq(slurp(found, sizeof found), 16);
    char link[128];
    snprintf(link, sizeof link, "%s/link", folder);
    ck_assert_int_eq(symlink("out", link), 0);
    ok(mr_writer_new(link, &w, &err));
    declare("t", MR_U8, 1, 0, 0);
    ok(mr_writer_begin(w, &err));
    ok(mr_writer_finish(w, &err));
    struct stat st;
    ck_assert(!lstat(link, &st) && S_ISLNK(st.st_mode));
    ck_assert_uint_gt(slurp(found, sizeof found), 16);
    unlink(link);
}
END_TEST

START_TEST(reject_declarations)
{
    size_t i;
    uint64_t huge[] = {1ull << 32, 1ull << 32}, top[] = {UINT64_MAX, 0}, three[] = {3, 1};
    uint64_t most[] = {(1ull << 60) - 1};
    declare("a", MR_U8, 1, 2, 0);
    expect(mr_writer_declare(w, "a", MR_U8, 1, three, &i, &err), MR_ERR_VALUE, "twice");
    expect(mr_writer_declare(w, "__metadata__", MR_U8, 1, three, &i, &err), MR_ERR_VALUE, "keeps");
    expect(mr_writer_declare(w, "\xc3", MR_U8, 1, three, &i, &err), MR_ERR_VALUE, "UTF-8");
    expect(mr_writer_declare(w, "b", MR_U8, 2, huge, &i, &err), MR_ERR_VALUE, "overflows");
    expect(mr_writer_declare(w, "b", MR_U8, 2, top, &i, &err), MR_ERR_VALUE, "overflows");
    expect(mr_writer_declare(w, "b", MR_F4, 1, three, &i, &err), MR_ERR_SHAPE, "whole bytes");
    expect(mr_writer_declare(w, "b", MR_U8, 9, three, &i, &err), MR_ERR_USAGE, "dimensions");
    expect(mr_writer_declare(w, "b", MR_U8, -1, three, &i, &err), MR_ERR_USAGE, "dimensions");
    expect(mr_writer_declare(w, "b", 99, 1, three, &i, &err), MR_ERR_USAGE, "no dtype");
    ok(mr_writer_metadata(w, "k", "v", &err));
    expect(mr_writer_metadata(w, "k", "v", &err), MR_ERR_VALUE, "twice");
    expect(mr_writer_metadata(w, "\xff", "v", &err), MR_ERR_VALUE, "UTF-8");
    expect(mr_writer_metadata(w, "l", "\xff", &err), MR_ERR_VALUE, "UTF-8");
    for (char name[] = "c0"; name[1] < '8'; name[1]++)
        ok(mr_writer_declare(w, name, MR_U8, 1, most, &i, &err));
    expect(mr_writer_begin(w, &err), MR_ERR_VALUE, "2^63");
    expect(mr_writer_finish(w, &err), MR_ERR_USAGE, "before begin");
}
END_TEST

START_TEST(reject_order_and_bounds)
{
    size_t i;
    declare("a", MR_U8, 1, 2, 0);
    expect(mr_writer_put(w, 0, 0, "x", 1, &err), MR_ERR_USAGE, "before begin");
    ok(mr_writer_begin(w, &err));
    expect(mr_writer_begin(w, &err), MR_ERR_USAGE, "twice");
    expect(mr_writer_declare(w, "b", MR_U8, 0, NULL, &i, &err), MR_ERR_USAGE, "header");
    expect(mr_writer_metadata(w, "k", "v", &err), MR_ERR_USAGE, "header");
    expect(mr_writer_put(w, 1, 0, "x", 1, &err), MR_ERR_USAGE, "tensor 1 of 1");
    expect(mr_writer_put(w, 0, 0, "xxx", 3, &err), MR_ERR_USAGE, "do not fit");
    expect(mr_writer_put(w, 0, 3, "", 0, &err), MR_ERR_USAGE, "do not fit");
    expect(mr_writer_put(w, 0, UINT64_MAX, "xx", 2, &err), MR_ERR_USAGE, "do not fit");
    mr_writer_abandon(w);
}
END_TEST

START_TEST(reject_targets)
{
    static const char *const paths[][2] = {{"/no/such/folder/f", "No such file"},
                                           {"/dev/null", "another kind of file"},
                                           {"/proc/f", "cannot create"},
                                           {"/tmp", "a folder"}};
    mr_writer_abandon(w);
    for (size_t i = 0; i < 4; i++) {
        ok(mr_writer_new(paths[i][0], &w, &err));
        expect(mr_writer_begin(w, &err), MR_ERR_IO, paths[i][1]);
        ck_assert(strstr(err.text, paths[i][0]));
        mr_writer_abandon(w);
    }
}
END_TEST

/* The limit on a file's size stands in for a full disk: pwrite fails half way. */
START_TEST(reject_full_disk)
{
    char *data = calloc(1, 1 << 16);
    ck_assert_ptr_nonnull(data);
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit;
    getrlimit(RLIMIT_FSIZE, &limit);
    declare("a", MR_U8, 1, 1 << 16, 0);
    ok(mr_writer_begin(w, &err));
    limit.rlim_cur = 5000;
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    expect(mr_writer_put(w, 0, 0, data, 1 << 16, &err), MR_ERR_IO, "File too large");
    expect(mr_writer_finish(w, &err), MR_ERR_USAGE, "0 of its 65536");
    ok(mr_writer_new(path, &w, &err));
    declare("a", MR_U8, 1, 1 << 16, 0);
    expect(mr_writer_begin(w, &err), MR_ERR_IO, "File too large");
    expect(mr_writer_finish(w, &err), MR_ERR_USAGE, "before begin");
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_FSIZE, &limit); /* Check's own files */
    free(data);
}
END_TEST

Suite *suite_writer(void)
{
    Suite *s = suite_create("writer");
    TCase *c = tcase_create("writer");
    tcase_add_checked_fixture(c, start, stop);
    tcase_set_timeout(c, 60);
    tcase_add_test(c, validate_bytes);
    tcase_add_test(c, validate_empty);
    tcase_add_test(c, corroborate_read_back);
    tcase_add_test(c, verify_threads);
    tcase_add_test(c, verify_old_file_stays);
    tcase_add_test(c, reject_declarations);
    tcase_add_test(c, reject_order_and_bounds);
    tcase_add_test(c, reject_targets);
    tcase_add_test(c, reject_full_disk);
    suite_add_tcase(s, c);
    return s;
}
