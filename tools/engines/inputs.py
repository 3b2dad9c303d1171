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


def encodings(torch, tensor):
    """The bits as integers, as wide as the size allows."""
    raw = tensor.reshape(-1).view(torch.uint8)
    for width, kind in ((8, torch.int64), (4, torch.int32)):
        if raw.numel() % width == 0 and raw.storage_offset() % width == 0:
            return raw.view(kind)
    return raw


class Stock:
    """Layers of cases on the device, read once for all kernels of a child. The largest case has tens of
    megabytes; beyond MOST bytes all is read anew."""

    MOST = 4 << 30

    def __init__(self, device):
        self.device, self.layers, self.bytes = device, {}, 0

    def of(self, case, phase, layer):
        """{hidden, gate, bias, gate_bias, logits}: None where absent; biases are fp32."""
        at = case.path, phase, layer
        if at not in self.layers:
            if self.bytes > self.MOST:
                self.layers, self.bytes = {}, 0
            given = {k: v if v is None else v.to(self.device).contiguous()
                     for k, v in case.inputs(phase, layer).items()}
            for k in ("bias", "gate_bias"):
                if given[k] is not None:
                    given[k] = given[k].float()
            self.bytes += sum(v.nbytes for v in given.values() if v is not None)
            self.layers[at] = given
        return self.layers[at]


class Inputs:
    def __init__(self, torch, case, kernel, phase, layer, stock):
        self.torch, self.router, self.device = torch, case.router, stock.device
        given = stock.of(case, phase, layer)
        self.fixed = {k: given[k] for k in ("bias", "gate_bias", "gate") if given[k] is not None}
        self.source = self.rows_of(case, kernel, given)
        self.names = [*self.fixed, *self.source]
        self.tokens = next(iter(self.source.values())).shape[0]
        self.sums = self.sum()

    def rows_of(self, case, kernel, given):
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
        bias = given["bias"].cpu().numpy() if given["bias"] is not None else None
        ids = books.choose(case.router, logits.double().cpu().numpy()[:, :case.router.experts], bias)
        return {"ids": self.torch.from_numpy(ids).to(self.device)}

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

    def changed(self, into):
        """Writes into a tensor, for each of .names, whether the input is what it was, bit for bit (0)."""
        both = [(self.live[k], v) for k, v in self.fixed.items()] + \
            [(self.block[k], v) for k, v in self.want.items()]
        for i, (a, b) in enumerate(both):
            into[i] = (encodings(self.torch, a) != encodings(self.torch, b)).any()

    def sum(self):
        """Of what all inputs come from: a kernel that writes far from its outputs may hit it."""
        return self.torch.stack([encodings(self.torch, v).sum(dtype=self.torch.int64)
                                 for v in (*self.fixed.values(), *self.source.values())])
