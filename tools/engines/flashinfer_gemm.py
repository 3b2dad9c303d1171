"""FlashInfer's router GEMMs that run on Hopper."""
from engine import Kernel, Unsupported
from flashinfer_package import module


class RouterGemm(Kernel):
    """One block an expert, four warps of lanes that read 8 columns each; csrc/dsv3_router_gemm.cu. Its
    Python files say Blackwell; the check allows 9.0, and the dispatcher takes this kernel there."""
    compiles = True
    gives = ("logits",)

    def __init__(self, hidden, experts, model, bf16):
        self.hidden, self.experts, self.bf16 = hidden, experts, bf16
        self.function = f"mm_M1_16_K{hidden}_N{experts}" + ("_bf16" if bf16 and experts != 128 else "")
        self.name = self.function.lower()
        self.about = f"{self.function} ({model}): gemm/routergemm.py, gemm/dsv3_router_gemm.cuh"

    def refuses(self, router, rows):
        if (router.hidden, router.experts) != (self.hidden, self.experts):
            return f"serves {self.experts} experts of {self.hidden} columns alone"
        if router.gate_bias:
            return "adds no gate bias"
        return "1 to 16 rows" if not 1 <= rows <= 16 else None

    def arithmetic(self, router, rows):
        return "fma/deal:32x8:halves/deal:4x256" + ("+bf16-logits" if self.bf16 else "")

    def prepare(self, problem):
        import torch
        if problem.gate.dtype != torch.bfloat16:
            raise Unsupported("takes a bf16 gate weight")
        call = getattr(module("gemm.routergemm"), self.function)
        out = problem.empty((problem.rows, self.experts),
                            torch.bfloat16 if self.bf16 else torch.float32)

        def launch():
            call(problem.hidden, problem.gate.t(), out)
            return {"logits": out}
        return launch


class TinyGemm(Kernel):
    """Four chains of 16-term tensor-core steps, each over every fourth 256 columns, added in order. For
    some shapes and row counts on 9.0 a generated wgmma program is taken, said to give the same bits."""
    name = "tinygemm_bf16"
    about = "tinygemm_bf16: gemm/routergemm.py, csrc/tinygemm2.cu, or jit/cake_tinygemm2_wgmma.py by shape and rows"
    compiles = True
    gives = ("logits",)

    def refuses(self, router, rows):
        return "E a multiple of 16, K of 64" if router.experts % 16 or router.hidden % 64 else None

    def arithmetic(self, router, rows):
        return "hopper-bf16/deal:4x256+bf16-logits"

    def call(self, hidden, gate, out, bias):
        module("gemm.routergemm").tinygemm_bf16(hidden, gate, out, bias)

    def prepare(self, problem):
        import torch
        if problem.gate.dtype != torch.bfloat16:
            raise Unsupported("takes a bf16 gate weight")
        bias = None
        if problem.gate_bias is not None:
            bias = problem.gate_bias.to(torch.bfloat16)
            if not torch.equal(bias.float(), problem.gate_bias):
                raise Unsupported("takes a gate bias of bf16 numbers")
        out = problem.empty((problem.rows, problem.router.experts), torch.bfloat16)

        def launch():
            self.call(problem.hidden, problem.gate, out, bias)
            return {"logits": out}
        return launch


class TinyGemmMma(TinyGemm):
    name = "tinygemm_bf16_mma"
    about = "tinygemm_bf16 with FLASHINFER_DISABLE_TINYGEMM2_WGMMA=1: csrc/tinygemm2.cu at all shapes"

    def call(self, hidden, gate, out, bias):
        ops = module("gemm.routergemm").get_tinygemm2_module()
        if bias is None:
            ops.tinygemm2_nobias_op(hidden, gate, out, False)
        else:
            ops.tinygemm2_op(hidden, gate, bias, out, False)


def kernels():
    shapes = ((7168, 128, "Mistral Large 3", True), (7168, 256, "DeepSeek-V3", False),
              (7168, 256, "DeepSeek-V3", True), (6144, 256, "GLM-5", False),
              (7168, 384, "Kimi K2", False), (7168, 384, "Kimi K2", True),
              (7168, 896, "Kimi K3", False), (7168, 896, "Kimi K3", True))
    return [*(RouterGemm(*s) for s in shapes), TinyGemm(), TinyGemmMma()]
