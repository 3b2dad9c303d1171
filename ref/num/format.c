#include "num.h"

const struct mr_format mr_format_bf16 = {"bf16", 8, -126, 127, 0x1.fep127};
const struct mr_format mr_format_fp16 = {"fp16", 11, -14, 15, 65504};
const struct mr_format mr_format_tf32 = {"tf32", 11, -126, 127, 0x1.ffcp127};
const struct mr_format mr_format_fp32 = {"fp32", 24, -126, 127, 0x1.fffffep127};
/* At emax only 1.111 is not a number, so the largest is 1.110 * 2^8. */
const struct mr_format mr_format_e4m3 = {"e4m3", 4, -6, 8, 448};
const struct mr_format mr_format_e5m2 = {"e5m2", 3, -14, 15, 57344};
