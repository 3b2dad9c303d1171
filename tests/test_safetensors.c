/* Reading safetensors. Every image here is written out byte by byte from the format's description
 * (huggingface/safetensors README, "Format"), never by moeref's own writer. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/io/safetensors.h"

Suite *suite_safetensors(void);

#define LIMIT  100000000u
#define GOOD_A "\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}"

/* An image in a block of exactly its size, so that a sanitizer sees any read beyond it. */
struct image {
    unsigned char *bytes;
    size_t size;
    struct mr_safetensors *file;
    struct mr_error err;
};

static struct image make(uint64_t length, const void *header, size_t header_bytes, size_t data)
{
    struct image m = {.size = 8 + header_bytes + data};
    m.bytes = malloc(m.size);
    ck_assert_ptr_nonnull(m.bytes);
    for (int i = 0; i < 8; i++) m.bytes[i] = (unsigned char)(length >> 8 * i);
    if (header_bytes) memcpy(m.bytes + 8, header, header_bytes);
    for (size_t i = 0; i < data; i++) m.bytes[8 + header_bytes + i] = (unsigned char)(i + 1);
    return m;
}

static void drop(struct image *m)
{
    mr_safetensors_close(m->file);
    free(m->bytes);
}

static struct image accepted(const char *header, size_t data)
{
    struct image m = make(strlen(header), header, strlen(header), data);
    enum mr_status status = mr_safetensors_parse(m.bytes, m.size, "t", &m.file, &m.err);
    ck_assert_msg(status == MR_OK, "%s: %s", header, m.err.text);
    return m;
}

static void judge(struct image *m, size_t size, enum mr_status expected, const char *word)
{
    unsigned char *exact = malloc(size ? size : 1);
    ck_assert_ptr_nonnull(exact);
    memcpy(exact, m->bytes, size);
    m->file = (struct mr_safetensors *)m;
    enum mr_status status = mr_safetensors_parse(exact, size, "some/path", &m->file, &m->err);
    ck_assert_ptr_null(m->file);
    ck_assert_msg(status == expected, "%s, not %s: %s", mr_status_name(status),
                  mr_status_name(expected), m->err.text);
    ck_assert_msg(strstr(m->err.text, word), "no '%s' in: %s", word, m->err.text);
    ck_assert_msg(!strncmp(m->err.text, "some/path: ", 11), "no path: %s", m->err.text);
    free(exact);
}

static void refused_bytes(const void *header, size_t bytes, size_t data, enum mr_status status,
                          const char *word)
{
    struct image m = make(bytes, header, bytes, data);
    judge(&m, m.size, status, word);
    drop(&m);
}

static void refused(const char *header, size_t data, const char *word)
{
    refused_bytes(header, strlen(header), data, MR_ERR_FORMAT, word);
}

/* One entry "x" with these three values as JSON text. */
static void refused_entry(const char *dtype, const char *shape, const char *offsets, size_t data,
                          const char *word)
{
    char header[512];
    snprintf(header, sizeof header, "{\"x\":{\"dtype\":%s,\"shape\":%s,\"data_offsets\":%s}}",
             dtype, shape, offsets);
    refused(header, data, word);
}

