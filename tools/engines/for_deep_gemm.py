"""DeepGEMM as SGLang builds it (the wheel sgl-deep-gemm): its bf16 GEMMs with fp32 output as router
GEMMs. Kernels are compiled on first use, by nvcc, for each tile size that its heuristics choose.

Its fp8 and fp4 GEMMs are not router GEMMs: a gate is not quantised."""
import importlib.util
import pathlib

from engine import Found, Kernel, Unsupported

NAME = "deep_gemm"
# sm90_bf16_gemm.cuh computes the same in both. 0.1.4.post1 is the newest whose library loads under torch
# 2.11: those from 0.1.5 on need symbols of a newer libc10.
VERSIONS = ("0.2.5", "0.1.4.post1")


def find():
    spec = importlib.util.find_spec("deep_gemm")
    if spec is None or not spec.submodule_search_locations:
        return Found(None, "deep_gemm is not installed (the wheel is sgl-deep-gemm)")
    folder = pathlib.Path(spec.submodule_search_locations[0])
    version = folder / "VERSION"
    if not version.is_file():
        return Found(None, f"{folder} has no VERSION: not SGLang's build of DeepGEMM")
    if importlib.util.find_spec("tvm_ffi") is None and b"libtvm_ffi" in _library(folder):
        return Found(None, f"deep_gemm {version.read_text().strip()} needs apache-tvm-ffi")
    return Found(version.read_text().strip(), where=str(folder))


def _library(folder):
    path = folder / "_C.so"
    return path.read_bytes() if path.is_file() else b""


def _import():
    try:
        import deep_gemm
    except (ImportError, OSError, RuntimeError) as error:
        why = str(error.__cause__ or error).splitlines()[0]  # torch hides the symbol in the cause
        raise Unsupported(f"deep_gemm does not load: {why[:250]}") from None
    return deep_gemm


class Gemm(Kernel):
    compiles = True
    gives = ("logits",)

    def __init__(self, name, about, line):
        self.name, self.about, self.line = name, about, line

    def refuses(self, router, rows):
        if router.gate_bias:
            return "no linear bias of the gate"
        # Rows of bf16 and of fp32 are addressed by TMA, in units of 16 bytes.
        if router.hidden % 8 or router.experts % 4:
            return "hidden must be a multiple of 8, experts of 4"
        return None

    def arithmetic(self, router, rows):
        return self.line

    def prepare(self, problem):
        import torch
        if problem.gate.dtype != torch.bfloat16 or problem.hidden.dtype != torch.bfloat16:
            raise Unsupported(f"bf16 x bf16, and the gate is {problem.gate.dtype}")
        gemm = getattr(_import(), self.name)
        shape = (problem.rows, problem.router.experts)

        def launch():
            logits = problem.empty(shape, torch.float32)
            gemm(problem.hidden, problem.gate, logits)
            return {"logits": logits}
        return launch


class MegaGate(Kernel):
    """Gate and top-k in one kernel."""
    name = "bf16_mega_gate"
    about = "DeepGEMM bf16_mega_gate (sm100_bf16_mega_gate.cuh, from 0.2.x on)"

    def refuses(self, router, rows):
        return "sm_100 only: the one implementation is sm100_bf16_mega_gate.cuh"

    def prepare(self, problem):
        raise Unsupported(self.refuses(problem.router, problem.rows))


def kernels(found):
    return [
        # One accumulator for all of K, 16 columns a step (sm90_bf16_gemm.cuh).
        Gemm("bf16_gemm_nt", "DeepGEMM bf16_gemm_nt, fp32 output (sm90_bf16_gemm.cuh)",
             "hopper-bf16"),
        # The algorithm, and with it the order, is cuBLASLt's choice.
        Gemm("cublaslt_gemm_nt", "DeepGEMM cublaslt_gemm_nt, fp32 output: cuBLASLt", "fp32"),
        MegaGate(),
    ]
