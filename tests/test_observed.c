/* Reading what a kernel gave: every dtype, subsets of tensors and rows, and all that is refused. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/io/observed.h"
#include "support/cli.h"

Suite *suite_observed(void);

#define IDS "p.model.layers.0.mlp.topk_ids"
#define WEIGHTS "p.model.layers.0.mlp.topk_weights"
#define LOGITS "p.model.layers.0.mlp.gate.logits"
#define INDEX "p.model.layers.0.mlp.gate.token_index"

static const struct mr_router router = {.experts = 6, .top_k = 2, .n_group = 1, .topk_group = 1};

/* Zeroes stand behind every tensor that a test gives no data for. */
static const char zeroes[4096];

struct read {
    struct mr_safetensors *file;
    struct mr_observed o;
    bool found;
    enum mr_status status;
    struct mr_error err;
};

/* Writes the tensors to x.st and reads them for `tokens` tokens. */
static struct read read_back(const struct cli_tensor *tensors, size_t count, size_t tokens)
{
    struct read r = {.file = NULL};
    cli_put_tensors("x.st", tensors, count);
    ck_assert_int_eq(mr_safetensors_open(cli_at("x.st"), &r.file, &r.err), MR_OK);
    r.status = mr_observed_read(r.file, 0, "p", &router, tokens, UINT64_MAX, &r.o, &r.found,
                                &r.err);
    return r;
}

static void done(struct read *r)
{
    mr_observed_free(&r->o);
    mr_safetensors_close(r->file);
}

START_TEST(validate_id_types)
{
    const int32_t i32[4] = {-1, 5, INT32_MIN, INT32_MAX};
    const int64_t i64[4] = {-1, 5, INT64_MIN, INT64_MAX};
    const uint32_t u32[4] = {0, 5, UINT32_MAX, 1u << 31};
    const uint16_t u16[4] = {0, 5, UINT16_MAX, 1u << 15};
    const uint8_t u8[4] = {0, 5, UINT8_MAX, 128};
    const struct {
        enum mr_dtype dtype;
        const void *data;
        int64_t want[4];
    } types[] = {{MR_I32, i32, {-1, 5, INT32_MIN, INT32_MAX}},
                 {MR_I64, i64, {-1, 5, INT64_MIN, INT64_MAX}},
                 {MR_U32, u32, {0, 5, UINT32_MAX, 1ll << 31}},
                 {MR_U16, u16, {0, 5, 65535, 32768}},
                 {MR_U8, u8, {0, 5, 255, 128}}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        int64_t ids[4];
        struct read r = read_back(&(struct cli_tensor){IDS, types[i].dtype, 2, 2, types[i].data}, 1,
                                  9);
        ck_assert_msg(r.status == MR_OK && r.found, "%s", r.err.text);
        ck_assert_uint_eq(r.o.rows, 2);
        mr_observed_ids(&r.o, 0, ids);
        mr_observed_ids(&r.o, 1, ids + 2);
        ck_assert(!memcmp(ids, types[i].want, sizeof ids));
        done(&r);
    }
}
END_TEST

START_TEST(validate_real_types)
{
    const float f32[4] = {0.5f, -0.25f, 3, NAN};
    const double f64[4] = {0.5, -0.25, 3, NAN};
    const uint16_t bf16[4] = {0x3f00, 0xbe80, 0x4040, 0x7fc0};
    const uint16_t f16[4] = {0x3800, 0xb400, 0x4200, 0x7e00};
    const struct {
        enum mr_dtype dtype;
        const void *data;
    } types[] = {{MR_F32, f32}, {MR_F64, f64}, {MR_BF16, bf16}, {MR_F16, f16}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        double w[4];
        const struct cli_tensor t[] = {{IDS, MR_U8, 2, 2, zeroes},
                                       {WEIGHTS, types[i].dtype, 2, 2, types[i].data}};
        struct read r = read_back(t, 2, 2);
        ck_assert_msg(r.status == MR_OK, "%s", r.err.text);
        mr_observed_weights(&r.o, 0, w);
        mr_observed_weights(&r.o, 1, w + 2);
        ck_assert(!memcmp(w, f64, 3 * sizeof *w) && isnan(w[3]));
        done(&r);
    }
}
END_TEST

