"""vLLM's Python routers, gate and Triton kernels, imported from its own files, unchanged.

With an installed vllm they are imported as usual. From a source tree, `import vllm` would need a hundred
packages that routing does not; so the packages on the way are empty here (their __init__.py is not run),
and the modules that the routers import but routing does not need are replaced by the stand-ins below.
What a stand-in answers is what vLLM's own module answers on one Hopper GPU without expert parallelism,
load balancing or quantisation, outside of a running engine.
"""
import functools
import importlib
import sys
import types

import vllm_tree

ROUTER = "vllm.model_executor.layers.fused_moe.router."

# Packages whose __init__.py is not run.
PACKAGES = ("vllm", "vllm.distributed", "vllm.distributed.eplb", "vllm.model_executor",
            "vllm.model_executor.kernels", "vllm.model_executor.kernels.linear",
            "vllm.model_executor.kernels.linear.cute_dsl", "vllm.model_executor.layers",
            "vllm.model_executor.layers.fused_moe", "vllm.model_executor.layers.fused_moe.experts",
            "vllm.model_executor.layers.fused_moe.router",
            "vllm.model_executor.layers.quantization.utils", "vllm.utils", "vllm.v1",
            "vllm.v1.worker")


class Platform:
    """vllm/platforms/cuda.py, of the current device."""
    simple_compile_backend = "inductor"
    dispatch_key = "CUDA"

    def is_cuda(self):
        return True

    def is_cuda_alike(self):
        return True

    def is_cpu(self):
        return False

    is_rocm = is_xpu = is_tpu = is_cpu

    def fp8_dtype(self):
        import torch
        return torch.float8_e4m3fn

    def import_kernels(self):
        """The operators are loaded before."""

    def is_device_capability(self, capability):
        import torch
        here = torch.cuda.get_device_capability()
        wanted = capability if isinstance(capability, tuple) else divmod(capability, 10)
        return here == wanted

    def is_device_capability_family(self, capability):
        import torch
        return torch.cuda.get_device_capability()[0] == capability // 10

    def is_arch_support_pdl(self):
        import torch
        return torch.cuda.get_device_capability()[0] >= 9


class NoAiter:
    """ROCm's aiter is not here, whatever is asked."""

    def __getattr__(self, name):
        return lambda *args, **kwargs: False


def _linear():
    """A gate that is neither quantised nor split: weight [outputs, inputs], bias, F.linear, as
    UnquantizedLinearMethod does on CUDA."""
    import torch

    class UnquantizedLinearMethod:
        pass

    class ReplicatedLinear(torch.nn.Module):
        def __init__(self, input_size, output_size, bias=True, skip_bias_add=False,
                     params_dtype=None, quant_config=None, prefix="", *, return_bias=True):
            super().__init__()
            kind = params_dtype or torch.get_default_dtype()
            self.weight = torch.nn.Parameter(torch.empty(output_size, input_size, dtype=kind),
                                             requires_grad=False)
            self.bias = torch.nn.Parameter(torch.empty(output_size, dtype=kind),
                                           requires_grad=False) if bias else None
            self.quant_method = UnquantizedLinearMethod()
            self.return_bias, self.prefix = return_bias, prefix

        def forward(self, x):
            output = torch.nn.functional.linear(x, self.weight, self.bias)
            return (output, None) if self.return_bias else output

    return dict(ReplicatedLinear=ReplicatedLinear, UnquantizedLinearMethod=UnquantizedLinearMethod)


def _names(*names):
    """Names that are imported for annotations and branches that are not taken."""
    return {name: type(name, (), {}) for name in names}


def _stand_ins():
    import logging

    import triton
    import triton.language
    quiet = logging.getLogger("moeref.vllm")
    for name in ("info_once", "warning_once", "debug_once"):
        setattr(quiet, name, lambda *args, **kwargs: None)
    return {
        "vllm._aiter_ops": dict(rocm_aiter_ops=NoAiter()),
        "vllm.config": _names("ParallelConfig") | dict(
            SchedulerConfig=types.SimpleNamespace(
                DEFAULT_MAX_NUM_BATCHED_TOKENS_FOR_BATCHED_DP=None),  # default of a field
            get_cached_compilation_config=None),
        "vllm.config.kernel": dict(MoEBackend=str),
        "vllm.distributed": dict(get_dp_group=None, get_pcp_group=None,
                                 get_tensor_model_parallel_rank=None),
        "vllm.distributed.eplb.eplb_state": _names("EplbLayerState"),
        "vllm.distributed.parallel_state": dict(get_ep_group=None, get_tp_group=None),
        "vllm.forward_context": dict(get_forward_context=lambda: None,
                                     is_forward_context_available=lambda: False),
        "vllm.logger": dict(init_logger=lambda name: quiet),
        "vllm.model_executor.layers.fused_moe.activation": _names("MoEActivation"),
        "vllm.model_executor.layers.fused_moe.experts.rocm_aiter_moe":
            dict(rocm_aiter_grouped_topk=None),
        "vllm.model_executor.layers.fused_moe.fused_moe": dict(zero_experts_compute_triton=None),
        "vllm.model_executor.layers.linear": _linear(),
        "vllm.model_executor.layers.quantization": _names("QuantizationConfig"),
        "vllm.platforms": dict(current_platform=Platform()),
        "vllm.triton_utils": dict(triton=triton, tl=triton.language, HAS_TRITON=True),
        "vllm.utils.flashinfer": dict(flashinfer_quant_nvfp4_8x4_sf_layout=None),
        "vllm.utils.import_utils": dict(get_triton_kernels_version=lambda: None),
        "vllm.utils.platform_utils": dict(is_pin_memory_available=lambda: False),
        "vllm.v1.worker.ubatching": dict(dbo_current_ubatch_id=lambda: 0),
    }


@functools.lru_cache(None)
def _prepare():
    """Before the first import: operators first, since vllm/_custom_ops.py looks for them."""
    vllm_tree.operators("_moe_C")
    if vllm_tree.installed():
        return
    folder = vllm_tree.python_folder()
    for name in PACKAGES:
        module = types.ModuleType(name)
        module.__path__ = [str(folder.joinpath(*name.split(".")[1:]))]
        sys.modules[name] = module
    for name, content in _stand_ins().items():
        module = sys.modules.get(name) or types.ModuleType(name)
        module.__dict__.update(content)
        sys.modules[name] = module


def load(name):
    """vLLM's module of that name."""
    _prepare()
    return importlib.import_module(name)


def router(name):
    return load(ROUTER + name)
