/* Recordings of engines' kernels (data/engines), judged by the program as its users judge them. */
#ifndef ENGINE_RECORDS_H
#define ENGINE_RECORDS_H

#include <stdbool.h>
#include <stddef.h>

struct engine_records {
    size_t files, rows, lines, logits; /* judged; lines replayed, and logits compared by them */
    char fault[1200];                   /* the first thing that is not as expected, or "" */
};

/* FOLDER/EXPECTED says what the judge must say of each FOLDER/CASE/NAME.safetensors. A line is
 *     # anything
 *     make CASE ARGUMENTS          moeref ARGUMENTS -o TEMPORARY makes the case; without such
 *                                  a line it is cases/CASE.json
 *     judge CASE/NAME ROWS EXACT TIE ROUNDING UNDECIDED WRONG MALFORMED NONFINITE
 *     replay CASE/NAME COUNT LINE  all COUNT logits are LINE's, bit for bit
 * A file without a judge line (.sorted.safetensors apart), a line without a file and any other count
 * are faults. Files are taken at their metadata: arithmetic, profile. False at the first fault.
 * Needs cli_start's folder. */
bool engine_records_check(const char *folder, struct engine_records *out);

#endif
