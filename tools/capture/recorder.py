"""What a router saw and said, as rows of a spool; used by capture.py and by hooks.py alike."""
import re

import torch

from layout import CaptureError

DTYPES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16",
          torch.int32: "I32"}
PHASE = re.compile(r"[A-Za-z0-9_-]{1,64}$")


def check_phase(name):
    if not isinstance(name, str) or not PHASE.match(name):
        raise CaptureError(f"phase {name!r}: expected letters, digits, _ and -")
    return name


def dtype_name(t, what):
    if t.dtype not in DTYPES:
        raise CaptureError(f"{what}: moeref reads no {t.dtype} here")
    return DTYPES[t.dtype]


def raw(t):
    """The bytes of each row, [rows, bytes], on the CPU."""
    return t.detach().contiguous().cpu().view(torch.uint8)


def stored(t, what):
    """(dtype, shape, pieces) of a tensor for write_safetensors; a leading 1 (ERNIE's bias) goes."""
    t = t.detach()
    if t.dim() == 2 and t.shape[0] == 1 and "bias" in what:
        t = t[0]
    return dtype_name(t, what), tuple(t.shape), lambda: iter([raw(t.reshape(-1)).numpy().tobytes()])


class Recorder:
    """The first max_rows rows (None: all) of each layer and phase."""

    def __init__(self, spool, max_rows=None):
        if max_rows is not None and max_rows < 1:
            raise CaptureError(f"max_rows {max_rows}: expected at least 1")
        self.spool, self.max_rows = spool, max_rows

    def left(self, phase, layer):
        if self.max_rows is None:
            return None
        return self.max_rows - self.spool.rows.get((phase, layer), 0)

    def add(self, phase, layer, hidden, logits, ids, weights):
        """Tensors of rows; logits, or ids with weights, may be None."""
        left = self.left(phase, layer)
        if left is not None and left <= 0:
            return
        hidden = hidden.reshape(-1, hidden.shape[-1])
        given = [("gate.input", hidden), ("gate.logits", logits),
                 ("topk_ids", None if ids is None else ids.to(torch.int32)),
                 ("topk_weights", weights)]
        columns, parts = [], []
        for what, t in given:
            if t is None:
                continue
            t = t.reshape(-1, t.shape[-1])
            if t.shape[0] != hidden.shape[0]:
                raise CaptureError(f"layer {layer}: {what}: {t.shape[0]} rows for "
                                   f"{hidden.shape[0]} hidden states")
            t = t[:left]
            columns.append((what, dtype_name(t, f"layer {layer}: {what}"), t.shape[1]))
            parts.append(raw(t))
        if parts[0].shape[0]:
            block = torch.cat(parts, 1).contiguous()
            self.spool.append(phase, layer, columns, block.numpy(), block.shape[0])
