"""What the kernels of SGLang share: imports, and what a router may ask of one of them."""
import importlib

from engine import Kernel, Unsupported


def of(name):
    """A module of sglang. An import that fails is the engine's no, not the runner's fault."""
    try:
        return importlib.import_module("sglang." + name)
    except Exception as e:
        raise Unsupported(f"sglang.{name} does not import: {type(e).__name__}: {e}".splitlines()[0])


def normalises(router):
    """Softmax after the top-k is softmax before it, divided by the selected ones' sum."""
    return router.norm_topk_prob or router.rank_by_logit


class Sglang(Kernel):
    """scores: those it evaluates. bias: True if it needs one, False if it has none, None if it takes
    either. groups: the group score that it has, or None. norm: True if it always divides by the sum."""
    scores = ("sigmoid",)
    by_logit = False  # softmax after the top-k: the same as softmax and normalising
    bias = None
    groups = None
    norm = None
    most_k = None
    most_rows = None
    contiguous = False
    compiles = True

    def refuses(self, router, rows):
        if router.rank_by_logit and not (self.by_logit and router.score == "softmax"):
            return "ranks by score, and this router by logit"
        if router.score not in self.scores:
            return f"scores are {' or '.join(self.scores)}, this router's {router.score}"
        if self.bias is False and router.bias:
            return "has no correction bias"
        if self.bias is True and not router.bias:
            return "needs a correction bias"
        if router.n_group > 1 and self.groups != router.group_score:
            return "has no groups" if self.groups is None else \
                f"group scores are {self.groups}, this router's {router.group_score}"
        if self.norm is True and not normalises(router):
            return "always divides by the sum of the selected scores"
        if self.most_k is not None and router.top_k > self.most_k:
            return f"top_k is at most {self.most_k}"
        if self.most_rows is not None and rows > self.most_rows:
            return f"at most {self.most_rows} rows"
        return self.refuses_shape(router, rows)

    def refuses_shape(self, router, rows):
        return None

    def check(self, p):
        if self.contiguous and p.logits is not None and not p.logits.is_contiguous():
            raise Unsupported("its tensor checks refuse rows that are not contiguous")


def weights_and_ids(p):
    """Outputs that the caller brings: [rows, top_k] fp32 and int32."""
    import torch
    shape = p.rows, p.router.top_k
    return p.empty(shape, torch.float32), p.empty(shape, torch.int32)


def bias_of(p):
    """A bias where the engine asks for one and the router has none: zeros, as its callers pass."""
    import torch
    return p.bias if p.bias is not None else torch.zeros(p.router.experts, device=p.device)


def named(pair):
    """SGLang returns (weights, ids)."""
    return {"weights": pair[0], "ids": pair[1]}
