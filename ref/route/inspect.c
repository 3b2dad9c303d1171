#include "inspect.h"

#include "score.h"
#include "weights.h"

/* What certification would say of the filter here, it has said of this token already. */
static enum mr_status refine(const struct mr_inspection *t, int count)
{
    struct mr_certifier *c = t->certifier;
    struct mr_routed ignored = {0};
    enum mr_status status = mr_certify_keys(c, t->of, count, &ignored);
    for (int i = 0; i < count; i++) c->order[i] = i;
    return status;
}

enum mr_status mr_inspect_keys(const struct mr_inspection *t, const int *experts, int count)
{
    for (int i = 0; i < count; i++) t->certifier->order[i] = experts[i];
    return refine(t, count);
}

enum mr_status mr_inspect_weights(const struct mr_inspection *t, const int *experts,
                                  double *weights)
{
    const struct mr_router *r = t->of->router;
    struct mr_certifier *c = t->certifier;
    int count = r->top_k;
    for (int i = 0; i < count; i++) c->order[i] = experts[i];
    /* All other experts behind those asked for: the exact denominator. */
    for (int e = 0; mr_needs_every_logit(r) && e < c->experts; e++) {
        bool asked = false;
        for (int i = 0; i < r->top_k; i++) asked |= experts[i] == e;
        if (!asked) c->order[count++] = e;
    }
    enum mr_status status = refine(t, count);
    return status ? status : mr_weights(c, t->of, weights);
}
