#include "spill.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HELD = 1 << 17, MOST = 16, DIGITS = 1 << 16 };

struct mr_spill {
    FILE *file;       /* the first `filed` values; NULL until there are any */
    uint64_t filed;
    size_t held;      /* values in memory, after those of the file */
    double value[HELD];
};

enum mr_status mr_spill_new(struct mr_spill **out, struct mr_error *err)
{
    *out = calloc(1, sizeof **out);
    return *out ? MR_OK : mr_fail(err, MR_ERR_MEMORY, "no memory for quantiles");
}

void mr_spill_free(struct mr_spill *s)
{
    if (s && s->file) fclose(s->file);
    free(s);
}

uint64_t mr_spill_count(const struct mr_spill *s)
{
    return s->filed + s->held;
}

static enum mr_status file_error(struct mr_error *err, const char *what)
{
    return mr_fail(err, MR_ERR_IO, "temporary file for quantiles: cannot %s: %s", what,
                   strerror(errno));
}

static enum mr_status flush_held(struct mr_spill *s, struct mr_error *err)
{
    if (!s->file && !(s->file = tmpfile())) return file_error(err, "create");
    if (fseeko(s->file, (off_t)(s->filed * sizeof(double)), SEEK_SET) ||
        fwrite(s->value, sizeof(double), s->held, s->file) != s->held || fflush(s->file))
        return file_error(err, "write");
    s->filed += s->held;
    s->held = 0;
    return MR_OK;
}

enum mr_status mr_spill_add(struct mr_spill *s, const double *values, size_t n,
                            struct mr_error *err)
{
    while (n) {
        if (s->held == HELD) {
            enum mr_status status = flush_held(s, err);
            if (status) return status;
        }
        size_t take = HELD - s->held < n ? HELD - s->held : n;
        memcpy(s->value + s->held, values, take * sizeof *values);
        s->held += take;
        values += take;
        n -= take;
    }
    return MR_OK;
}

enum mr_status mr_spill_truncate(struct mr_spill *s, uint64_t count, struct mr_error *err)
{
    if (count >= s->filed) {
        if (count - s->filed < s->held) s->held = (size_t)(count - s->filed);
        return MR_OK;
    }
    s->held = 0;
    s->filed = count;
    if (ftruncate(fileno(s->file), (off_t)(count * sizeof(double))))
        return file_error(err, "truncate");
    return MR_OK;
}

/* One digit of 16 bits of one quantile's encoding; non-negative doubles order as their encodings. */
struct search {
    uint64_t prefix; /* digits known so far */
    uint64_t rank;   /* 0-based rank among the values with that prefix */
    uint64_t *count; /* [DIGITS] of the next digit; NULL: shares another search's */
    size_t shares;
};

static void tally(struct search *search, size_t n, const double *values, size_t count, int shift)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        uint64_t prefix = shift == 48 ? 0 : bits >> (shift + 16);
        for (size_t k = 0; k < n; k++)
            if (search[k].shares == k && search[k].prefix == prefix)
                search[k].count[(bits >> shift) & (DIGITS - 1)]++;
    }
}

static enum mr_status pass(struct mr_spill *s, struct search *search, size_t n, int shift,
                           struct mr_error *err)
{
    for (size_t k = 0; k < n; k++) {
        search[k].shares = k;
        for (size_t j = 0; j < k; j++)
            if (search[j].prefix == search[k].prefix) {
                search[k].shares = search[j].shares;
                break;
            }
        memset(search[k].count, 0, DIGITS * sizeof *search[k].count);
    }
    double buffer[4096];
    if (s->file && fseeko(s->file, 0, SEEK_SET)) return file_error(err, "rewind");
    for (uint64_t at = 0; at < s->filed;) {
        size_t want = s->filed - at < 4096 ? (size_t)(s->filed - at) : 4096;
        if (fread(buffer, sizeof *buffer, want, s->file) != want) return file_error(err, "read");
        tally(search, n, buffer, want, shift);
        at += want;
    }
    tally(search, n, s->value, s->held, shift);
    for (size_t k = 0; k < n; k++) {
        const uint64_t *count = search[search[k].shares].count;
        uint64_t digit = 0;
        while (search[k].rank >= count[digit]) search[k].rank -= count[digit++];
        search[k].prefix = search[k].prefix << 16 | digit;
    }
    return MR_OK;
}

enum mr_status mr_spill_quantiles(struct mr_spill *s, const double *q, size_t n, double *out,
                                  struct mr_error *err)
{
    uint64_t total = mr_spill_count(s);
    for (size_t k = 0; k < n; k++) out[k] = NAN;
    if (!total || n > MOST) return MR_OK;
    struct search search[MOST];
    uint64_t *counts = malloc(n * DIGITS * sizeof *counts);
    if (!counts) return mr_fail(err, MR_ERR_MEMORY, "no memory for quantiles");
    for (size_t k = 0; k < n; k++) {
        double rank = ceil(q[k] * (double)total);
        uint64_t r = rank < 1 ? 0 : (uint64_t)rank - 1;
        search[k] = (struct search){0, r < total ? r : total - 1, counts + k * DIGITS, k};
    }
    enum mr_status status = MR_OK;
    for (int shift = 48; shift >= 0 && !status; shift -= 16)
        status = pass(s, search, n, shift, err);
    for (size_t k = 0; k < n && !status; k++) memcpy(&out[k], &search[k].prefix, sizeof *out);
    free(counts);
    return status;
}
