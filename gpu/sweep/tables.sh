#!/bin/sh
# Writes ref/arith/cuda_tables.c from the dumps of an H200 (sweep OUT --dump):
#     sh gpu/sweep/tables.sh OUT/dump RECOVER | clang-format > ref/arith/cuda_tables.c
# where RECOVER is the built gpu/sweep/recover.c.
echo '/* Made by gpu/sweep/tables.sh from the outputs of an H200. */'
echo '#include "cuda_tables.h"'
for f in ex2 rcp rsqrt lg2 sqrt; do
    n=64
    case $f in rcp | rsqrt | sqrt) n=128 ;; esac
    printf '\nconst struct mr_mufu_segment mr_mufu_%s[%d] = {\n' $f $n
    "$2" $f "$1/$f.u32" || exit 1
    echo '};'
done
printf '\nconst struct mr_mufu_tanh_segment mr_mufu_tanh[MR_MUFU_TANH_SEGMENTS] = {\n'
"$2" tanh "$1/tanh16.u32" || exit 1
echo '};'
cat <<'T'

const uint32_t mr_mufu_tanh_octave[MR_MUFU_TANH_OCTAVES] = {
    0x000, 0x001, 0x002, 0x103, 0x105, 0x207, 0x20b, 0x20f, 0x313, 0x41b, 0x32b,
};
T
