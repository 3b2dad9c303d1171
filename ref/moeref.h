/* moeref: certified Mixture-of-Experts routing.
 *
 * One include for users of libmoeref. Names begin with mr_; functions that can fail return enum
 * mr_status and leave a one-line message in a struct mr_error (which may be NULL). Nothing here keeps
 * global state but the choice of instruction set (ref/isa.h) and OpenBLAS's own.
 *
 * Stable:
 *   mr_route_layer   hidden states and gate weight (or logits) -> proven expert sets, gaps, weights,
 *                    and the flips of emulated arithmetics     (route/route.h)
 *   mr_verify_layer  the judge: observed ids and weights -> verdicts, from derived error radii
 *                                                              (route/verify.h, arith/radius.h)
 *   mr_profile_*     engines' ways to compute a router         (route/profile.h)
 *   mr_arith_parse   an arithmetic from its line               (arith/arith.h)
 *   mr_replay_*      a GEMM under an arithmetic, bit for bit   (arith/replay.h, replay_compare.h)
 *   mr_identify      the lines that made given logits          (arith/identify.h)
 *   mr_reveal        the summation tree of a black box         (arith/reveal.h, tree_line.h)
 *   mr_mma_*         steps of tensor cores                     (arith/mma.h)
 *   mr_cuda_*        scalar functions as CUDA computes them    (arith/cuda.h)
 *   mr_config_load   config.json -> struct mr_router           (io/config.h)
 *   mr_checkpoint_*, mr_safetensors_*, mr_writer_*             (io/safetensors.h)
 *   mr_case_*        case files                                (io/case.h)
 *   mr_api_*         routing and the judge by handles, plain arrays and texts, for callers that are
 *                    not C                                     (api/api.h)
 *   mr_exact_dot, mr_bins_dot                                  (exact/exact.h)
 *   mr_bf16_encode ... and decode                              (num/num.h)
 * All else may change with any version. All of it assumes round-to-nearest. */
#ifndef MOEREF_H
#define MOEREF_H

#define MR_VERSION "0.1.0"

#include "api/api.h"
#include "arith/arith.h"
#include "arith/cuda.h"
#include "arith/identify.h"
#include "arith/mma.h"
#include "arith/radius.h"
#include "arith/replay.h"
#include "arith/replay_compare.h"
#include "arith/reveal.h"
#include "arith/tree_line.h"
#include "exact/exact.h"
#include "io/case.h"
#include "io/config.h"
#include "io/safetensors.h"
#include "num/num.h"
#include "route/profile.h"
#include "route/route.h"
#include "route/router.h"
#include "route/verify.h"
#include "status.h"
#include "tensor.h"

#endif
