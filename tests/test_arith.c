/* The text form of an arithmetic. */
#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "../ref/arith/arith.h"

/* All types that have a word: [field][choice], the word and what it sets. */
static const char *const logits[] = {NULL, "bf16-logits", "fp16-logits"};
static const char *const bias[] = {NULL, "bf16-bias"};
static const char *const score[] = {NULL, "bf16-scores"};
static const char *const weights[] = {NULL, "bf16-weights"};

static void add(char *line, const char *word)
{
    if (!word) return;
    if (*line) strcat(line, "+");
    strcat(line, word);
}

static void expect(const char *line, const struct mr_arith *want)
{
    struct mr_arith a;
    struct mr_error err = {{0}};
    ck_assert_msg(!mr_arith_parse(line, &a, &err), "%s: %s", line, err.text);
    ck_assert_int_eq(a.logits, want->logits);
    ck_assert_int_eq(a.bias, want->bias);
    ck_assert_int_eq(a.scores, want->scores);
    ck_assert_int_eq(a.weights, want->weights);
}

/* All 24 arithmetics, their words forwards, backwards and with fp32, read; written and read again.
 */
START_TEST(verify_all_lines_come_back)
{
    for (int i = 0; i < 24; i++) {
        struct mr_arith a = {.logits = (enum mr_type)(i % 3), .bias = i / 3 % 2, .scores = i / 6 % 2, .weights = i / 12};
        const char *w[] = {logits[a.logits], score[a.scores], bias[a.bias], weights[a.weights]};
        char forwards[MR_ARITH_TEXT] = "", backwards[MR_ARITH_TEXT] = "", text[MR_ARITH_TEXT];
        for (int j = 0; j < 4; j++) add(forwards, w[j]);
        for (int j = 3; j >= 0; j--) add(backwards, w[j]);
        char plain[MR_ARITH_TEXT + 5];
        snprintf(plain, sizeof plain, "fp32%s%s", *forwards ? "+" : "", forwards);
        expect(*forwards ? forwards : "fp32", &a);
        expect(*backwards ? backwards : "fp32", &a);
        expect(plain, &a);
        mr_arith_print(&a, text, sizeof text);
        ck_assert_uint_lt(strlen(text), MR_ARITH_TEXT - 1);
        expect(text, &a);
        ck_assert_str_eq(text, *forwards ? forwards : "fp32");
        char again[MR_ARITH_TEXT];
        struct mr_arith b;
        ck_assert(!mr_arith_parse(text, &b, NULL));
        mr_arith_print(&b, again, sizeof again);
        ck_assert_str_eq(text, again);
    }
}
END_TEST

/* A buffer too small is not overrun, and holds a terminated text. */
START_TEST(verify_print_keeps_to_its_buffer)
{
    struct mr_arith a = {.logits = MR_TYPE_BF16, .bias = MR_TYPE_BF16, .scores = MR_TYPE_BF16, .weights = MR_TYPE_BF16};
    for (size_t size = 0; size < 60; size++) {
        char text[64];
        memset(text, '#', sizeof text);
        mr_arith_print(&a, text, size);
        ck_assert_int_eq(text[size], '#');
        if (size) ck_assert_ptr_nonnull(memchr(text, 0, size));
    }
}
END_TEST

static void refused(const char *line, int column, const char *word)
{
    struct mr_arith a;
    struct mr_error err = {{0}};
    char place[32];
    snprintf(place, sizeof place, "column %d:", column);
    ck_assert_msg(mr_arith_parse(line, &a, &err) == MR_ERR_USAGE, "'%s' is read", line);
    ck_assert_msg(strstr(err.text, place) && strstr(err.text, word), "'%s', expected %s %s: %s",
                  line, place, word, err.text);
}

START_TEST(reject_malformed_lines)
{
    refused("", 1, "missing");
    refused("+", 1, "missing");
    refused("+bf16-logits", 1, "missing");
    refused("bf16-logits+", 13, "missing");
    refused("bf16-logits++bf16-bias", 13, "missing");
    refused("fp32+", 6, "missing");
    refused("fp32+fp32", 6, "twice");
    refused("bf16-bias+fp32+bf16-logits+fp32", 28, "twice");
    refused("bf16-logits+bf16-logits", 13, "second time");
    refused("bf16-logits+bf16-bias+fp16-logits", 23, "second time");
    refused("bf16-scores+bf16-scores", 13, "second time");
    refused("bf16-weights+bf16-weights", 14, "second time");
    refused("bf16-bias+bf16-bias", 11, "second time");
    refused("bf16", 1, "unknown word 'bf16'");
    refused("BF16-logits", 1, "unknown");
    refused("bf16-logits+fp32x", 13, "'fp32x'");
    refused("bf16-logit", 1, "'bf16-logit'");
    refused("bf16-logitss", 1, "'bf16-logitss'");
    refused("fp16-bias", 1, "unknown");
    refused("fp16-weights", 1, "unknown");
    refused(" fp32", 1, "unknown");
    refused("fp32 ", 1, "unknown");
    refused("fp32\n", 1, "unknown");
    refused("bf16-logits +bf16-bias", 1, "unknown");
    refused("bf16-logits, bf16-bias", 1, "unknown");
    refused("bf16-bias+bf16-logits+nonsense+fp32+fp32", 23, "'nonsense'");
}
END_TEST

/* Every prefix of a line is read or refused, and every byte in the place of one. */
START_TEST(reject_neighbours_of_a_line)
{
    const char *good = "fp16-logits+bf16-scores+bf16-bias+bf16-weights";
    int read = 0;
    for (size_t i = 0; i < strlen(good); i++) {
        char line[64];
        struct mr_arith a;
        snprintf(line, sizeof line, "%.*s", (int)i, good);
        read += !mr_arith_parse(line, &a, NULL);
        for (int byte = 1; byte < 256; byte++) {
            strcpy(line, good);
            line[i] = (char)byte;
            bool ok = !mr_arith_parse(line, &a, NULL), other = i == 0 && byte == 'b';
            ck_assert_msg(ok == (line[i] == good[i]) || other, "%s", line);
        }
    }
    ck_assert_int_eq(read, 3); /* one, two and three words */
}
END_TEST

/* A message of a long line is cut, not lost. */
START_TEST(reject_long_line)
{
    char line[4096];
    memset(line, 'x', sizeof line);
    line[sizeof line - 1] = 0;
    struct mr_arith a;
    struct mr_error err;
    ck_assert_int_eq(mr_arith_parse(line, &a, &err), MR_ERR_USAGE);
    ck_assert_uint_lt(strlen(err.text), sizeof err.text);
    ck_assert_ptr_nonnull(strstr(err.text, "arithmetic 'xxx"));
}
END_TEST

Suite *suite_arith(void);
Suite *suite_arith(void)
{
    Suite *s = suite_create("arith");
    TCase *c = tcase_create("lines");
    tcase_add_test(c, verify_all_lines_come_back);
    tcase_add_test(c, verify_print_keeps_to_its_buffer);
    tcase_add_test(c, reject_malformed_lines);
    tcase_add_test(c, reject_neighbours_of_a_line);
    tcase_add_test(c, reject_long_line);
    suite_add_tcase(s, c);
    return s;
}
