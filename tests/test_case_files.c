/* Cases of plain files: --config F --gate F[:TENSOR] and so on. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "support/case_folder.h"

Suite *suite_case_files(void);

static enum mr_status plain(struct mr_case_files files, struct mr_case **c)
{
    case_err.text[0] = '\0';
    if (!files.config) files.config = folder_at("glm.json");
    return mr_case_from_files(&files, c, &case_err);
}

static const char *spec(const char *file, const char *tensor)
{
    static char text[32][512];
    static unsigned turn;
    turn++;
    snprintf(text[turn % 32], sizeof text[0], "%s:%s", folder_at(file), tensor);
    return text[turn % 32];
}

START_TEST(validate_plain_files)
{
    struct mr_case *c;
    struct mr_case_layer t;
    /* A shard as it is: the layer says which, the bias lies beside the gate. */
    ck_assert_msg(plain((struct mr_case_files){.gate = folder_at("router.st"), .layer = 2,
                        .hidden = folder_at("capture.st")}, &c) == MR_OK, "%s", case_err.text);
    ck_assert_int_eq(mr_case_layer_number(c, 0), 2);
    case_get(c, 2, "all", &t);
    ck_shape(t.hidden, MR_F32, 3, 8);
    ck_shape(t.gate, MR_F16, 4, 8);
    ck_shape(t.bias, MR_BF16, 4, 0);
    ck_assert_str_eq(mr_case_name(c), "capture.st");
    mr_case_free(c);
    /* Named tensors; the gate's name says the layer for the bias. */
    ck_assert_msg(plain((struct mr_case_files){.gate = spec("router.st", GATE("3")), .layer = -1,
                        .hidden = spec("capture.st", MLP("a", "1") "gate.input")}, &c) == MR_OK,
                  "%s", case_err.text);
    case_get(c, 3, "all", &t);
    ck_shape(t.gate, MR_BF16, 4, 8);
    ck_shape(t.bias, MR_F16, 4, 0);
    mr_case_free(c);
    /* The only tensor of a file whose name holds a colon; observed ids; logits need no gate. */
    folder_put_tensors("x:y", "lonely F32 5 4;");
    folder_put_tensors("ids.st", "ids I32 5 2;");
    ck_assert_msg(plain((struct mr_case_files){.logits = folder_at("x:y"), .layer = -1,
                        .ids = folder_at("ids.st"), .bias = spec("router.st", BIAS("1"))}, &c) ==
                  MR_OK, "%s", case_err.text);
    ck_assert(mr_case_from_logits(c));
    case_get(c, mr_case_layer_number(c, 0), "all", &t);
    ck_shape(t.logits, MR_F32, 5, 4);
    ck_shape(t.topk_ids, MR_I32, 5, 2);
    ck_shape(t.bias, MR_F32, 4, 0);
    mr_case_free(c);
    ck_assert_msg(plain((struct mr_case_files){.logits = spec("x:y", "lonely"), .layer = -1,
                        .bias = spec("router.st", BIAS("1"))}, &c) == MR_OK, "%s", case_err.text);
    mr_case_free(c);
}
END_TEST

START_TEST(reject_plain_files)
{
    struct mr_case *c;
    const struct {
        struct mr_case_files files;
        enum mr_status status;
        const char *words[3];
    } bad[] = {
        {{.gate = folder_at("router.st"), .layer = -1}, MR_ERR_USAGE, {"--hidden", "neither"}},
        {{.hidden = "a", .logits = "b", .gate = "c", .layer = -1}, MR_ERR_USAGE, {"both"}},
        {{.hidden = folder_at("capture.st"), .layer = -1}, MR_ERR_USAGE, {"--gate"}},
        {{.config = folder_at("mixtral.json"), .logits = folder_at("capture.st"),
          .bias = folder_at("router.st"), .layer = -1}, MR_ERR_USAGE, {"--bias", "mixtral"}},
        {{.gate = folder_at("none.st"), .hidden = folder_at("capture.st"), .layer = -1}, MR_ERR_IO,
         {"--gate", "none.st"}},
        {{.gate = spec("none.st", "x"), .hidden = folder_at("capture.st"), .layer = -1}, MR_ERR_IO,
         {"--gate", "neither", "none.st:x"}},
        {{.gate = spec("router.st", "x"), .hidden = folder_at("capture.st"), .layer = -1},
         MR_ERR_MISSING, {"x", "router.st"}},
        {{.gate = folder_at("router.st"), .hidden = folder_at("capture.st"), .layer = -1},
         MR_ERR_MISSING, {"which of 3", GATE("1") ", " GATE("2") ", " GATE("3"), "--gate"}},
        {{.gate = folder_at("router.st"), .hidden = folder_at("capture.st"), .layer = 4},
         MR_ERR_MISSING, {"which of 6", GATE("1")}},
        {{.logits = folder_at("capture.st"), .layer = 1}, MR_ERR_MISSING, {"--bias", "glm4_moe"}},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_words(plain(bad[i].files, &c), bad[i].status, bad[i].words, "plain");
    struct mr_case_files none = {.hidden = "a", .gate = "b", .layer = -1};
    ck_words(mr_case_from_files(&none, &c, &case_err), MR_ERR_USAGE,
             (const char *const[3]){"--config"}, "plain");
    struct mr_case_layer t;
    ck_assert_int_eq(plain((struct mr_case_files){.gate = folder_at("router.st"), .layer = 1,
                           .hidden = spec("router.st", BIAS("1"))}, &c), MR_OK);
    ck_words(mr_case_get(c, 1, "all", &t, &case_err), MR_ERR_SHAPE,
             (const char *const[3]){"router.st", "[tokens, 8]", "[4]"}, "plain");
    mr_case_free(c);
}
END_TEST

Suite *suite_case_files(void)
{
    Suite *suite = suite_create("case_files");
    TCase *tc = tcase_create("case_files");
    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, folder_start, folder_stop);
    tcase_add_test(tc, validate_plain_files);
    tcase_add_test(tc, reject_plain_files);
    suite_add_tcase(suite, tc);
    return suite;
}