START_TEST(validate_read)
{
    struct image m =
        accepted("{\"__metadata__\":{\"format\":\"pt\",\"\":\"\"},"
                 "\"w\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[3,15]},"
                 "\"b\":{\"data_offsets\":[0,3],\"shape\":[3,1],\"dtype\":\"F8_E8M0\"},"
                 "\"s\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[15,19]}} \n ",
                 19);
    struct mr_tensor t;
    ck_assert_uint_eq(mr_safetensors_count(m.file), 3);
    ck_assert_str_eq(mr_safetensors_path(m.file), "t");
    ck_assert_str_eq(mr_safetensors_name(m.file, 0), "b");
    ck_assert_str_eq(mr_safetensors_name(m.file, 1), "w");
    ck_assert_str_eq(mr_safetensors_name(m.file, 2), "s");
    ck_assert(mr_safetensors_find(m.file, "w", &t)); /* begins at an odd byte */
    ck_assert_int_eq(t.dtype, MR_BF16);
    ck_assert_int_eq(t.ndim, 2);
    ck_assert(t.shape[0] == 2 && t.shape[1] == 3 && t.bytes == 12);
    ck_assert_ptr_eq(t.data, m.bytes + m.size - 19 + 3);
    ck_assert_mem_eq(t.data, "\4\5\6\7\10\11\12\13\14\15\16\17", 12);
    t = mr_safetensors_tensor(m.file, 2);
    ck_assert(t.ndim == 0 && t.bytes == 4 && t.dtype == MR_F32);
    ck_assert_mem_eq(t.data, "\20\21\22\23", 4);
    ck_assert(!mr_safetensors_find(m.file, "", &t));
    ck_assert(!mr_safetensors_find(m.file, "__metadata__", &t));
    ck_assert_str_eq(mr_safetensors_metadata(m.file, "format"), "pt");
    ck_assert_str_eq(mr_safetensors_metadata(m.file, ""), "");
    ck_assert_ptr_null(mr_safetensors_metadata(m.file, "w"));
    drop(&m);
    m = accepted("{}", 0);
    ck_assert_uint_eq(mr_safetensors_count(m.file), 0);
    ck_assert(!mr_safetensors_find(m.file, "a", &t));
    ck_assert_ptr_null(mr_safetensors_metadata(m.file, "format"));
    drop(&m);
}
END_TEST

START_TEST(validate_every_dtype)
{
    /* Name and bytes of eight elements, from the enum Dtype and bitsize() of tensor.rs. */
    static const struct {
        const char *name;
        unsigned bytes;
    } all[] = {{"BOOL", 8},    {"F4", 4},          {"F6_E2M3", 6},     {"F6_E3M2", 6},
               {"U8", 8},      {"I8", 8},          {"F8_E5M2", 8},     {"F8_E4M3", 8},
               {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
               {"U16", 16},    {"F16", 16},        {"BF16", 16},       {"I32", 32},
               {"U32", 32},    {"F32", 32},        {"C64", 64},        {"F64", 64},
               {"I64", 64},    {"U64", 64}};
    ck_assert_uint_eq(sizeof all / sizeof *all, MR_DTYPE_COUNT);
    for (size_t i = 0; i < MR_DTYPE_COUNT; i++) {
        char header[200];
        snprintf(header, sizeof header,
                 "{\"x\":{\"dtype\":\"%s\",\"shape\":[2,4],\"data_offsets\":[0,%u]}}", all[i].name,
                 all[i].bytes);
        struct image m = accepted(header, all[i].bytes);
        struct mr_tensor t = mr_safetensors_tensor(m.file, 0);
        ck_assert_str_eq(mr_dtype_name(t.dtype), all[i].name);
        ck_assert_uint_eq(t.bytes, all[i].bytes);
        drop(&m);
    }
}
END_TEST

START_TEST(validate_zero_elements)
{
    struct image m = accepted(
        "{\"z\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[2,2]},"
        "\"y\":{\"dtype\":\"F4\",\"shape\":[3,0],\"data_offsets\":[2,2]},"
        "\"n\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,3]},"
        "\"e\":{\"dtype\":\"I64\",\"shape\":[0,9223372036854775],\"data_offsets\":[3,3]}," GOOD_A
        "}",
        3);
    const char *const order[] = {"a", "y", "z", "n", "e"};
    for (size_t i = 0; i < 5; i++) ck_assert_str_eq(mr_safetensors_name(m.file, i), order[i]);
    struct mr_tensor t;
    ck_assert(mr_safetensors_find(m.file, "e", &t) && t.bytes == 0 && t.shape[1] > 1000);
    ck_assert_ptr_eq(t.data, m.bytes + m.size);
    drop(&m);
}
END_TEST

START_TEST(validate_names)
{
    struct mr_tensor t;
    struct image m = accepted(
        "{\"\\u00e9\\ud83d\\ude00\\/\\n\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
        "\"\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]},"
        "\"\xe4\xb8\xad\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,3]}}",
        3);
    ck_assert(mr_safetensors_find(m.file, "\xc3\xa9\xf0\x9f\x98\x80/\n", &t));
    ck_assert(mr_safetensors_find(m.file, "", &t));
    ck_assert(mr_safetensors_find(m.file, "\xe4\xb8\xad", &t));
    ck_assert_mem_eq(t.data, "\3", 1);
    drop(&m);
}
END_TEST

START_TEST(reject_length)
{
    struct image m = make(0, "{}", 2, 0);
    for (size_t n = 0; n < 8; n++) judge(&m, n, MR_ERR_FORMAT, "8 bytes of header length");
    judge(&m, 10, MR_ERR_FORMAT, "found 0");
    drop(&m);
    const struct {
        uint64_t length;
        const char *word;
    } lies[] = {
        {3, "beyond the end"},   {LIMIT, "beyond the end"},   {LIMIT + 1, "at most 100000000"},
        {UINT64_MAX, "at most"}, {UINT64_MAX - 7, "at most"}, {1ull << 63, "at most"},
        {1, "not JSON"}};
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        m = make(lies[i].length, "{}", 2, 0);
        judge(&m, m.size, MR_ERR_FORMAT, lies[i].word);
        drop(&m);
    }
}
END_TEST

