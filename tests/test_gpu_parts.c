/* Parts of the GPU harness that need no GPU: statistics, row lists, canaries, books, bits, JSON and
 * tables. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../gpu/bits.h"
#include "../gpu/results.h"
#include "../gpu/rows.h"
#include "../gpu/session.h"
#include "../gpu/stats.h"
#include "support/cli.h"

Suite *suite_gpu_parts(void);

START_TEST(validate_quantiles)
{
    double at[10] = {9, 1, 8, 2, 7, 3, 6, 4, 10, 5};
    gpu_sort(at, 10);
    ck_assert_double_eq(gpu_quantile(at, 10, 0.5), 5);
    ck_assert_double_eq(gpu_quantile(at, 10, 0.9), 9);
    ck_assert_double_eq(gpu_quantile(at, 10, 0.1), 1);
    ck_assert_double_eq(gpu_quantile(at, 10, 0), 1);
    ck_assert_double_eq(gpu_quantile(at, 10, 1), 10);
    ck_assert_double_eq(gpu_quantile(at, 9, 0.5), 5);
    ck_assert_double_eq(gpu_spread(at, 10), 8);
    ck_assert_double_eq(gpu_quantile(at, 1, 0.9), 1);
    ck_assert(isnan(gpu_quantile(at, 0, 0.5)));
}
END_TEST

START_TEST(verify_row_lists)
{
    struct gpu_rows rows;
    struct mr_error err;
    ck_assert_int_eq(gpu_rows_parse("axis", &rows, &err), MR_OK);
    ck_assert_uint_eq(rows.count, 24);
    ck_assert_int_eq(rows.at[23], 8192);
    ck_assert_int_eq(gpu_rows_parse("96,1,6", &rows, &err), MR_OK);
    ck_assert_uint_eq(rows.count, 3);
    ck_assert(rows.at[0] == 1 && rows.at[1] == 6 && rows.at[2] == 96);
    ck_assert_int_eq(gpu_rows_parse("7", &rows, &err), MR_OK);
    ck_assert_int_eq(gpu_rows_parse(" 7", &rows, &err), MR_ERR_USAGE);
    ck_assert_int_eq(gpu_rows_parse("-7", &rows, &err), MR_ERR_USAGE);
}
END_TEST

/* One byte at any of these places is found, and named; a byte inside is not. */
START_TEST(verify_canaries)
{
    static const struct {
        long at;
        const char *words;
    } write[] = {{100, "behind x, from 0 after"}, {100 + GPU_GUARD - 1, "behind x"},
                 {-1, "before x, the nearest 1 before"}, {-GPU_GUARD, "before x"}, {50, ""},
                 {99, ""}};
    struct gpu_buffer b;
    struct mr_error err;
    char fault[200], values[100] = {0};
    for (int input = 0; input < 2; input++)
        for (int i = 0; i < 6; i++) {
            ck_assert_int_eq(gpu_buffer_new(&gpu_memory_host, "x", 100, &b, &err), MR_OK);
            if (input) gpu_buffer_put(&gpu_memory_host, &b, values, &err);
            gpu_buffer_check(&gpu_memory_host, &b, fault, sizeof fault, &err);
            ck_assert_str_eq(fault, "");
            ((unsigned char *)b.data)[write[i].at] ^= 1;
            gpu_buffer_check(&gpu_memory_host, &b, fault, sizeof fault, &err);
            if (input && i >= 4) ck_assert_str_eq(fault, "wrote into its input x");
            else if (i >= 4) ck_assert_str_eq(fault, "");
            else ck_assert_msg(strstr(fault, write[i].words) != NULL, "%s", fault);
            gpu_buffer_free(&gpu_memory_host, &b);
        }
}
END_TEST

/* Two rows choose experts 2, 0 and 2, 1 of 4, tiles of 2. */
START_TEST(verify_books)
{
    const struct mr_kernel k = {.gives = MR_GIVES_IDS | MR_GIVES_COUNTS | MR_GIVES_SORTED,
                                .tile = 2, .promises = MR_KERNEL_SORTED_STABLE};
    const struct mr_kernel_problem p = {.router = {.experts = 4, .top_k = 2}, .rows = 2};
    size_t bytes[GPU_SLOTS];
    int64_t most;
    gpu_slot_bytes(&k, &p, bytes, &most);
    ck_assert_int_eq(most, 8);
    ck_assert_uint_eq(bytes[GPU_TILE_EXPERT], 4 * sizeof(int32_t));
    for (int i = 0; i < 8; i++) {
        int32_t ids[] = {2, 0, 2, 1}, counts[] = {1, 1, 2, 0}, total = 6;
        int32_t sorted[8] = {1, 4, 3, 4, 0, 2, -9, -9}, tiles[4] = {0, 1, 2, -9};
        struct gpu_outputs out = {{0}};
        char fault[200];
        out.at[GPU_IDS] = (unsigned char *)ids;
        out.at[GPU_COUNTS] = (unsigned char *)counts;
        out.at[GPU_SORTED] = (unsigned char *)sorted;
        out.at[GPU_SORTED_TOTAL] = (unsigned char *)&total;
        out.at[GPU_TILE_EXPERT] = (unsigned char *)tiles;
        if (i == 1) counts[3] = 1;
        if (i == 2) sorted[1] = 3;             /* padding that is a position */
        if (i == 3) sorted[4] = 2;             /* a position twice */
        if (i == 4) sorted[0] = 3;             /* of another expert */
        if (i == 5) tiles[2] = 3;
        if (i == 6) total = 8;
        if (i == 7) sorted[4] = 2, sorted[5] = 0; /* not ascending */
        gpu_books_check(&k, &p, &out, fault, sizeof fault);
        ck_assert_msg((i == 0) == (fault[0] == '\0'), "%d: %s", i, fault);
    }
}
END_TEST

