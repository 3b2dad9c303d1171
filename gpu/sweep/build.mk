# Programs that are not one folder's files linked into one: kernels.cu is compiled under three sets
# of flags, and tables are recovered and errors measured on a CPU.
SWEEP := $(BUILD)/gpu/sweep $(BUILD)/gpu/softmax
SWEEP_CPU := $(BUILD)/gpu/recover $(BUILD)/gpu/errors
GPU_BIN += $(SWEEP)
SWEEP_NVCC = $(NVCC) $(GPU_ARCH) -O3 -std=c++17
SWEEP_FLAGS_0 :=
SWEEP_FLAGS_1 := -ftz=true
SWEEP_FLAGS_2 := -use_fast_math

$(BUILD)/gpu-obj/sweep/kernels%.o: gpu/sweep/kernels.cu $(wildcard gpu/sweep/*.h)
	@mkdir -p $(@D)
	$(SWEEP_NVCC) $(SWEEP_FLAGS_$*) -DFLAVOUR=$* -c $< -o $@
$(BUILD)/gpu/sweep: gpu/sweep/sweep.cu $(foreach f,0 1 2,$(BUILD)/gpu-obj/sweep/kernels$(f).o) $(LIB)
	@mkdir -p $(@D)
	$(SWEEP_NVCC) $^ -lgomp -lpthread -o $@
$(BUILD)/gpu/softmax: gpu/sweep/softmax.cu
	@mkdir -p $(@D)
	$(SWEEP_NVCC) $< -o $@
$(SWEEP_CPU): $(BUILD)/gpu/%: gpu/sweep/%.c $(LIB)
	@mkdir -p $(@D)
	$(CC) -O3 -std=c11 -D_GNU_SOURCE -fopenmp $< $(LIB) -lm -o $@

.PHONY: sweep-tools
sweep-tools: $(SWEEP_CPU)
