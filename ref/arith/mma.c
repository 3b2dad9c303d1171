#include "mma.h"

#include <stdio.h>
#include <string.h>

static const struct mr_mma rows[] = {
    {"hopper-bf16", 16, 25}, {"ampere-bf16", 8, 24}, {"hopper-tf32", 8, 25}};
enum { ROWS = sizeof rows / sizeof *rows };

const struct mr_mma *mr_mma_find(const char *name, size_t length)
{
    for (int i = 0; i < ROWS; i++)
        if (strlen(rows[i].name) == length && !memcmp(rows[i].name, name, length)) return &rows[i];
    return NULL;
}
const char *mr_mma_name(const struct mr_mma *m) { return m->name; }
int mr_mma_terms(const struct mr_mma *m) { return m->terms; }
bool mr_mma_same(const struct mr_mma *a, const struct mr_mma *b) { return a == b; }
bool mr_mma_begins(const char *word, size_t length)
{
    return length > 6 && (!memcmp(word, "hopper", 6) || !memcmp(word, "ampere", 6));
}
enum mr_status mr_mma_refusal(const char *word, size_t length, char *why, size_t size)
{
    snprintf(why, size, "unknown instruction '%.*s'", (int)length, word);
    return MR_ERR_USAGE;
}