static struct mr_tensor view(const void *data, enum mr_dtype dtype, uint64_t rows, uint64_t cols)
{
    return (struct mr_tensor){.dtype = dtype, .ndim = 2, .shape = {rows, cols}, .data = data,
                              .bytes = rows * cols * mr_dtype_bits(dtype) / 8};
}

/* Three tokens, k = 2, two experts' logits; the second row count swaps ids of token 0 (no flip),
 * changes a logit of token 1, and names another expert for token 2 in its second row. */
START_TEST(verify_bits)
{
    int32_t first[] = {0, 1, 2, 3, 4, 5}, second[] = {1, 0, 2, 3, 4, 5, 4, 6};
    float logits[] = {1, 2, 3, 4, 5, 6}, others[] = {1, 2, 3, -4, 5, 6, 5, 6};
    int64_t index[] = {0, 1, 2, 2};
    struct gpu_bits *b;
    struct gpu_bits_count n = {0}, m = {0};
    struct mr_error err;
    struct mr_observed one = {.rows = 3, .tokens = 3, .ids = view(first, MR_I32, 3, 2),
                              .logits = view(logits, MR_F32, 3, 2)};
    struct mr_observed two = {
        .rows = 4, .tokens = 3, .ids = view(second, MR_I32, 4, 2),
        .logits = view(others, MR_F32, 4, 2),
        .token_index = {.dtype = MR_I64, .ndim = 1, .shape = {4}, .data = index, .bytes = 32}};
    ck_assert_int_eq(mr_observed_index(&two, "index", &err), MR_OK);
    ck_assert_int_eq(gpu_bits_new(3, 2, 2, &b), MR_OK);
    gpu_bits_add(b, &one, &n);
    ck_assert(!n.compared && n.sets && !n.batch_bits && !n.batch_flips);
    gpu_bits_add(b, &two, &m);
    ck_assert(m.compared);
    ck_assert_uint_eq(m.bit_changes, 1);
    ck_assert_uint_eq(m.batch_flips, 1);
    ck_assert_uint_eq(m.batch_bits, 3);
    /* Back to the first: equal to it, and one logit changed since the row count before. */
    m = (struct gpu_bits_count){0};
    gpu_bits_add(b, &one, &m);
    ck_assert(m.bit_changes == 1 && m.batch_bits == 0 && m.batch_flips == 0);
    gpu_bits_free(b);
    mr_observed_free(&two);
}
END_TEST

static const struct mr_kernel pair = {.family = "pair", .name = "pair_16"};

/* A bench as the children tell of it, to JSON and to a table. */
START_TEST(verify_bench_report)
{
    char line[3][9][16] = {{"floor", "empty_1", "2.5", "0.1", "2.0", "0.1", "4.5", "4", "cupti"},
                           {"floor", "empty_288", "2.75", "0.1", "2.1", "0.1", "4.5", "4", "cupti"},
                           {"floor", "read_gate", "5.0", "0.2", "3.0", "0.1", "7", "6", "cupti"}};
    struct gpu_results r = {.command = "bench", .case_name = "case", .seed = 1, .device = "H200",
                            .driver = "580", .cuda = "13.0"};
    for (int i = 0; i < 3; i++) {
        char *field[9];
        for (int f = 0; f < 9; f++) field[f] = line[i][f];
        gpu_results_floor(&r, 9, field);
    }
    char *gate[] = {(char *)"gate", (char *)"2359296"};
    gpu_results_floor(&r, 2, gate);
    struct gpu_result at[3];
    for (int i = 0; i < 3; i++) gpu_result_init(&at[i], &pair, i ? 6 : 1);
    at[0].pdl = 1;
    at[0].cold = 6.25;
    at[0].cold_spread = 0.5;
    at[0].warm = 4;
    strcpy(at[0].method, "cupti");
    gpu_result_fail(&at[1], GPU_UNSUPPORTED, "serves 1 to 4 rows");
    gpu_result_fail(&at[2], GPU_NOT_RUN, "killed");
    gpu_result_fail(&at[2], GPU_FAULTY, "never the reason: not the worst");
    r.at = at;
    r.count = 3;
    json_t *doc = gpu_results_json(&r), *floor = json_object_get(doc, "floor");
    ck_assert_double_eq(json_real_value(json_object_get(json_object_get(floor, "read_gate"),
                                                        "us_cold")), 5);
    ck_assert_int_eq(json_integer_value(json_object_get(floor, "gate_bytes")), 2359296);
    json_t *one = json_array_get(json_object_get(doc, "kernels"), 0);
    ck_assert_double_eq(json_real_value(json_object_get(one, "us_cold")), 6.25);
    ck_assert(json_is_null(json_object_get(one, "spread_warm")));
    ck_assert(json_is_true(json_object_get(one, "pdl")));
    ck_assert(json_is_null(json_object_get(one, "verdicts")));
    one = json_array_get(json_object_get(doc, "kernels"), 2);
    ck_assert_str_eq(json_string_value(json_object_get(one, "status")), "not_run");
    ck_assert_str_eq(json_string_value(json_object_get(one, "reason")), "killed");
    json_decref(doc);
    ck_assert(gpu_results_failed(&r));
    r.count = 2;
    ck_assert(!gpu_results_failed(&r));
    r.count = 3;
    char *text;
    size_t bytes;
    FILE *f = open_memstream(&text, &bytes);
    gpu_print_bench(&r, f);
    fclose(f);
    ck_assert_ptr_nonnull(strstr(text, "read_gate"));
    ck_assert_ptr_nonnull(strstr(text, "    6.25     0.50     4.00        -    1.25"));
    ck_assert_ptr_nonnull(strstr(text, "\nunsupported: pair_16: serves 1 to 4 rows: rows 6\n"));
    ck_assert_ptr_nonnull(strstr(text, "\nnot_run: pair_16: killed: rows 6\n"));
    free(text);
}
END_TEST

