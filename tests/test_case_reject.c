/* Every way in which a case file can be wrong: the status, and what the message must name. */
#include <check.h>
#include <string.h>

#include "support/case_folder.h"

Suite *suite_case_reject(void);

struct refusal {
    const char *text;
    enum mr_status status;
    const char *words[3];
};

static const struct refusal refusals[] = {
    {"", MR_ERR_FORMAT, {"case.json"}},
    {"[1]", MR_ERR_FORMAT, {"object", "array"}},
    {"{'moeref_case':NaN}", MR_ERR_FORMAT, {"case.json"}},
    {"{'name':'n'}", MR_ERR_MISSING, {"moeref_case"}},
    {"{'moeref_case':2,'new':1}", MR_ERR_UNSUPPORTED, {"moeref_case", "2"}},
    {"{'moeref_case':1.0}", MR_ERR_FORMAT, {"moeref_case", "1.0"}},
    {"{" HIDDEN ",'moeref_case':1}", MR_ERR_FORMAT, {"twice"}},
    {"{" HIDDEN ",'captures':[]}", MR_ERR_FORMAT, {"\"captures\"", "unknown"}},
    {"{'moeref_case':1,'input':'hidden'}", MR_ERR_MISSING, {"\"name\""}},
    {"{'moeref_case':1,'name':''}", MR_ERR_FORMAT, {"\"name\""}},
    {"{" HIDDEN ",'about':1}", MR_ERR_FORMAT, {"\"about\""}},
    {"{" HIDDEN ",'arith':['fp32']}", MR_ERR_FORMAT, {"\"arith\"", "array"}},
    {"{" HIDDEN ",'profile':true}", MR_ERR_FORMAT, {"\"profile\""}},
    {"{" HIDDEN ",'expect':[]}", MR_ERR_FORMAT, {"\"expect\""}},
    {"{" HEAD FILES "}", MR_ERR_MISSING, {"\"input\""}},
    {"{" HEAD "'input':'tokens'," FILES "}", MR_ERR_VALUE, {"\"input\"", "tokens"}},
    {"{" HEAD "'input':'hidden'," FILES ",'phases':'a'}", MR_ERR_FORMAT, {"\"phases\""}},
    {"{" HEAD "'input':'hidden'," FILES ",'phases':[]}", MR_ERR_VALUE, {"\"phases\""}},
    {"{" HEAD "'input':'hidden'," FILES ",'phases':['a',1]}", MR_ERR_FORMAT, {"\"phases\""}},
    {"{" HEAD "'input':'hidden'," FILES ",'phases':['a','a']}", MR_ERR_VALUE, {"twice"}},
    {"{" HEAD "'input':'hidden'," FILES "}", MR_ERR_MISSING, {"all.model.layers.1.mlp.gate.input"}},
    {"{" HEAD "'input':'hidden','config':'none.json','checkpoint':['router.st'],"
     "'capture':['capture.st']}", MR_ERR_IO, {"/none.json"}},
    {"{" HEAD "'input':'hidden','config':7,'checkpoint':['router.st'],'capture':['capture.st']}",
     MR_ERR_FORMAT, {"\"config\""}},
    {"{" HEAD "'input':'hidden','config':'glm.json','capture':['capture.st']}", MR_ERR_MISSING,
     {"\"checkpoint\""}},
    {"{" HEAD "'input':'hidden','config':'glm.json','checkpoint':['router.st']}", MR_ERR_MISSING,
     {"\"capture\""}},
    {"{" HEAD "'input':'logits','config':'glm.json'}", MR_ERR_MISSING, {"\"capture\""}},
    {"{" HEAD "'input':'hidden','config':'glm.json','checkpoint':'router.st',"
     "'capture':['capture.st']}", MR_ERR_FORMAT, {"\"checkpoint\"", "array"}},
    {"{" HEAD "'input':'hidden','config':'glm.json','checkpoint':[],'capture':['capture.st']}",
     MR_ERR_VALUE, {"\"checkpoint\""}},
    {"{" HEAD "'input':'hidden','config':'glm.json','checkpoint':[1],'capture':['capture.st']}",
     MR_ERR_FORMAT, {"\"checkpoint\""}},
    {"{" HEAD "'input':'hidden','config':'glm.json','checkpoint':['none.st'],"
     "'capture':['capture.st']}", MR_ERR_IO, {"/none.st"}},
    {"{" HIDDEN ",'names':{'hidden':1}}", MR_ERR_FORMAT, {"hidden"}},
    {"{" HIDDEN ",'names':{'weight':'x'}}", MR_ERR_FORMAT, {"names.weight"}},
    {"{" HIDDEN ",'layers':[]}", MR_ERR_FORMAT, {"\"layers\""}},
    {"{" HIDDEN ",'layers':1}", MR_ERR_FORMAT, {"\"layers\""}},
    {"{" HIDDEN ",'layers':[1.5]}", MR_ERR_FORMAT, {"\"layers\""}},
    {"{" HIDDEN ",'layers':[-1]}", MR_ERR_VALUE, {"\"layers\""}},
    {"{" HIDDEN ",'layers':[1,2,1]}", MR_ERR_VALUE, {"layer 1 twice"}},
    {"{" HIDDEN ",'layers':[1,3]}", MR_ERR_MISSING, {"a.model.layers.3.mlp.gate.input"}},
    {"{" HIDDEN ",'router':[]}", MR_ERR_FORMAT, {"\"router\""}},
    {"{" HIDDEN ",'router':{'topk':2}}", MR_ERR_FORMAT, {"router.topk"}},
    {"{" HIDDEN ",'router':{'top_k':'2'}}", MR_ERR_FORMAT, {"router.top_k"}},
    {"{" HIDDEN ",'router':{'top_k':5}}", MR_ERR_VALUE, {"top_k", "5"}},
    {"{" HIDDEN ",'router':{'n_group':3}}", MR_ERR_VALUE, {"n_group", "3"}},
    {"{" HIDDEN ",'router':{'topk_group':2}}", MR_ERR_VALUE, {"topk_group", "2"}},
    {"{" HIDDEN ",'router':{'score':'tanh'}}", MR_ERR_UNSUPPORTED, {"router.score", "tanh"}},
    {"{" HIDDEN ",'router':{'bias':1}}", MR_ERR_FORMAT, {"router.bias"}},
    {"{" HIDDEN ",'router':{'hidden':0}}", MR_ERR_VALUE, {"router.hidden"}},
    {"{" HEAD "'input':'logits','capture':['capture.st']}", MR_ERR_MISSING, {"\"router\""}},
    {INLINE("'experts':4,'top_k':2,'score':'sigmoid','n_group':1,'topk_group':1,"
            "'norm_topk_prob':true,'routed_scaling_factor':1", "{'0':{'logits':[]}}"),
     MR_ERR_MISSING, {"router.bias"}},
    {INLINE("'experts':4,'top_k':2,'score':'sigmoid','bias':false,'topk_group':1,"
            "'norm_topk_prob':true,'routed_scaling_factor':1", "{'0':{'logits':[]}}"),
     MR_ERR_MISSING, {"router.n_group"}},
    {"{" HEAD "'input':'hidden','router':{" NO_BIAS "},'checkpoint':['router.st'],"
     "'capture':['capture.st']}", MR_ERR_MISSING, {"router.hidden"}},
    {INLINE(NO_BIAS, "[]"), MR_ERR_FORMAT, {"\"inline\"", "object"}},
    {INLINE(NO_BIAS, "{}"), MR_ERR_MISSING, {"\"inline\""}},
    {INLINE(NO_BIAS, "{'x':{'logits':[]}}"), MR_ERR_FORMAT, {"\"x\""}},
    {INLINE(NO_BIAS, "{'01':{'logits':[]}}"), MR_ERR_FORMAT, {"\"01\""}},
    {INLINE(NO_BIAS, "{'0':[]}"), MR_ERR_FORMAT, {"layer 0"}},
    {INLINE(NO_BIAS, "{'0':{}}"), MR_ERR_MISSING, {"layer 0", "logits"}},
    {INLINE(NO_BIAS, "{'0':{'logits':[],'hidden':[]}}"), MR_ERR_FORMAT, {"inline.hidden"}},
    {INLINE(NO_BIAS, "{'0':{'logits':[[1,2,3]]}}"), MR_ERR_SHAPE, {"layer 0", "4", "of 3"}},
    {INLINE(NO_BIAS, "{'0':{'logits':[[1,2,3,4],5]}}"), MR_ERR_SHAPE, {"layer 0", "5"}},
    {INLINE(NO_BIAS, "{'0':{'logits':[[1,2,'3',4]]}}"), MR_ERR_FORMAT, {"layer 0", "\"3\""}},
    {INLINE(NO_BIAS, "{'0':{'logits':[[1,2,3,1e39]]}}"), MR_ERR_VALUE, {"1e+39", "fp32"}},
    {INLINE(NO_BIAS, "{'0':{'logits':[],'bias':[1,2,3,4]}}"), MR_ERR_VALUE, {"bias", "none"}},
    {INLINE(WITH_BIAS, "{'0':{'logits':[],'bias':[1,2]}}"), MR_ERR_SHAPE, {"bias", "of 2"}},
    {"{" HEAD "'input':'hidden','router':{" NO_BIAS ",'hidden':8},'inline':{'0':{'logits':[]}}}",
     MR_ERR_VALUE, {"\"inline\"", "logits"}},
    {"{" HEAD "'input':'logits','router':{" NO_BIAS "},'phases':['a','b'],"
     "'inline':{'0':{'logits':[]}}}", MR_ERR_VALUE, {"\"inline\"", "one phase"}},
    {"{" HEAD "'input':'logits','router':{" NO_BIAS "},'layers':[1],'inline':{'0':{'logits':[]}}}",
     MR_ERR_MISSING, {"layer 1", "\"inline\""}},
    {"{" HEAD "'input':'hidden','config':'glm.json','generate':[]}", MR_ERR_FORMAT,
     {"\"generate\"", "object"}},
    {"{" HEAD "'input':'hidden','config':'glm.json','generate':{'class':'none'}}", MR_ERR_VALUE,
     {"class", "none"}},
    {"{" GENERATE "},'phases':['p'],'layers':[0]}", MR_ERR_FORMAT, {"\"layers\"", "generate"}},
    {"{" GENERATE ",'layers':[1,1]},'phases':['p']}", MR_ERR_VALUE, {"layer 1", "twice"}},
    {"{" GENERATE "},'phases':['p'],'checkpoint':['router.st']}", MR_ERR_VALUE,
     {"\"generate\"", "\"checkpoint\""}},
    {"{" GENERATE "},'phases':['p'],'inline':{'0':{'logits':[]}}}", MR_ERR_VALUE,
     {"\"generate\"", "\"inline\""}},
    {"{" HEAD "'input':'logits','config':'glm.json','generate':{'class':'normal',"
     "'tokens':{'all':1}}}", MR_ERR_VALUE, {"\"generate\"", "logits"}},
};