/* Rows of a token, in ascending order; tokens that no row has. */
START_TEST(verify_index)
{
    const int64_t index[5] = {3, 0, 3, 2, 3};
    const struct cli_tensor t[] = {{IDS, MR_U8, 5, 2, zeroes}, {INDEX, MR_I64, 5, 0, index}};
    static const struct {
        size_t count, rows[3];
    } want[4] = {{1, {1}}, {0, {0}}, {1, {3}}, {3, {0, 2, 4}}};
    struct read r = read_back(t, 2, 4);
    ck_assert_msg(r.status == MR_OK, "%s", r.err.text);
    for (size_t token = 0; token < 4; token++) {
        const size_t *rows;
        size_t n = mr_observed_rows(&r.o, token, &rows);
        ck_assert_uint_eq(n, want[token].count);
        for (size_t i = 0; i < n; i++) ck_assert_uint_eq(rows[i], want[token].rows[i]);
    }
    done(&r);
    /* Without it, row i is token i, of at least as many. */
    r = read_back(t, 1, 7);
    const size_t *rows;
    ck_assert_int_eq(r.status, MR_OK);
    ck_assert(mr_observed_rows(&r.o, 4, &rows) == 1 && !rows);
    ck_assert_uint_eq(mr_observed_rows(&r.o, 5, &rows), 0);
    done(&r);
}
END_TEST

START_TEST(verify_subsets)
{
    const struct cli_tensor all[] = {{LOGITS, MR_F32, 3, 6, zeroes}, {IDS, MR_I32, 3, 2, zeroes},
                                     {"q.model.layers.0.mlp.topk_ids", MR_I32, 9, 9, zeroes},
                                     {"something", MR_F8_E4M3, 2, 0, zeroes}};
    struct read r = read_back(all, 1, 3);
    ck_assert(r.status == MR_OK && r.found && !r.o.ids.data && r.o.logits.data);
    done(&r);
    r = read_back(all, 4, 3);
    ck_assert(r.status == MR_OK && r.found && r.o.ids.data && r.o.logits.data);
    done(&r);
    r = read_back(all + 2, 2, 3); /* nothing of this layer and phase */
    ck_assert(r.status == MR_OK && !r.found);
    done(&r);
    const struct cli_tensor none[] = {{IDS, MR_I32, 0, 2, zeroes}};
    r = read_back(none, 1, 0);
    ck_assert(r.status == MR_OK && r.found && r.o.rows == 0);
    done(&r);
}
END_TEST

static const int64_t beyond[2] = {0, 4}, negative[2] = {-1, 0}, huge[2] = {0, INT64_MIN};
static const struct {
    struct cli_tensor tensor[3];
    size_t count, tokens;
    enum mr_status status;
    const char *word, *second;
} bad[] = {
    {{{IDS, MR_F32, 4, 2, zeroes}}, 1, 4, MR_ERR_DTYPE, IDS, "F32"},
    {{{IDS, MR_U64, 4, 2, zeroes}}, 1, 4, MR_ERR_DTYPE, "I32, I64, U32, U16, U8", "U64"},
    {{{IDS, MR_I8, 4, 2, zeroes}}, 1, 4, MR_ERR_DTYPE, IDS, "I8"},
    {{{IDS, MR_I32, 4, 3, zeroes}}, 1, 4, MR_ERR_SHAPE, "[rows, 2]", "[4, 3]"},
    {{{IDS, MR_I32, 8, 0, zeroes}}, 1, 4, MR_ERR_SHAPE, "[rows, 2]", "[8]"},
    {{{IDS, MR_I32, 5, 2, zeroes}}, 1, 4, MR_ERR_SHAPE, "5 rows for 4 tokens", INDEX},
    {{{LOGITS, MR_F32, 4, 5, zeroes}}, 1, 4, MR_ERR_SHAPE, LOGITS, "[rows, 6]"},
    {{{LOGITS, MR_I32, 4, 6, zeroes}}, 1, 4, MR_ERR_DTYPE, LOGITS, "I32"},
    {{{WEIGHTS, MR_F32, 4, 2, zeroes}}, 1, 4, MR_ERR_MISSING, WEIGHTS, IDS},
    {{{INDEX, MR_I64, 4, 0, zeroes}}, 1, 4, MR_ERR_MISSING, INDEX, LOGITS},
    {{{IDS, MR_I32, 4, 2, zeroes}, {WEIGHTS, MR_F32, 3, 2, zeroes}}, 2, 4, MR_ERR_SHAPE, WEIGHTS,
     "[4, 2]"},
    {{{IDS, MR_I32, 4, 2, zeroes}, {WEIGHTS, MR_I32, 4, 2, zeroes}}, 2, 4, MR_ERR_DTYPE, WEIGHTS,
     "BF16"},
    {{{IDS, MR_I32, 4, 2, zeroes}, {LOGITS, MR_F32, 3, 6, zeroes}}, 2, 4, MR_ERR_SHAPE, LOGITS,
     "[4, 6]"},
    {{{IDS, MR_I32, 2, 2, zeroes}, {INDEX, MR_I64, 3, 0, zeroes}}, 2, 4, MR_ERR_SHAPE, INDEX,
     "[2]"},
    {{{IDS, MR_I32, 2, 2, zeroes}, {INDEX, MR_I32, 2, 0, zeroes}}, 2, 4, MR_ERR_DTYPE, INDEX,
     "I64"},
    {{{IDS, MR_I32, 2, 2, zeroes}, {INDEX, MR_I64, 2, 0, beyond}}, 2, 4, MR_ERR_VALUE,
     "row 1: token 4", "0 to 3"},
    {{{IDS, MR_I32, 2, 2, zeroes}, {INDEX, MR_I64, 2, 0, negative}}, 2, 4, MR_ERR_VALUE,
     "row 0: token -1", INDEX},
    {{{IDS, MR_I32, 2, 2, zeroes}, {INDEX, MR_I64, 2, 0, huge}}, 2, 4, MR_ERR_VALUE,
     "row 1: token -9223372036854775808", INDEX},
    {{{IDS, MR_I32, 2, 2, zeroes}, {INDEX, MR_I64, 2, 0, zeroes}}, 2, 0, MR_ERR_VALUE,
     "row 0: token 0", "0 tokens"},
};

