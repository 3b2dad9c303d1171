/* The judge in this process, on arrays: logits as given, one claim a token. */
#ifndef TESTS_JUDGED_H
#define TESTS_JUDGED_H

#include "../../ref/route/verify.h"

struct judged_input {
    const struct mr_router *router;
    size_t tokens;
    const float *logits; /* [tokens, experts]; NULL: from hidden states */
    const float *hidden, *gate; /* [tokens, hidden], [experts, hidden] */
    const float *bias;   /* [experts] or NULL */
    const struct mr_arith *arith; /* declared, or NULL */
    bool ordered;
    const int32_t *ids;    /* [tokens, top_k] */
    const float *weights;  /* or NULL */
};

struct judged {
    uint64_t verdicts[MR_VERDICT_COUNT], certified[MR_CERT_COUNT];
    enum mr_verdict worst; /* MR_EXACT if there is no token */
    size_t token;          /* that has it */
    struct mr_judgement why;
};

enum mr_status judged(const struct judged_input *in, struct judged *out, struct mr_error *err);

#endif
