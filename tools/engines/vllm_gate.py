"""vLLM's router GEMMs: GateLinear, which chooses by rows, types and shape, and the kernels that it
chooses from."""
import importlib.util

import vllm_routers
import vllm_tree
from engine import Kernel, Unsupported

# GateLinear.FP32_SUPPORTED_SHAPES and csrc/fp32_router_gemm_entry.cu: (hidden, experts).
FP32_SHAPES = {(3072, 256), (6144, 128), (5120, 256), (4096, 352), (8192, 256)}
FP32_ROWS, LL_BF16_ROWS = 32, 16


def cute_missing():
    """Why the cuteDSL kernels cannot run, or None. vLLM itself requires both packages."""
    for module, package in (("cutlass", "nvidia-cutlass-dsl[cu13]"), ("quack", "quack-kernels")):
        if importlib.util.find_spec(module) is None:
            return f"cuteDSL kernel, and {package} is not installed"
    return None


def tier(router, rows, weight, out):
    """Which kernel GateLinear.forward takes on Hopper for bf16 hidden states, weights of type
    `weight` and logits of type `out` ("model": as the weights)."""
    if weight == "bf16" and out == "fp32":
        return "ll_bf16" if rows <= LL_BF16_ROWS else "mm"
    if weight == "fp32":
        if (router.hidden, router.experts) in FP32_SHAPES:
            return "fp32_router_gemm" if rows <= FP32_ROWS else "linear"
        return "ll_fp32w" if rows <= FP32_ROWS else "linear"
    return "linear"


def gate_refuses(router, rows, weight, out, bias=False):
    """Why GateLinear cannot do here what it does in a complete vLLM; None if it can."""
    if router.gate_bias != bias:
        return "a gate with a linear bias is a bf16 linear layer" if router.gate_bias else \
            "serves gates with a linear bias"
    chosen = tier(router, rows, weight, out)
    if chosen.startswith("ll_") and cute_missing():
        return f"vLLM takes {chosen}_gemm at {rows} rows: {cute_missing()}"
    return None


def gate_weight(problem, weight):
    """The gate as the model keeps it: fp32 parameters take bf16 checkpoints, too (exact)."""
    import torch
    if weight == "fp32":
        return problem.gate.to(torch.float32)
    if problem.gate.dtype != torch.bfloat16:
        raise Unsupported(f"the model keeps the gate in bf16, and the case's is {problem.gate.dtype}")
    return problem.gate


def gate_linear(problem, weight, out):
    """A GateLinear of the case's weights, loaded."""
    import torch
    kinds = {"bf16": torch.bfloat16, "fp32": torch.float32, "model": None}
    r = problem.router
    if tier(r, problem.rows, weight, out) == "fp32_router_gemm":
        vllm_tree.operators("_C")
    layer = vllm_routers.router("gate_linear").GateLinear(
        r.hidden, r.experts, bias=r.gate_bias, out_dtype=kinds[out], params_dtype=kinds[weight],
        return_bias=False).to(problem.device)
    layer.weight.data.copy_(gate_weight(problem, weight))
    if r.gate_bias:
        layer.bias.data.copy_(problem.gate_bias)
        if not torch.equal(layer.bias.data.float(), problem.gate_bias):
            raise Unsupported("the gate's bias is no bf16, which the model keeps it in")
    return layer


class GateLinear(Kernel):
    gives = ("logits",)

    def __init__(self, name, weight, out, who, bias=False):
        self.name, self.weight, self.out, self.bias = name, weight, out, bias
        self.about = (f"vLLM fused_moe/router/gate_linear.py: GateLinear, {weight} weight, "
                      f"{'weight-typed' if out == 'model' else out} logits ({who})")

    def refuses(self, router, rows):
        return gate_refuses(router, rows, self.weight, self.out, self.bias)

    def arithmetic(self, router, rows):
        return gate_line(router, rows, self.weight, self.out)

    def prepare(self, problem):
        layer = gate_linear(problem, self.weight, self.out)
        return lambda: {"logits": layer(problem.hidden)}


