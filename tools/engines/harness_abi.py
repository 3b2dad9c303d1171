"""gpu/harness.h for Python, and libraries that export moeref_plugin. Needs neither torch nor CUDA."""
import ctypes
from ctypes import POINTER, byref, c_char_p, c_double, c_int32, c_int64, c_size_t, c_uint32, c_uint64, \
    c_void_p

ABI = 1
BF16, FP16, FP32 = 1, 2, 4
TYPES = {"bf16": BF16, "fp16": FP16, "fp32": FP32}
HOST, DEVICE = 0, 1
LOGITS, IDS, WEIGHTS, COUNTS, SORTED = 1, 2, 4, 8, 16
HAS_PDL = 16
SCORES = {"sigmoid": 0, "softmax": 1, "sqrtsoftplus": 2}
GROUP_SCORES = {"top2-sum": 0, "max": 1}


class Router(ctypes.Structure):
    _fields_ = [(n, c_int32) for n in (
        "experts", "top_k", "hidden", "score", "rank_by_logit", "bias", "gate_bias", "n_group",
        "topk_group", "group_score", "norm_topk_prob")] + [("routed_scaling_factor", c_double)]


class Problem(ctypes.Structure):
    _fields_ = [("router", Router)] + [(n, c_int32) for n in (
        "rows", "hidden_type", "gate_type", "given_type", "pdl", "delay_ns")]


class Buffers(ctypes.Structure):
    _fields_ = [(n, c_void_p) for n in (
        "hidden", "gate", "bias", "gate_bias", "given", "logits", "ids", "weights", "counts", "sorted",
        "sorted_total", "tile_expert")] + [("sorted_most", c_int64), ("state", c_void_p),
                                           ("scratch", c_void_p)]


class Sizes(ctypes.Structure):
    _fields_ = [("state", c_uint64), ("scratch", c_uint64)]


class Why(ctypes.Structure):
    _fields_ = [("text", c_char_p), ("size", c_size_t)]


_SUPPORTS = ctypes.CFUNCTYPE(ctypes.c_int, POINTER(Problem), Why)
_ARITH = ctypes.CFUNCTYPE(None, POINTER(Problem), c_char_p, c_size_t)
_SIZES = ctypes.CFUNCTYPE(ctypes.c_int, POINTER(Problem), POINTER(Sizes), Why)
_PREPARE = ctypes.CFUNCTYPE(ctypes.c_int, POINTER(Problem), POINTER(Buffers), c_void_p,
                            POINTER(c_void_p), Why)
_LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int, c_void_p, POINTER(Problem), POINTER(Buffers), c_void_p, Why)
_RELEASE = ctypes.CFUNCTYPE(None, c_void_p)


class KernelStruct(ctypes.Structure):
    _fields_ = [("abi", c_uint32), ("family", c_char_p), ("name", c_char_p), ("summary", c_char_p)] + [
        (n, c_int32) for n in (
            "memory", "min_rows", "max_rows", "hidden_types", "gate_types", "given_types", "gives",
            "logits_type", "weights_type", "tile", "promises")] + [
        ("supports", _SUPPORTS), ("arith", _ARITH), ("sizes", _SIZES), ("prepare", _PREPARE),
        ("launch", _LAUNCH), ("release", _RELEASE)]


class Plugin(ctypes.Structure):
    _fields_ = [("abi", c_uint32), ("count", c_uint32), ("kernels", POINTER(POINTER(KernelStruct)))]


LAYOUT = (ctypes.sizeof(Router), ctypes.sizeof(Problem), ctypes.sizeof(Buffers), ctypes.sizeof(Sizes),
          ctypes.sizeof(Why), ctypes.sizeof(KernelStruct), Router.routed_scaling_factor.offset,
          Problem.delay_ns.offset, Buffers.scratch.offset, KernelStruct.release.offset)


class Refused(Exception):
    """What a kernel, or a library, said: one line."""


class Library:
    """kernels: {name: KernelStruct}. version, commit: of moeref, that it was built from."""

    def __init__(self, path):
        try:
            self.handle = ctypes.CDLL(path)  # stays loaded: kernels live in it
            plugin = Plugin.in_dll(self.handle, "moeref_plugin")
            layout = tuple((c_uint32 * len(LAYOUT)).in_dll(self.handle, "moeref_layout"))
        except (OSError, ValueError) as e:
            raise Refused(f"{path}: {e}") from None
        if plugin.abi != ABI or layout != LAYOUT:
            raise Refused(f"{path}: ABI {plugin.abi}, structs {layout}; expected ABI {ABI}, {LAYOUT}")
        self.version, self.commit = self._text("moeref_version"), self._text("moeref_commit")
        structs = [plugin.kernels[i].contents for i in range(plugin.count)]
        self.kernels = {k.name.decode(): k for k in sorted(structs, key=lambda k: (k.family, k.name))}

    def _text(self, name):
        return c_char_p(ctypes.addressof(ctypes.c_char.in_dll(self.handle, name))).value.decode()


def router(r):
    """Of engine.Router."""
    return Router(r.experts, r.top_k, r.hidden, SCORES[r.score], r.rank_by_logit, r.bias, r.gate_bias,
                  r.n_group, r.topk_group, GROUP_SCORES.get(r.group_score, 0), r.norm_topk_prob,
                  r.routed_scaling_factor)


def refusal(kernel, problem):
    """Why a kernel does not serve a problem; None if it does."""
    if problem.rows < kernel.min_rows or kernel.max_rows and problem.rows > kernel.max_rows:
        return f"serves {kernel.min_rows} to {kernel.max_rows} rows" if kernel.max_rows else \
            f"serves {kernel.min_rows} rows and more"
    text = ctypes.create_string_buffer(256)
    if not kernel.supports or kernel.supports(byref(problem), _why(text)):
        return None
    return _said(text)


def arith(kernel, problem):
    """The kernel's arithmetic line; "" where nothing is declared."""
    line = ctypes.create_string_buffer(256)
    if kernel.arith:
        kernel.arith(byref(problem), line, len(line))
    return line.value.decode()


def sizes(kernel, problem):
    out = Sizes()
    if kernel.sizes:
        call("sizes", kernel.sizes, byref(problem), byref(out))
    return out


def call(what, function, *arguments):
    """Calls what returns a status and takes a reason last."""
    text = ctypes.create_string_buffer(256)
    if function(*arguments, _why(text)):
        raise Refused(f"{what}: {_said(text)}")


def _why(text):
    return Why(ctypes.cast(text, c_char_p), len(text))


def _said(text):
    return text.value.decode(errors="replace") or "the kernel gives no reason"
