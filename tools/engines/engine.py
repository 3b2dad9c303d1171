"""What the runner and the adapters of engines agree on. An adapter is one file, for_ENGINE.py, with

    NAME            the engine, as --engine takes it
    VERSIONS        versions whose source was read, newest first; others run only with --any-version
    find()          -> Found: is it here, in which version, or why not (nothing is imported before)
    kernels(found)  -> list of Kernel

An adapter holds no code of its engine: it maps a router to the engine's call.
"""
from dataclasses import dataclass

# DESIGN section 8, as gpu/rows.c has it.
ROW_AXIS = (1, 2, 4, 5, 6, 8, 16, 17, 18, 24, 32, 33, 64, 96, 128, 256, 257, 512, 513, 1024, 1025,
            2048, 4096, 8192)


class Unsupported(Exception):
    """The engine says no, or nobody can: one line, the reason."""


@dataclass(frozen=True)
class Found:
    version: str | None  # None: not here
    reason: str = ""     # why not
    where: str = ""      # folder that it was found in


@dataclass(frozen=True)
class Router:
    """A case's router, in the words of ref/route/router.h."""
    experts: int
    top_k: int
    hidden: int
    score: str                # "sigmoid", "softmax", "sqrtsoftplus"
    rank_by_logit: bool       # rank by logit; the score is of (softmax: over) the selected ones alone
    bias: bool                # a correction bias: ranks, and is no part of the weight
    gate_bias: bool           # a linear bias of the gate, part of the logit
    n_group: int
    topk_group: int
    group_score: str          # "top2-sum", "max"; of no meaning where n_group is 1
    norm_topk_prob: bool
    routed_scaling_factor: float


@dataclass
class Problem:
    """What a kernel is given. Tensors are on the device, contiguous, of the case's own types; None
    where the case or the kernel has none. A kernel must not write them. Their memory stays, their
    contents do not: gate and biases are the same at each launch, hidden, logits and ids are other
    rows, so that prepare may derive something from the former alone. Logits of a case with a row
    stride are columns of wider rows: the one case in which a tensor is not contiguous."""
    router: Router
    rows: int
    hidden: "torch.Tensor | None"     # [rows, hidden] bf16, fp16 or fp32
    gate: "torch.Tensor | None"       # [experts, hidden] of its own type
    bias: "torch.Tensor | None"       # [experts] fp32
    gate_bias: "torch.Tensor | None"  # [experts] fp32
    logits: "torch.Tensor | None"     # [rows, experts] fp32, bf16 or fp16: kernels that take logits
    ids: "torch.Tensor | None"        # [rows, top_k] int32: kernels that take ids
    device: "torch.device"
    empty: "callable" = None          # (shape, dtype) -> an output that is poisoned before each run


class Kernel:
    """One subject. Adapters derive from it; what is said of it here needs no GPU."""
    name = ""          # [a-z0-9_]+, unique in its engine
    about = ""         # one line: which function, which file of the engine
    takes = "hidden"   # "hidden": from hidden states and gate weight; "logits"; "ids"
    logits_types = ("fp32",)  # takes == "logits": the types it is run with, "fp32", "bf16", "fp16"
    hidden_types = ("bf16",)  # takes == "hidden"
    gives = ("ids", "weights")  # of: logits, ids, weights, sorted, tile_expert, sorted_total
    profile = None     # of `moeref profiles`, where the order of ids is a promise
    tile = None        # gives sorted: the block size
    compiles = False   # its first launch compiles for seconds: such kernels are run first
    devices = ("cuda",)  # an oracle that runs on "cpu", too, says so

    def refuses(self, router, rows):
        """None, or one line: why the kernel does not serve this router at this many rows."""
        return None

    def arithmetic(self, router, rows):
        """What it may round, as docs/arithmetic.md writes it: the judge allows that much, no more."""
        return "fp32"

    def prepare(self, problem):
        """Everything that is done once (also: compiling). Returns launch: callable without arguments,
        that enqueues all work on torch's current stream and returns {what: tensor} of `gives`: ids
        [rows, top_k] integers, weights [rows, top_k], logits [rows, experts], sorted and so on as
        books.py describes them. It is called many times, and captured into a CUDA graph; outputs
        come from problem.empty wherever the engine lets the caller bring them. Raises Unsupported."""
        raise NotImplementedError

    def repack(self, outputs):
        """Turns what launch returned into ids, weights ... where the engine packs them (not timed)."""
        return outputs