START_TEST(reject_truncated_anywhere)
{
    const char *header =
        "{" GOOD_A ",\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[2,10]}}";
    struct image m = accepted(header, 10);
    mr_safetensors_close(m.file);
    for (size_t n = 0; n < m.size; n++)
        judge(&m, n, MR_ERR_FORMAT, n < 8 ? "8 bytes" : "beyond the end of the file");
    drop(&m);
    /* The header cut, with the length made to match: never a smaller valid file. */
    for (size_t n = 1; n < strlen(header); n++) {
        m = make(n, header, n, 10);
        judge(&m, m.size, MR_ERR_FORMAT, "byte");
        drop(&m);
    }
}
END_TEST

START_TEST(reject_text)
{
    refused(" {}", 0, "begin with '{'");
    refused("[]", 0, "begin with '{'");
    refused("\xef\xbb\xbf{}", 0, "begin with '{'");
    refused("{} x", 0, "after the closing brace");
    refused("{}{}", 0, "after the closing brace");
    refused("{\"a\":}", 0, "not JSON");
    refused("{'a':1}", 0, "not JSON");
    refused("{,}", 0, "not JSON");
    refused("{" GOOD_A ",}", 2, "not JSON");
    refused("{\"a\":NaN}", 0, "not JSON");
    refused("{\"a\":Infinity}", 0, "not JSON");
    refused("{\"a\tb\":1}", 0, "not JSON");
    refused("{\"\\ud800\":1}", 0, "not JSON");
    refused("{\"a\\u0000b\":1}", 0, "\\u0000");
    refused_bytes("{}\0\0", 4, 0, MR_ERR_FORMAT, "after the closing brace");
    refused_bytes("{\"a\0\":1}", 8, 0, MR_ERR_FORMAT, "not JSON");
    refused("{" GOOD_A "," GOOD_A "}", 2, "twice");
    refused("{\"a\":1,\"\\u0061\":2}", 0, "twice");
    refused("{\"__metadata__\":{\"k\":\"v\",\"k\":\"w\"}}", 0, "twice");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"dtype\":\"I8\",\"data_offsets\":[0,1]}}", 1,
            "twice");
}
END_TEST

START_TEST(reject_utf8)
{
    refused("{\"\x80\":1}", 0, "byte 10: expected UTF-8, found 0x80");
    refused("{\"a\":\"b\xed\xa0\x80\"}", 0, "byte 15: expected UTF-8, found 0xed");
    /* A character that the header's end cuts off, though the data would complete it. */
    struct image m = make(4, "{}\xe4\xb8\xad", 5, 0);
    judge(&m, m.size, MR_ERR_FORMAT, "byte 10: expected UTF-8");
    drop(&m);
}
END_TEST

