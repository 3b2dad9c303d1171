"""A layer's tensors on the device, and the buffers that launches of one row count read. These are
filled anew before each run, so that a kernel that writes its input is seen and does no further harm."""
import books
from case import BadCase
from engine import Problem, Unsupported

TORCH = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


def converted(torch, tensor, types, what):
    """The stored type if the kernel takes it, else fp32, which holds all, else whichever does."""
    short = {getattr(torch, v): k for k, v in TORCH.items()}
    if short.get(tensor.dtype) in types:
        return tensor
    for kind in ("fp32", "bf16", "fp16"):
        if kind not in types:
            continue
        to = tensor.to(getattr(torch, TORCH[kind]))
        same = (to.double() == tensor.double()) | (to.isnan() & tensor.isnan())
        if bool(same.all()):
            return to
    raise Unsupported(f"{what} of {short.get(tensor.dtype, tensor.dtype)} are no numbers of "
                      f"{' or '.join(types)}")


class Inputs:
    def __init__(self, torch, case, kernel, phase, layer, device):
        self.torch, self.router, self.device = torch, case.router, device
        given = case.inputs(phase, layer)
        wide = {k: given[k].float() for k in ("bias", "gate_bias") if given[k] is not None}
        fixed = {**wide, **({} if given["gate"] is None else {"gate": given["gate"]})}
        self.fixed = {k: v.to(device).contiguous() for k, v in fixed.items()}
        self.source = {k: v.to(device) for k, v in self.rows_of(case, kernel, given, wide).items()}
        self.tokens = next(iter(self.source.values())).shape[0]

    def rows_of(self, case, kernel, given, wide):
        """What has a row for each token."""
        if kernel.takes == "hidden":
            if given["hidden"] is None:
                raise Unsupported("takes hidden states, and the case starts from logits")
            return {"hidden": converted(self.torch, given["hidden"], kernel.hidden_types,
                                        "hidden states")}
        logits = given["logits"]
        if logits is None:
            raise BadCase(f"{case.path}: {kernel.name} takes {kernel.takes}, and this case is of "
                          "hidden states")
        if logits.shape[1] not in (case.router.experts, case.stride):
            raise BadCase(f"{case.path}: logits of {logits.shape[1]} columns")
        if kernel.takes == "logits":
            return {"logits": converted(self.torch, logits, kernel.logits_types, "logits")}
        bias = wide["bias"].numpy() if "bias" in wide else None
        ids = books.choose(case.router, logits.double().numpy()[:, :case.router.experts], bias)
        return {"ids": self.torch.from_numpy(ids)}

    def problem(self, rows, empty):
        """The buffers. Where the case has a row stride, logits are columns of wider rows."""
        self.live = {k: v.clone() for k, v in self.fixed.items()}
        self.block = {k: self.torch.empty((rows, v.shape[1]), dtype=v.dtype, device=self.device)
                      for k, v in self.source.items()}
        seen = {**self.live, **self.block}
        if "logits" in seen:
            seen["logits"] = seen["logits"][:, :self.router.experts]
        parts = {k: seen.get(k) for k in ("hidden", "gate", "bias", "gate_bias", "logits", "ids")}
        return Problem(router=self.router, rows=rows, device=self.device, empty=empty, **parts)

    def fill(self, tokens):
        self.want = {k: v[tokens] for k, v in self.source.items()}
        for buffers, values in ((self.live, self.fixed), (self.block, self.want)):
            for k, v in values.items():
                buffers[k].copy_(v)

    def changed(self):
        """Names of inputs that are no longer what they were, bit for bit."""
        raw = self.torch.uint8
        both = [(k, buffers[k], v) for buffers, values in
                ((self.live, self.fixed), (self.block, self.want)) for k, v in values.items()]
        return [k for k, a, b in both
                if not self.torch.equal(a.reshape(-1).view(raw), b.reshape(-1).view(raw))]
