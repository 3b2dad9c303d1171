"""PyTorch: the few lines that models' routers are written in, with the GEMMs that engines put before
them. torch.topk promises no tie rule."""
import importlib.metadata
import importlib.util

from engine import Found, Kernel, Unsupported

NAME = "torch"
VERSIONS = ("2.11.0",)


def find():
    spec = importlib.util.find_spec("torch")
    if spec is None:
        return Found(None, "torch is not installed")
    return Found(importlib.metadata.version("torch"), where=spec.submodule_search_locations[0])


def scores_of(torch, router, logits):
    if router.score == "sigmoid":
        return logits.sigmoid()
    if router.score == "softmax":
        return logits.softmax(-1)
    return torch.nn.functional.softplus(logits).sqrt()


def chosen(torch, router, keys):
    """ids by key, in groups where the router has them; other groups are masked with -Inf."""
    if router.n_group > 1:
        grouped = keys.view(keys.shape[0], router.n_group, -1)
        best = grouped.amax(-1) if router.group_score == "max" else grouped.topk(2, -1)[0].sum(-1)
        groups = best.topk(router.topk_group, -1)[1]
        outside = torch.ones_like(best, dtype=torch.bool).scatter_(1, groups, False)
        keys = grouped.masked_fill(outside.unsqueeze(-1), float("-inf")).view_as(keys)
    return keys.topk(router.top_k, -1)


def five_lines(torch, router, logits, bias):
    """fp32 logits to ids (int64, as torch gives them) and fp32 weights."""
    if router.rank_by_logit:
        values, ids = logits.topk(router.top_k, -1)
        weights = values.softmax(-1) if router.score == "softmax" else scores_of(torch, router, values)
    else:
        scores = scores_of(torch, router, logits)
        ids = chosen(torch, router, scores if bias is None else scores + bias)[1]
        weights = scores.gather(1, ids)
        if router.norm_topk_prob:
            weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
    return ids, weights * router.routed_scaling_factor


class FromLogits(Kernel):
    name = "topk"
    about = "score, + bias, groups, topk, gather, normalise, scale: torch functions on fp32 logits"
    takes = "logits"
    logits_types = ("fp32", "bf16", "fp16")
    devices = ("cuda", "cpu")

    def prepare(self, p):
        import torch

        def launch():
            ids, weights = five_lines(torch, p.router, p.logits.float(), p.bias)
            return {"ids": ids, "weights": weights}
        return launch


class Reference(Kernel):
    name = "reference"
    about = "hidden.float() @ gate.float().T in fp32, then the lines of topk"
    hidden_types = ("bf16", "fp16", "fp32")
    gives = ("ids", "weights", "logits")
    devices = ("cuda", "cpu")

    def logits(self, torch, p):
        """A callable: fp32 logits without the gate's bias."""
        return lambda: p.hidden.float() @ p.gate.float().T

    def prepare(self, p):
        import torch
        logits_of = self.logits(torch, p)

        def launch():
            logits = logits_of()
            if p.gate_bias is not None:
                logits = logits + p.gate_bias
            ids, weights = five_lines(torch, p.router, logits.float(), p.bias)
            return {"ids": ids, "weights": weights, "logits": logits}
        return launch


class Narrow(Reference):
    """A GEMM on operands as they are stored: both bf16, or both fp16."""
    hidden_types = ("bf16", "fp16")

    def check(self, p):
        if p.hidden.dtype != p.gate.dtype:
            raise Unsupported(f"the gate weight is {str(p.gate.dtype)[6:]}, the hidden states "
                              f"{str(p.hidden.dtype)[6:]}")


class Bf16Logits(Narrow):
    name = "bf16_logits"
    about = "torch.mm of bf16 operands, logits rounded to bf16, then the lines of topk in fp32"
    hidden_types = ("bf16",)

    def refuses(self, router, rows):
        return "its gate's bias would be added in bf16: that is no one rounding" if router.gate_bias \
            else None

    def arithmetic(self, router, rows):
        return "bf16-logits"

    def logits(self, torch, p):
        self.check(p)
        return lambda: torch.mm(p.hidden, p.gate.T)


class Fp32Out(Narrow):
    name = "mm_fp32_out"
    about = "torch.mm of bf16 operands with out_dtype=torch.float32, then the lines of topk"
    devices = ("cuda",)

    def logits(self, torch, p):
        self.check(p)
        return lambda: torch.mm(p.hidden, p.gate.T, out_dtype=torch.float32)


class Tf32(Reference):
    name = "reference_tf32"
    about = "the reference with torch.backends.cuda.matmul.allow_tf32: bf16 operands lose nothing by it"
    devices = ("cuda",)
    hidden_types = ("bf16",)

    def logits(self, torch, p):
        if p.gate.dtype != torch.bfloat16:
            raise Unsupported("a gate weight that TF32 would round: no arithmetic line says that")
        matmul = torch.backends.cuda.matmul

        def product():
            before, matmul.allow_tf32 = matmul.allow_tf32, True
            try:
                return p.hidden.float() @ p.gate.float().T
            finally:
                matmul.allow_tf32 = before
        return product


class Compiled(Reference):
    name = "reference_compiled"
    about = "the reference under torch.compile (Inductor)"
    compiles = True

    def prepare(self, p):
        def lines(torch, router, hidden, gate, bias, gate_bias):
            logits = hidden.float() @ gate.float().T
            if gate_bias is not None:
                logits = logits + gate_bias
            return (*five_lines(torch, router, logits, bias), logits)
        run = compiled(self.name, p, lines)
        return lambda: dict(zip(("ids", "weights", "logits"),
                                run(p.hidden, p.gate, p.bias, p.gate_bias)))


class CompiledTopk(FromLogits):
    name = "topk_compiled"
    about = "the lines of topk under torch.compile (Inductor)"
    compiles = True

    def prepare(self, p):
        run = compiled(self.name, p, lambda torch, router, logits, bias:
                       five_lines(torch, router, logits.float(), bias))
        return lambda: dict(zip(("ids", "weights"), run(p.logits, p.bias)))


_compiled = {}


def compiled(name, p, lines):
    """One for a router: 1 row has code of its own, all others share what Inductor makes for any
    number of rows."""
    import torch
    at = name, p.router
    if at not in _compiled:
        _compiled[at] = torch.compile(lambda *tensors: lines(torch, p.router, *tensors), fullgraph=True)
    return _compiled[at]


def kernels(found):
    return [FromLogits(), Reference(), Bf16Logits(), Fp32Out(), Tf32(), Compiled(), CompiledTopk()]
