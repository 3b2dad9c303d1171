#!/bin/sh
# Builds gpu/sweep into DIR (build/sweep) with nvcc for sm_90a; the model comes from libmoeref.a.
#     make && sh gpu/sweep/build.sh [DIR]
# then, with a GPU:  DIR/sweep OUT; DIR/softmax OUT; python3 tests/oracle/cuda_torch.py OUT
set -e
to=${1:-build/sweep}
flags="-O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a"
mkdir -p "$to"
nvcc $flags -DFLAVOUR=0 -c gpu/sweep/kernels.cu -o "$to/kernels0.o"
nvcc $flags -DFLAVOUR=1 -ftz=true -c gpu/sweep/kernels.cu -o "$to/kernels1.o"
nvcc $flags -DFLAVOUR=2 -use_fast_math -c gpu/sweep/kernels.cu -o "$to/kernels2.o"
nvcc $flags -o "$to/sweep" gpu/sweep/sweep.cu "$to"/kernels?.o build/libmoeref.a -lgomp -lpthread
nvcc $flags -o "$to/softmax" gpu/sweep/softmax.cu
${CC:-cc} -O3 -std=c11 -fopenmp gpu/sweep/recover.c -lm -o "$to/recover"
${CC:-cc} -O3 -std=c11 -D_GNU_SOURCE -fopenmp gpu/sweep/errors.c build/libmoeref.a -lm -o "$to/errors"
