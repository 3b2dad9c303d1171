"""One of our kernels at one row count: what gpu/session.c does, with torch's memory and streams."""
from ctypes import byref, c_void_p

import torch

import harness_abi as abi
from engine import Unsupported

DTYPES = {abi.BF16: torch.bfloat16, abi.FP16: torch.float16, abi.FP32: torch.float32}
ALIGNMENT = {"cuda": 256, "cpu": 16}


def _type(tensor, accepted, what, rows_change):
    """The accepted type that holds all values of a tensor: its own, else fp32, else whichever does. What
    rows hold changes from launch to launch, and may only be widened."""
    own = next((t for t, d in DTYPES.items() if d == tensor.dtype), 0)
    if own & accepted:
        return own
    if own and accepted & abi.FP32:
        return abi.FP32
    for t in (abi.BF16, abi.FP16):
        if not rows_change and t & accepted and torch.equal(
                tensor.to(DTYPES[t]).double().nan_to_num(7.0), tensor.double().nan_to_num(7.0)):
            return t
    raise Unsupported(f"{what} of {tensor.dtype} would have to be rounded")


def _sorted_most(rows, router, tile):
    chosen = rows * router.top_k
    return -(-(chosen + min(chosen, router.experts) * (tile - 1)) // tile) * tile


class Session:
    """Callable: a launch. Holds all memory that the kernel was given a pointer of."""

    def __init__(self, kernel, ask, problem):
        self.kernel, self.ask, self.problem = kernel, ask, problem
        self.device, self.handle, self.ready = problem.device, c_void_p(), False
        self.copied, self.held, self.out = [], [], {}
        self.buffers = b = abi.Buffers()
        self._inputs(b)
        refusal = abi.refusal(kernel, ask)
        if refusal:
            raise Unsupported(refusal)
        self._outputs(b)
        size = abi.sizes(kernel, ask)
        b.state, b.scratch = self._bytes(size.state, 0xff), self._bytes(size.scratch, 0xff)
        if kernel.prepare:
            abi.call("prepare", kernel.prepare, byref(ask), byref(b), self._stream(), byref(self.handle))
        self.ready = True
        # Launches may be on another stream.
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def _stream(self):
        return torch.cuda.current_stream(self.device).cuda_stream if self.device.type == "cuda" else None

    def _bytes(self, size, byte):
        if not size:
            return None
        self.held.append(torch.full((size,), byte, dtype=torch.uint8, device=self.device))
        return self.held[-1].data_ptr()

    def _input(self, name, accepted, rows_change):
        """A pointer to a tensor of the problem: its own, or of a copy that is of another type or
        aligned. What changes from launch to launch is copied again by each."""
        tensor = getattr(self.problem, name)
        if tensor is None:
            raise Unsupported(f"no {name} in the case")
        kind = _type(tensor, accepted, name, rows_change)
        own = tensor
        if tensor.dtype != DTYPES[kind] or tensor.data_ptr() % ALIGNMENT[self.device.type] or \
                not tensor.is_contiguous():
            own = torch.empty(tensor.shape, dtype=DTYPES[kind], device=self.device)
            own.copy_(tensor)
            if rows_change:
                self.copied.append((own, tensor))
        self.held.append(own)
        return own.data_ptr(), kind

    def _inputs(self, b):
        k, r = self.kernel, self.problem.router
        if k.hidden_types:
            b.hidden, self.ask.hidden_type = self._input("hidden", k.hidden_types, True)
            b.gate, self.ask.gate_type = self._input("gate", k.gate_types, False)
            if r.gate_bias:
                b.gate_bias, _ = self._input("gate_bias", abi.FP32, False)
        else:
            b.given, self.ask.given_type = self._input("logits", k.given_types, True)
        if r.bias:
            b.bias, _ = self._input("bias", abi.FP32, False)

    def _output(self, name, shape, dtype):
        self.out[name] = self.problem.empty(shape, dtype)
        return self.out[name].data_ptr()

    def _outputs(self, b):
        k, r, rows = self.kernel, self.problem.router, self.problem.rows
        if k.gives & abi.LOGITS:
            b.logits = self._output("logits", (rows, r.experts), DTYPES[k.logits_type])
        if k.gives & abi.IDS:
            b.ids = self._output("ids", (rows, r.top_k), torch.int32)
        if k.gives & abi.WEIGHTS:
            b.weights = self._output("weights", (rows, r.top_k), DTYPES[k.weights_type])
        if k.gives & abi.COUNTS:  # the runner has no name for them
            b.counts = self._bytes(4 * r.experts, 0xff)
        if k.gives & abi.SORTED:
            b.sorted_most = _sorted_most(rows, r, k.tile)
            b.sorted = self._output("sorted", (b.sorted_most,), torch.int32)
            b.sorted_total = self._output("sorted_total", (1,), torch.int32)
            b.tile_expert = self._output("tile_expert", (b.sorted_most // k.tile,), torch.int32)

    def __call__(self):
        for own, tensor in self.copied:
            own.copy_(tensor)
        abi.call("launch", self.kernel.launch, self.handle, byref(self.ask), byref(self.buffers),
                 self._stream())
        return self.out

    def __del__(self):
        if getattr(self, "ready", False) and self.kernel.release:
            self.kernel.release(self.handle)