START_TEST(reject_deep_nesting)
{
    for (size_t n = 100; n <= 1000000; n *= 100) {
        char *header = malloc(n + 6);
        ck_assert_ptr_nonnull(header);
        memcpy(header, "{\"a\":", 5);
        memset(header + 5, '[', n);
        refused_bytes(header, n + 5, 0, MR_ERR_FORMAT, n > 2048 ? "depth" : "not JSON");
        free(header);
    }
}
END_TEST

START_TEST(reject_entries)
{
    refused("{\"a\":1}", 0, "found an integer");
    refused("{\"a\":null}", 0, "found null");
    refused("{\"a\":[]}", 0, "found an array");
    refused("{\"a\":{}}", 0, "no key 'dtype'");
    refused("{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, "no key 'shape'");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "no key 'data_offsets'");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"strides\":[1]}}", 1,
            "'strides'");
    refused_entry("\"F31\"", "[1]", "[0,1]", 1, "unknown dtype 'F31'");
    refused_entry("\"f32\"", "[1]", "[0,4]", 4, "unknown dtype 'f32'");
    refused_entry("3", "[1]", "[0,1]", 1, "dtype: expected a string");
    refused("{\"__metadata__\":[]}", 0, "__metadata__: expected an object");
    refused("{\"__metadata__\":null}", 0, "__metadata__: expected an object");
    refused("{\"__metadata__\":{\"n\":1}}", 0, "'n': expected a string, found an integer");
    refused("{\"__metadata__\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
            "'shape': expected a string");
}
END_TEST

START_TEST(reject_shape)
{
    refused_entry("\"U8\"", "1", "[0,1]", 1, "shape: expected an array");
    refused_entry("\"U8\"", "{}", "[0,1]", 1, "shape: expected an array");
    refused_entry("\"U8\"", "[1.0]", "[0,1]", 1, "shape[0]: expected an integer, found a number");
    refused_entry("\"U8\"", "[1,1e0]", "[0,1]", 1, "shape[1]");
    refused_entry("\"U8\"", "[\"1\"]", "[0,1]", 1, "found a string");
    refused_entry("\"U8\"", "[true]", "[0,1]", 1, "found a boolean");
    refused_entry("\"U8\"", "[-1]", "[0,1]", 1, "found -1");
    refused_entry("\"U8\"", "[-1,-1]", "[0,1]", 1, "found -1");
    refused_entry("\"U8\"", "[9223372036854775808]", "[0,1]", 1, "too big");
    refused_entry("\"U8\"", "[99999999999999999999999999]", "[0,1]", 1, "too big");
    refused_entry("\"U8\"", "[4294967296,4294967296]", "[0,0]", 0, "overflows");
    refused_entry("\"U8\"", "[4294967296,4294967296,4294967296]", "[0,0]", 0, "overflows");
    refused_entry("\"F64\"", "[2305843009213693952]", "[0,0]", 0, "overflows");
    refused_entry("\"F64\"", "[288230376151711744]", "[0,0]", 0, "overflows");
    refused_entry("\"U8\"", "[0,4294967296,4294967296]", "[0,0]", 0, "overflows");
    refused_entry("\"U8\"", "[4294967296,4294967296,0]", "[0,0]", 0, "overflows");
    refused_entry("\"U8\"", "[]", "[0,2]", 2, "takes 1 bytes");
    refused_entry("\"U8\"", "[3]", "[0,2]", 2, "takes 3 bytes");
    refused_entry("\"F32\"", "[2]", "[0,2]", 2, "takes 8 bytes");
    refused_entry("\"F32\"", "[0]", "[0,2]", 2, "takes 0 bytes");
    refused_entry("\"F4\"", "[3]", "[0,1]", 1, "12 bits");
    refused_entry("\"F4\"", "[3]", "[0,2]", 2, "whole bytes");
    refused_entry("\"F6_E3M2\"", "[2]", "[0,2]", 2, "12 bits");
    const char *nine =
        "{\"x\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}";
    refused_bytes(nine, strlen(nine), 1, MR_ERR_UNSUPPORTED, "9 dimensions");
    struct image m = accepted("{\"x\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,2],"
                              "\"data_offsets\":[0,2]}}",
                              2);
    drop(&m);
}
END_TEST