def gate_line(router, rows, weight, out):
    if weight == "bf16" and out == "model":
        return "bf16-logits"
    if tier(router, rows, weight, out) == "fp32_router_gemm":
        return "fma/deal:32x8:halves/deal:4x256"
    return "fp32"


class Fp32RouterGemm(Kernel):
    gives = ("logits",)
    name = "fp32_router_gemm"
    about = "vLLM csrc/fp32_router_gemm.cu: fp32 weight, at most 32 rows (48 of 5120 x 256)"

    def refuses(self, router, rows):
        if router.gate_bias:
            return "no linear bias of the gate"
        if (router.hidden, router.experts) not in FP32_SHAPES:
            return f"no kernel for {router.hidden} x {router.experts}"
        most = 48 if router.hidden == 5120 else FP32_ROWS
        return f"at most {most} rows" if rows > most else None

    def arithmetic(self, router, rows):
        # 128 threads, 8 columns each at a time; a butterfly in each warp, then 4 warps in order.
        return "fma/deal:32x8:halves/deal:4x256"

    def prepare(self, problem):
        import torch
        op = vllm_tree.operators("_C").fp32_router_gemm
        gate, shape = problem.gate.to(torch.float32), (problem.rows, problem.router.experts)

        def launch():
            logits = problem.empty(shape, torch.float32)
            op(logits, problem.hidden, gate)
            return {"logits": logits}
        return launch


class CuteGemm(Kernel):
    gives = ("logits",)

    def __init__(self, name, module, weight, most, about):
        self.name, self.module, self.weight, self.most = name, module, weight, most
        self.about = f"vLLM kernels/linear/cute_dsl/{module}.py: {about}"

    def refuses(self, router, rows):
        if router.gate_bias:
            return "no linear bias of the gate"
        if router.hidden % 8:
            return "hidden must be a multiple of 8"
        if rows > self.most:
            return f"GateLinear takes it up to {self.most} rows"
        return cute_missing()

    def prepare(self, problem):
        module = vllm_routers.load("vllm.model_executor.kernels.linear.cute_dsl." + self.module)
        gate = gate_weight(problem, self.weight)
        call = module.ll_bf16_gemm if self.weight == "bf16" else module.LL_FP32W_GEMM_KERNEL
        return lambda: {"logits": call(problem.hidden, gate)}


class Never(Kernel):
    """What vLLM has for other machines."""
    gives = ("logits",)

    def __init__(self, name, about, why):
        self.name, self.about, self.why = name, about, why

    def refuses(self, router, rows):
        return self.why

    def prepare(self, problem):
        raise Unsupported(self.why)


def kernels():
    return [
        GateLinear("gate_linear", "bf16", "model", "Qwen3-MoE, Mixtral, DeepSeek-V3 by default"),
        GateLinear("gate_linear_fp32", "bf16", "fp32", "Kimi-K3, DeepSeek-V4, GLM-5"),
        GateLinear("gate_linear_fp32_weight", "fp32", "fp32", "GLM-4.5, MiniMax-M2"),
        GateLinear("gate_linear_bias", "bf16", "model", "gpt-oss", bias=True),
        Fp32RouterGemm(),
        CuteGemm("ll_bf16_gemm", "ll_bf16", "bf16", LL_BF16_ROWS,
                 "up to 4 rows a dot product, else split-K"),
        CuteGemm("ll_fp32w_gemm", "ll_fp32w", "fp32", FP32_ROWS, "fp32 weight"),
        Never("bf16x3_router_gemm", "vLLM fused_moe/router/bf16x3_router_gemm_cutedsl.py",
              "needs sm_100 (gate_linear.py takes it on Blackwell alone)"),
        Never("bf16x3_router_gemm_rocm", "vLLM fused_moe/router/bf16x3_router_gemm_rocm.py",
              "ROCm only (gfx950)"),
        Never("rocm_fp32_router_gemm", "vLLM fused_moe/router/rocm_fp32_router_gemm.py",
              "ROCm only (gfx950)"),
        Never("cpu_router", "vLLM fused_moe/router/cpu_router.py: operators of vLLM's CPU build",
              "CPU builds of vLLM only"),
    ]