START_TEST(reject_tensors)
{
    struct read r = read_back(bad[_i].tensor, bad[_i].count, bad[_i].tokens);
    ck_assert_msg(r.status == bad[_i].status, "%s, expected %s: %s", mr_status_name(r.status),
                  mr_status_name(bad[_i].status), r.err.text);
    ck_assert_msg(strstr(r.err.text, cli_at("x.st")), "no file in: %s", r.err.text);
    ck_assert_msg(strstr(r.err.text, bad[_i].word), "no '%s' in: %s", bad[_i].word, r.err.text);
    ck_assert_msg(strstr(r.err.text, bad[_i].second), "no '%s' in: %s", bad[_i].second, r.err.text);
    ck_assert(!r.o.first && !r.o.ids.data);
    done(&r);
}
END_TEST

/* Metadata, and the option that stands in its place. */
START_TEST(verify_padding)
{
    static const struct {
        const char *text;
        enum mr_status status;
        uint64_t want;
    } texts[] = {{"0", MR_OK, 0}, {"12", MR_OK, 12}, {"-1", MR_ERR_VALUE, 0},
                 {"x", MR_ERR_VALUE, 0}, {"", MR_ERR_VALUE, 0}, {"3 ", MR_ERR_VALUE, 0},
                 {"99999999999999999999", MR_ERR_VALUE, 0}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct mr_error err = {{0}};
        struct mr_writer *w;
        struct mr_safetensors *file;
        struct mr_observed o;
        size_t index;
        bool found;
        const uint64_t shape[2] = {2, 2};
        ck_assert_int_eq(mr_writer_new(cli_at("x.st"), &w, &err), MR_OK);
        ck_assert_int_eq(mr_writer_metadata(w, "num_token_non_padded", texts[i].text, &err), MR_OK);
        ck_assert_int_eq(mr_writer_declare(w, IDS, MR_U8, 2, shape, &index, &err), MR_OK);
        ck_assert_int_eq(mr_writer_begin(w, &err), MR_OK);
        ck_assert_int_eq(mr_writer_put(w, index, 0, zeroes, 4, &err), MR_OK);
        ck_assert_int_eq(mr_writer_finish(w, &err), MR_OK);
        ck_assert_int_eq(mr_safetensors_open(cli_at("x.st"), &file, &err), MR_OK);
        ck_assert_int_eq(mr_observed_read(file, 0, "p", &router, 2, UINT64_MAX, &o, &found, &err),
                         texts[i].status);
        if (texts[i].status == MR_OK) ck_assert(o.non_padded == texts[i].want);
        mr_observed_free(&o);
        ck_assert_int_eq(mr_observed_read(file, 0, "p", &router, 2, 5, &o, &found, &err), MR_OK);
        ck_assert(o.non_padded == 5);
        mr_observed_free(&o);
        mr_safetensors_close(file);
    }
}
END_TEST

Suite *suite_observed(void)
{
    Suite *s = suite_create("observed");
    TCase *c = tcase_create("read");
    tcase_add_checked_fixture(c, cli_start, cli_stop);
    tcase_add_test(c, validate_id_types);
    tcase_add_test(c, validate_real_types);
    tcase_add_test(c, verify_index);
    tcase_add_test(c, verify_subsets);
    tcase_add_loop_test(c, reject_tensors, 0, sizeof bad / sizeof *bad);
    tcase_add_test(c, verify_padding);
    suite_add_tcase(s, c);
    return s;
}
