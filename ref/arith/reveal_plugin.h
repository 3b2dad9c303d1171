/* What `moeref reveal --plugin FILE.so` calls: a C function of this type, by default named
 * moeref_sum. It sums each of `count` rows of `terms` binary32 values into out[0 .. count) in the
 * order that is to be revealed, and returns 0; anything else is reported as a failure. A sum of
 * products takes a row as one operand and ones as the other. Values are exact in the type of
 * --operands. The function runs in a process of its own, one call after another; rows are not
 * written to.
 *
 *     #include <moeref/arith/reveal_plugin.h>
 *     int moeref_sum(const float *rows, size_t count, size_t terms, float *out);
 *     cc -shared -fPIC -o sum.so sum.c */
#ifndef MOEREF_REVEAL_PLUGIN_H
#define MOEREF_REVEAL_PLUGIN_H

#include <stddef.h>

typedef int mr_reveal_plugin(const float *rows, size_t count, size_t terms, float *out);

#endif