/* What a kernel takes: converted without loss, or refused. */
START_TEST(verify_inputs)
{
    const struct mr_router router = {.experts = 2, .top_k = 1, .hidden = 2, .n_group = 1,
                                     .topk_group = 1};
    float hidden[] = {1, 1.5f, -2, 1.0000001f};
    uint16_t gate[] = {0x3f80, 0x4000, 0x3f80, 0xc000}; /* 1, 2; 1, -2 in bf16 */
    const double gate_bias[] = {0.25, 0};
    const struct mr_layer layer = {.router = &router, .hidden = {hidden, MR_F32, 2, 2},
                                   .gate = {gate, MR_BF16, 2, 2}, .gate_bias = gate_bias};
    struct mr_kernel k = {.hidden_types = MR_KERNEL_FP32, .gate_types = MR_KERNEL_FP32};
    struct gpu_inputs in;
    struct mr_error err = {{0}};
    ck_assert_int_eq(gpu_inputs_make(&layer, &k, &in, &err), MR_OK);
    ck_assert_int_eq(in.gate_type, MR_KERNEL_FP32);
    ck_assert_mem_eq(in.gate, ((float[]){1, 2, 1, -2}), 16);
    ck_assert_mem_eq(in.hidden, hidden, 16);
    gpu_inputs_free(&in);
    k.gate_types = MR_KERNEL_BF16 | MR_KERNEL_FP32;
    ck_assert_int_eq(gpu_inputs_make(&layer, &k, &in, &err), MR_OK);
    ck_assert_int_eq(in.gate_type, MR_KERNEL_BF16);
    gpu_inputs_free(&in);
    k.hidden_types = MR_KERNEL_BF16;
    ck_assert_int_eq(gpu_inputs_make(&layer, &k, &in, &err), MR_ERR_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(err.text, "hidden states: 1 of 4 F32 values"));
    /* With 1 + 2^-23 as 1.0000001: 1 + 3 + 0.25, 1 - 3, -2 + 2 + 2^-22 + 0.25, and -4 - 2^-22, a
     * tie that rounds to even; then all of them to bf16. */
    k = (struct mr_kernel){.given_types = MR_KERNEL_BF16 | MR_KERNEL_FP32};
    ck_assert_int_eq(gpu_inputs_make(&layer, &k, &in, &err), MR_OK);
    ck_assert_mem_eq(in.given, ((float[]){4.25f, -2, 0.25f + 2.38418579e-07f, -4}), 16);
    ck_assert(!in.rounded);
    gpu_inputs_free(&in);
    k.given_types = MR_KERNEL_BF16;
    ck_assert_int_eq(gpu_inputs_make(&layer, &k, &in, &err), MR_OK);
    ck_assert_mem_eq(in.given, ((uint16_t[]){0x4088, 0xc000, 0x3e80, 0xc080}), 8);
    ck_assert(in.rounded);
    gpu_inputs_free(&in);
}
END_TEST

Suite *suite_gpu_parts(void)
{
    Suite *s = suite_create("gpu_parts");
    TCase *c = tcase_create("parts");
    tcase_add_test(c, validate_quantiles);
    tcase_add_test(c, verify_row_lists);
    tcase_add_test(c, verify_canaries);
    tcase_add_test(c, verify_books);
    tcase_add_test(c, verify_bits);
    tcase_add_test(c, verify_bench_report);
    tcase_add_test(c, verify_inputs);
    suite_add_tcase(s, c);
    return s;
}
