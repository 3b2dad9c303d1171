/* Do a kernel's logits equal those of the arithmetic that it declares, bit for bit? */
#ifndef MOEREF_GPU_REPLAY_HOOK_H
#define MOEREF_GPU_REPLAY_HOOK_H

#include "../ref/moeref.h"

struct gpu_replay_count {
    uint64_t checked, equal; /* logits; a NaN equals any NaN, -0 and +0 differ */
};

/* Replayed logits of one layer, made for each line when first asked for. The layer outlives it. */
struct gpu_replays;
enum mr_status gpu_replays_new(const struct mr_layer *layer, int threads,
                               struct gpu_replays **out);
void gpu_replays_free(struct gpu_replays *r); /* NULL is allowed */

/* Adds to out. *applies: false where the line declares no sum, or there are no logits or no hidden
 * states. What mr_replay_new refuses (operands that the declared instruction cannot have) is
 * reported. */
enum mr_status gpu_replays_check(struct gpu_replays *r, const char *line,
                                 const struct mr_observed *observed, bool *applies,
                                 struct gpu_replay_count *out, struct mr_error *err);

#endif
