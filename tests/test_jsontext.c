/* UTF-8 in text that comes from a file, and the part of a name that a message shows. */
#include <check.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/io/jsontext.h"

Suite *suite_jsontext(void);

START_TEST(reject_utf8)
{
    /* Unicode 15.0, section 3.9: overlong forms, surrogates, beyond U+10FFFF, cut short. */
    static const char *const bad[] = {
        "\x80",
        "\xbf",
        "\xff",
        "\xfe",
        "\xc0\xaf",
        "\xc1\xbf",
        "\xe0\x9f\xbf",
        "\xed\xa0\x80",
        "\xed\xbf\xbf",
        "\xf0\x8f\xbf\xbf",
        "\xf4\x90\x80\x80",
        "\xf5\x80\x80\x80",
        "\xc3",
        "\xc3\x28",
        "\xe4\xb8",
        "\xe4\xb8\x41",
        "\xf0\x9f\x98",
        "\xf0\x9f\x98\x41",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[16] = "\xc3\xa9z"; /* three good bytes before it */
        strcat(text, bad[i]);
        ck_assert_msg(mr_utf8_invalid(text, strlen(text)) == 3, "row %zu", i);
    }
    static const char *const good[] = {"",
                                       "\x7f",
                                       "\xc2\x80",
                                       "\xdf\xbf",
                                       "\xe0\xa0\x80",
                                       "\xed\x9f\xbf",
                                       "\xee\x80\x80",
                                       "\xef\xbf\xbf",
                                       "\xf0\x90\x80\x80",
                                       "\xf4\x8f\xbf\xbf"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        ck_assert_uint_eq(mr_utf8_invalid(good[i], strlen(good[i])), strlen(good[i]));
    ck_assert_uint_eq(mr_utf8_invalid("a\0b", 3), 3);
}
END_TEST

/* Of all strings of n bytes, as many must pass as counting characters by their length gives: 128 of
 * one byte, 1920 of two, 65536 - 2048 - 2048 of three (no surrogates), 2^20 of four. */
START_TEST(corroborate_utf8_by_counting)
{
    uint64_t c1 = 128, c2 = 1920, c3 = 61440, c4 = 1 << 20;
    uint64_t wanted[] = {1, c1, c1 * c1 + c2, c1 * c1 * c1 + 2 * c1 * c2 + c3,
                         c1 * c1 * c1 * c1 + 3 * c1 * c1 * c2 + c2 * c2 + 2 * c1 * c3 + c4};
    for (unsigned n = 1; n <= (getenv("MOEREF_LONG") ? 4 : 3); n++) {
        uint64_t passed = 0;
        for (uint64_t i = 0; i < 1ull << 8 * n; i++) {
            unsigned char text[4] = {(unsigned char)i, (unsigned char)(i >> 8),
                                     (unsigned char)(i >> 16), (unsigned char)(i >> 24)};
            passed += mr_utf8_invalid(text, n) == n;
        }
        ck_assert_uint_eq(passed, wanted[n]);
    }
}
END_TEST

START_TEST(verify_shown_cuts_between_characters)
{
    char name[200];
    memset(name, 'a', sizeof name);
    name[95] = 0;
    ck_assert_int_eq(mr_shown(name), 95);
    name[95] = 'a';
    name[96] = 0;
    ck_assert_int_eq(mr_shown(name), 96);
    name[96] = 'a';
    name[199] = 0;
    ck_assert_int_eq(mr_shown(name), 96);
    memcpy(name + 94, "\xe4\xb8\xad", 3);
    ck_assert_int_eq(mr_shown(name), 94);
    memset(name, 0x80, sizeof name - 1); /* not UTF-8 at all */
    ck_assert_int_eq(mr_shown(name), 0);
}
END_TEST

Suite *suite_jsontext(void)
{
    Suite *s = suite_create("jsontext");
    TCase *c = tcase_create("utf8");
    tcase_set_timeout(c, 300); /* the long count under a sanitizer */
    tcase_add_test(c, reject_utf8);
    tcase_add_test(c, corroborate_utf8_by_counting);
    tcase_add_test(c, verify_shown_cuts_between_characters);
    suite_add_tcase(s, c);
    return s;
}
