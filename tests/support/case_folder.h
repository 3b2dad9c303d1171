/* A small case in a folder of its own, for the tests of cases: files written from the format's
 * description, case texts with ' for ". */
#ifndef TESTS_CASE_FOLDER_H
#define TESTS_CASE_FOLDER_H

#include "../../ref/io/case.h"

extern struct mr_error case_err;

/* Fixture: glm.json and mixtral.json (4 experts, top 2, hidden 8, 5 layers), router.st with layers
 * 1 to 3, capture.st with phase a of layers 0 to 2 and an empty b of layer 1, mixtral.st. */
void folder_start(void);
void folder_stop(void);
const char *folder_at(const char *name); /* its path; 32 stay valid at a time */
/* "name dtype rows cols; ..." with zeros as data; cols 0: one dimension. */
void folder_put_tensors(const char *file, const char *list);

/* Loads or gets what must be right. */
void case_load(const char *path, struct mr_case **c);
void case_get(struct mr_case *c, int layer, const char *phase, struct mr_case_layer *out);
/* A case in the folder; checks that *c and the message go with the status. */
enum mr_status case_parse(const char *text, const struct mr_case_options *options,
                          struct mr_case **c);
/* The status, and every word (up to three, NULL after the last) in the message. */
void ck_words(enum mr_status status, enum mr_status wanted, const char *const words[3],
              const char *text);

#define ck_shape(t, type, rows, cols)                      \
    do {                                                   \
        ck_assert_ptr_nonnull((t).data);                   \
        ck_assert_int_eq((t).dtype, (type));               \
        ck_assert_int_eq((t).ndim, (cols) ? 2 : 1);        \
        ck_assert_uint_eq((t).shape[0], (rows));           \
        if (cols) ck_assert_uint_eq((t).shape[1], (cols)); \
    } while (0)

#define GATE(n) "model.layers." n ".mlp.gate.weight"
#define BIAS(n) "model.layers." n ".mlp.gate.e_score_correction_bias"
#define MLP(phase, n) phase ".model.layers." n ".mlp."

#define HEAD "'moeref_case':1,'name':'n',"
#define FILES "'config':'glm.json','checkpoint':['router.st'],'capture':['capture.st']"
#define HIDDEN HEAD "'input':'hidden'," FILES ",'phases':['a','b']"

#define ROUTER4 "'experts':4,'top_k':2,'score':'sigmoid','n_group':1,'topk_group':1," \
                "'norm_topk_prob':true,'routed_scaling_factor':1.5"
#define GENERATE HEAD "'input':'hidden','router':{" ROUTER4 ",'bias':true,'hidden':64}," \
                 "'generate':{'class':'normal','tokens':{'p':5,'q':0}"

#define INLINE(router, inlined) \
    "{" HEAD "'input':'logits','router':{" router "},'inline':" inlined "}"
#define NO_BIAS ROUTER4 ",'bias':false"
#define WITH_BIAS ROUTER4 ",'bias':true"


#endif