START_TEST(reject_cases)
{
    struct mr_case *c;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++)
        ck_words(case_parse(refusals[i].text, NULL, &c), refusals[i].status, refusals[i].words,
                 refusals[i].text);
}
END_TEST

/* Tensors that do not fit the router or each other: router.st and capture.st with one more line. */
static const struct {
    const char *router, *capture;
    enum mr_status status;
    const char *words[3];
} misfits[] = {
    {GATE("1") " BF16 4 8;" BIAS("1") " F32 4 0;", MLP("a", "1") "gate.input BF16 3 9;",
     MR_ERR_SHAPE, {"gate.input", "[tokens, 8]", "[3, 9]"}},
    {GATE("1") " BF16 4 8;" BIAS("1") " F32 4 0;", MLP("a", "1") "gate.input BF16 24 0;",
     MR_ERR_SHAPE, {"gate.input", "[tokens, 8]", "[24]"}},
    {GATE("1") " BF16 4 8;" BIAS("1") " F32 4 0;", MLP("a", "1") "gate.input I32 3 8;",
     MR_ERR_DTYPE, {"gate.input", "BF16 F16 F32", "I32"}},
    {GATE("1") " BF16 8 4;" BIAS("1") " F32 4 0;", MLP("a", "1") "gate.input BF16 3 8;",
     MR_ERR_SHAPE, {"gate.weight", "[4, 8]", "[8, 4]"}},
    {GATE("1") " F8_E4M3 4 8;" BIAS("1") " F32 4 0;", MLP("a", "1") "gate.input BF16 3 8;",
     MR_ERR_DTYPE, {"gate.weight", "F8_E4M3"}},
    {GATE("2") " BF16 4 8;" BIAS("1") " F32 4 0;", MLP("a", "1") "gate.input BF16 3 8;",
     MR_ERR_MISSING, {"model.layers.1.mlp.gate.weight", "router.st"}},
    {GATE("1") " BF16 4 8;", MLP("a", "1") "gate.input BF16 3 8;", MR_ERR_MISSING,
     {"e_score_correction_bias"}},
    {GATE("1") " BF16 4 8;" BIAS("1") " F32 5 0;", MLP("a", "1") "gate.input BF16 3 8;",
     MR_ERR_SHAPE, {"correction_bias", "[4]", "[5]"}},
    {GATE("1") " BF16 4 8;" BIAS("1") " F32 3 0;", MLP("a", "1") "gate.input BF16 3 8;",
     MR_ERR_SHAPE, {"correction_bias", "[4]", "[3]"}},
    {GATE("1") " BF16 4 8;" BIAS("1") " F64 4 0;", MLP("a", "1") "gate.input BF16 3 8;",
     MR_ERR_DTYPE, {"correction_bias", "F64"}},
    {GATE("1") " BF16 4 8;" BIAS("1") " F32 4 0;",
     MLP("a", "1") "gate.input BF16 3 8;" MLP("a", "1") "gate.logits F32 4 4;", MR_ERR_SHAPE,
     {"gate.logits", "[at most 3, 4]", "[4, 4]"}},
    {GATE("1") " BF16 4 8;" BIAS("1") " F32 4 0;",
     MLP("a", "1") "gate.input BF16 3 8;" MLP("a", "1") "topk_ids I32 3 3;", MR_ERR_SHAPE,
     {"topk_ids", "[at most 3, 2]", "[3, 3]"}},
    {GATE("1") " BF16 4 8;" BIAS("1") " F32 4 0;",
     MLP("a", "1") "gate.input BF16 3 8;" MLP("a", "1") "topk_ids F32 3 2;", MR_ERR_DTYPE,
     {"topk_ids", "I32", "F32"}},
    {GATE("1") " BF16 4 8;" BIAS("1") " F32 4 0;",
     MLP("a", "1") "gate.input BF16 3 8;" MLP("a", "1") "topk_weights I32 3 2;", MR_ERR_DTYPE,
     {"topk_weights", "I32"}},
};

