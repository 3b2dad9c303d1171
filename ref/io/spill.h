/* A pile of non-negative doubles with exact quantiles, in bounded memory: beyond a megabyte or so of
 * them it continues in an unlinked temporary file (TMPDIR, else /tmp). Not thread safe. */
#ifndef MOEREF_SPILL_H
#define MOEREF_SPILL_H

#include <stddef.h>
#include <stdint.h>

#include "../status.h"

struct mr_spill;

enum mr_status mr_spill_new(struct mr_spill **out, struct mr_error *err);
void mr_spill_free(struct mr_spill *s);
/* values >= 0 (+Inf allowed, NaN not). */
enum mr_status mr_spill_add(struct mr_spill *s, const double *values, size_t n,
                            struct mr_error *err);
uint64_t mr_spill_count(const struct mr_spill *s);
/* Forgets all beyond the first count. */
enum mr_status mr_spill_truncate(struct mr_spill *s, uint64_t count, struct mr_error *err);
/* out[i] = the ceil(q[i] * count)-th smallest (nearest rank: always one of the values; q = 0 is the
 * smallest); NaN if there is none. At most 16 quantiles. */
enum mr_status mr_spill_quantiles(struct mr_spill *s, const double *q, size_t n, double *out,
                                  struct mr_error *err);

#endif
