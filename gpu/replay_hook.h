/* Do a kernel's logits equal those of the arithmetic that it declares, bit for bit? */
#ifndef MOEREF_GPU_REPLAY_HOOK_H
#define MOEREF_GPU_REPLAY_HOOK_H

#include "../ref/moeref.h"

struct gpu_replay_count {
    uint64_t checked, equal; /* logits */
};

/* line: the kernel's arithmetic. layer: hidden states and gate as the kernel had them. Adds to out.
 * *applies: false where the line declares no sum, or observed holds no logits. */
enum mr_status gpu_replay_logits(const char *line, const struct mr_layer *layer,
                                 const struct mr_observed *observed, bool *applies,
                                 struct gpu_replay_count *out, struct mr_error *err);

#endif