START_TEST(reject_misfits)
{
    for (size_t i = 0; i < sizeof misfits / sizeof *misfits; i++) {
        struct mr_case *c;
        struct mr_case_layer t;
        folder_put_tensors("router.st", misfits[i].router);
        folder_put_tensors("capture.st", misfits[i].capture);
        ck_assert_msg(case_parse("{" HIDDEN "}", NULL, &c) == MR_OK, "%s", case_err.text);
        ck_words(mr_case_get(c, 1, "a", &t, &case_err), misfits[i].status, misfits[i].words,
                 misfits[i].capture);
        mr_case_free(c);
    }
}
END_TEST

START_TEST(reject_bias_without_a_name)
{
    struct mr_case *c;
    struct mr_case_layer t;
    ck_assert_int_eq(case_parse("{" HEAD "'input':'hidden','config':'mixtral.json','checkpoint':"
                                "['mixtral.st'],'capture':['capture.st'],'phases':['a'],"
                           "'router':{'bias':true}}", NULL, &c), MR_OK);
    ck_words(mr_case_get(c, 0, "a", &t, &case_err), MR_ERR_MISSING,
             (const char *const[3]){"bias", "mixtral", "\"names\""}, "");
    mr_case_free(c);
    ck_assert_int_eq(case_parse(INLINE(WITH_BIAS, "{'0':{'logits':[[1,2,3,4]]}}"), NULL, &c),
                     MR_OK);
    ck_words(mr_case_get(c, 0, "all", &t, &case_err), MR_ERR_MISSING,
             (const char *const[3]){"e_score_correction_bias", "\"checkpoint\""}, "");
    mr_case_free(c);
    ck_assert_int_eq(case_parse("{" GENERATE "}}", NULL, &c), MR_OK);
    ck_words(mr_case_get(c, 0, "all", &t, &case_err), MR_ERR_MISSING,
             (const char *const[3]){"\"all\"", "tokens"}, "");
    mr_case_free(c);
}
END_TEST

Suite *suite_case_reject(void)
{
    Suite *suite = suite_create("case_reject");
    TCase *tc = tcase_create("case_reject");
    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, folder_start, folder_stop);
    tcase_add_test(tc, reject_cases);
    tcase_add_test(tc, reject_misfits);
    tcase_add_test(tc, reject_bias_without_a_name);
    suite_add_tcase(suite, tc);
    return suite;
}