START_TEST(reject_offsets)
{
    refused_entry("\"U8\"", "[2]", "2", 2, "data_offsets: expected an array");
    refused_entry("\"U8\"", "[2]", "[2]", 2, "found 1 values");
    refused_entry("\"U8\"", "[2]", "[0,2,2]", 2, "found 3 values");
    refused_entry("\"U8\"", "[2]", "[0,2.0]", 2, "data_offsets[1]: expected an integer");
    refused_entry("\"U8\"", "[2]", "[\"0\",2]", 2, "data_offsets[0]: expected an integer");
    refused_entry("\"U8\"", "[2]", "[-2,0]", 2, "found -2");
    refused_entry("\"U8\"", "[2]", "[2,0]", 2, "swapped");
    refused_entry("\"U8\"", "[2]", "[0,9223372036854775808]", 2, "too big");
    /* 2^53 + 1 is no double: offsets must not pass through one. */
    refused_entry("\"U8\"", "[2]", "[9007199254740993,9007199254740995]", 2,
                  "[9007199254740993, 9007199254740995] go beyond");
    refused_entry("\"U8\"", "[3]", "[0,3]", 2, "beyond the end");
    refused_entry("\"U8\"", "[9223372036854775807]", "[0,9223372036854775807]", 2,
                  "beyond the end");
}
END_TEST

START_TEST(reject_tiling)
{
#define U8(name, n, begin, end)                                                                    \
    "\"" name "\":{\"dtype\":\"U8\",\"shape\":[" #n "],\"data_offsets\":[" #begin "," #end "]}"
    refused("{" U8("a", 2, 1, 3) "}", 3, "a hole");
    refused("{" U8("a", 2, 0, 2) "," U8("b", 1, 3, 4) "}", 4, "tensor 'b': begins at 3");
    refused("{" U8("b", 1, 3, 4) "," U8("a", 2, 0, 2) "}", 4, "a hole");
    refused("{" U8("a", 3, 0, 3) "," U8("b", 2, 2, 4) "}", 4, "overlap with tensor 'a'");
    refused("{" U8("a", 3, 0, 3) "," U8("b", 3, 0, 3) "}", 3, "overlap");
    refused("{" U8("a", 4, 0, 4) "," U8("b", 1, 1, 2) "}", 4, "overlap");
    refused("{" U8("a", 4, 0, 4) "," U8("z", 0, 2, 2) "}", 4, "overlap");
    refused("{" U8("a", 2, 0, 2) "}", 3, "1 trailing bytes");
    refused("{}", 1, "1 trailing bytes");
    refused("{\"__metadata__\":{}}", 5, "5 trailing bytes");
}
END_TEST

Suite *suite_safetensors(void)
{
    Suite *s = suite_create("safetensors");
    TCase *read = tcase_create("read"), *refuse = tcase_create("refuse");
    tcase_set_timeout(refuse, 60);
    tcase_add_test(read, validate_read);
    tcase_add_test(read, validate_every_dtype);
    tcase_add_test(read, validate_zero_elements);
    tcase_add_test(read, validate_names);
    tcase_add_test(refuse, reject_length);
    tcase_add_test(refuse, reject_truncated_anywhere);
    tcase_add_test(refuse, reject_text);
    tcase_add_test(refuse, reject_utf8);
    tcase_add_test(refuse, reject_deep_nesting);
    tcase_add_test(refuse, reject_entries);
    tcase_add_test(refuse, reject_shape);
    tcase_add_test(refuse, reject_offsets);
    tcase_add_test(refuse, reject_tiling);
    suite_add_tcase(s, read);
    suite_add_tcase(s, refuse);
    return s;
}
