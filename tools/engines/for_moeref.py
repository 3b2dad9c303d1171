"""moeref's own kernels, gpu/kernels, as an engine among the others: judged and timed by the same code
in the same process. `make gpu-so` builds build/libmoeref-kernels.so (nvcc; at run time the driver,
and for some kernels cuBLAS) and build/libmoeref-kernels-cpu.so, the same sources as host code.
$MOEREF_KERNELS names another library in place of the first."""
import os
import re

import harness_abi as abi
from engine import Found, Kernel, Unsupported

NAME = "moeref"
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def _own_version():
    with open(os.path.join(ROOT, "ref", "moeref.h")) as f:
        return re.search(r'define MR_VERSION "(.*)"', f.read())[1]


VERSIONS = (_own_version(),)
_libraries = {}


def library(device):
    """The library for "cuda" or "cpu". Raises abi.Refused."""
    if device not in _libraries:
        path = os.path.join(ROOT, "build",
                            "libmoeref-kernels" + ("-cpu" if device == "cpu" else "") + ".so")
        if device == "cuda":
            path = os.path.abspath(os.environ.get("MOEREF_KERNELS") or path)
        if not os.path.exists(path):
            raise abi.Refused(f"{path} is not there: make gpu-so")
        _libraries[device] = abi.Library(path), path
    return _libraries[device]


def _both():
    """{device: (library, path)} of those that load, and why others do not."""
    there, reasons = {}, []
    for device in ("cuda", "cpu"):
        try:
            there[device] = library(device)
        except abi.Refused as e:
            reasons.append(str(e))
    return there, "; ".join(reasons)


def find():
    there, reason = _both()
    if not there:
        return Found(None, reason)
    library, path = next(iter(there.values()))
    if any(other.version != library.version for other, _ in there.values()):
        return Found(None, "libraries of two versions: make gpu-so")
    return Found(library.version, reason, path)


def kernels(found):
    there, _ = _both()
    names = dict.fromkeys(n for library, _ in there.values() for n in library.kernels)
    return [Own(name, {d: library for d, (library, _) in there.items() if name in library.kernels})
            for name in names]


def _types(bits):
    return tuple(t for t in ("fp32", "bf16", "fp16") if bits & abi.TYPES[t])


class Own(Kernel):
    """pdl: whether a chain is tied by dependent launches, where that makes a difference."""

    def __init__(self, name, libraries, pdl=True):
        self.structs = {d: library.kernels[name] for d, library in libraries.items()}
        library = next(iter(libraries.values()))
        k = library.kernels[name]
        self.name = re.sub("[^a-z0-9_]", "_", name)
        self.about = f"{k.summary.decode()} (gpu/kernels, commit {library.commit})"
        self.devices = tuple(self.structs)
        self.takes = "logits" if k.given_types else "hidden"
        self.logits_types = _types(k.given_types)
        # What widens without loss is widened.
        self.hidden_types = _types(7 if k.hidden_types & abi.FP32 else k.hidden_types)
        self.gives = tuple(w for bit, w in ((abi.LOGITS, "logits"), (abi.IDS, "ids"),
                                            (abi.WEIGHTS, "weights")) if k.gives & bit)
        if k.gives & abi.SORTED:
            self.gives += "sorted", "tile_expert", "sorted_total"
        self.tile = k.tile or None
        self.pdl = pdl and bool(k.promises & abi.HAS_PDL)

    def _problem(self, k, router, rows):
        """Types are the first that the kernel takes, until tensors say more."""
        first = [next((abi.TYPES[t] for t in ("bf16", "fp32", "fp16") if bits & abi.TYPES[t]), 0)
                 for bits in (k.hidden_types, k.gate_types, k.given_types)]
        return abi.Problem(abi.router(router), rows, *first, self.pdl, 0)

    def refuses(self, router, rows):
        k = next(iter(self.structs.values()))
        return abi.refusal(k, self._problem(k, router, rows))

    def arithmetic(self, router, rows):
        """"": nothing is declared, as with cuBLAS where no H200 was asked."""
        k = next(iter(self.structs.values()))
        return abi.arith(k, self._problem(k, router, rows))

    def prepare(self, problem):
        from moeref_session import Session
        k = self.structs.get(problem.device.type)
        if k is None:
            raise Unsupported(f"no build of it for {problem.device.type}")
        if k.memory != (abi.DEVICE if problem.device.type == "cuda" else abi.HOST):
            raise Unsupported("its pointers are of the host's memory" if k.memory == abi.HOST else
                              "its pointers are of a device's memory")
        try:
            return Session(k, self._problem(k, problem.router, problem.rows), problem)
        except abi.Refused as e:
            raise Unsupported(str(e)) from None
