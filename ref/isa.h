/* Hot loops are files ref/X/NAME_simd.c, compiled once for each level of the x86-64 psABI
 * ("x86-64-v3" is AVX2 and FMA, "x86-64-v4" AVX-512 F, BW, CD, DQ, VL) with -DMR_ISA=base|v3|v4.
 * Such a file has no static data, and every function of it with external linkage has a name by
 * MR_ISA_NAME; a plain file calls the best one through MR_ISA_PICK:
 *
 *     MR_ISA_DECLARE(void, mr_sum, const float *x, size_t n);      in a header
 *     void MR_ISA_NAME(mr_sum)(const float *x, size_t n) { ... }   in sum_simd.c
 *     MR_ISA_PICK(mr_sum)(x, n);                                   in sum.c
 */
#ifndef MOEREF_ISA_H
#define MOEREF_ISA_H

enum mr_isa { MR_ISA_BASE, MR_ISA_V3, MR_ISA_V4 };

/* The best level that processor and operating system have and this library holds, lowered (never
 * raised) by the environment variable MOEREF_ISA=base|v3|v4; any other value of it is ignored. The
 * environment is read once, at the first call, by one thread. */
enum mr_isa mr_isa_best(void);

const char *mr_isa_name(enum mr_isa isa); /* "base", "v3", "v4"; "?" if out of range */

#define MR_ISA_PASTE_(fn, isa) fn##_##isa
#define MR_ISA_PASTE(fn, isa) MR_ISA_PASTE_(fn, isa)
#define MR_ISA_NAME(fn) MR_ISA_PASTE(fn, MR_ISA)

/* A plain file that sees MR_ISA belongs to a build of one level (make fuzz): then, and on other
 * architectures, there is nothing to choose. */
#if defined(__x86_64__) && !defined(MR_ISA)
#define MR_ISA_LEVELS 3
#define MR_ISA_PICK(fn) \
    (mr_isa_best() == MR_ISA_V4 ? fn##_v4 : mr_isa_best() == MR_ISA_V3 ? fn##_v3 : fn##_base)
#else
#define MR_ISA_LEVELS 1
#ifdef MR_ISA
#define MR_ISA_PICK(fn) MR_ISA_NAME(fn)
#else
#define MR_ISA_PICK(fn) fn##_base
#endif
#endif

#define MR_ISA_DECLARE(type, fn, ...) \
    type fn##_base(__VA_ARGS__); \
    type fn##_v3(__VA_ARGS__); \
    type fn##_v4(__VA_ARGS__)

#endif
