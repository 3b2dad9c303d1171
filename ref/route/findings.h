/* The worst judgements of a run, bounded in number and the same whatever the number of threads. */
#ifndef MOEREF_FINDINGS_H
#define MOEREF_FINDINGS_H

#include "verdict.h"

struct mr_finding {
    size_t order;      /* which layer of which phase, as routed: ties are broken by it */
    int layer;
    const char *phase;
    size_t source, row, token;
    enum mr_certificate certificate;
    double gap;
    struct mr_judgement judgement;
    size_t slot; /* of expected and observed */
};

/* The `most` worst of all that were added, unordered until sorted. */
struct mr_findings {
    size_t most, count;
    int top_k;
    struct mr_finding *item; /* [2 most] */
    int32_t *expected;       /* [2 most, top_k] certified ids; -1 where nothing is known */
    int64_t *observed;       /* [2 most, top_k]; -1 for a claim of logits */
};
enum mr_status mr_findings_new(size_t most, int top_k, struct mr_findings *out);
void mr_findings_free(struct mr_findings *f);

/* expected and observed: [top_k], NULL for -1s. */
void mr_findings_add(struct mr_findings *f, const struct mr_finding *finding,
                     const int32_t *expected, const int64_t *observed);
void mr_findings_merge(struct mr_findings *to, const struct mr_findings *from);
void mr_findings_sort(struct mr_findings *f); /* worst first, at most `most` */

static inline const int32_t *mr_finding_expected(const struct mr_findings *f, size_t i)
{
    return f->expected + f->item[i].slot * (size_t)f->top_k;
}

static inline const int64_t *mr_finding_observed(const struct mr_findings *f, size_t i)
{
    return f->observed + f->item[i].slot * (size_t)f->top_k;
}

#endif
