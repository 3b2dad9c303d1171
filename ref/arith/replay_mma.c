#include "replay_private.h"

enum mr_status mr_replay_mma_new(struct mr_replay *r, struct mr_error *err)
{
    (void)r;
    return mr_fail(err, MR_ERR_UNSUPPORTED, "replay: instructions are not here yet");
}
enum mr_status mr_replay_mma_rows(const struct mr_replay *r, size_t row, size_t rows, float *out,
                                  struct mr_error *err)
{
    (void)r, (void)row, (void)rows, (void)out;
    return mr_fail(err, MR_ERR_UNSUPPORTED, "replay: instructions are not here yet");
}
void mr_replay_mma_free(struct mr_replay_mma *mma) { (void)mma; }
