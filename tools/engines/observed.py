"""Poisoned outputs, and the files that `moeref verify --observed` reads.

Every output byte is 0xff before one run and 0x7b before another (a legal value can equal one of
them). Outputs of problem.empty lie between canaries. What an engine allocates itself comes out of
torch's caching allocator: there all free blocks are filled first, as the allocator's snapshot lists
them. That misses a block that the driver hands out fresh (the first launch of a row count is not
compared for that reason), pools of CUDA graphs, and allocators of an engine's own; such memory holds
the same old bytes in both runs, and an unwritten element in it is then not seen.
"""
import json
import struct

import numpy as np

from output_file import output_file

POISONS = (0xFF, 0x7B)
CANARY = 0xA5
MARGIN = 512  # bytes of canary on either side, and so the alignment of outputs

SAFETENSORS = {"torch.float32": "F32", "torch.float64": "F64", "torch.bfloat16": "BF16",
               "torch.float16": "F16", "torch.int32": "I32", "torch.int64": "I64",
               "torch.int16": "I16", "torch.uint8": "U8"}


class _Raw:
    """Memory of the device that no tensor holds."""

    def __init__(self, address, size):
        self.__cuda_array_interface__ = {"shape": (size,), "typestr": "|u1",
                                         "data": (address, False), "version": 3}


class Outputs:
    """problem.empty. `poison` None: plain torch.empty, for timing."""

    def __init__(self, torch, device):
        self.torch, self.device = torch, device
        self.poison, self.preparing = POISONS[0], True
        self.kept, self.passing = [], []  # of prepare: poisoned before each run; of one launch
        self.views = {}  # of free blocks

    def __call__(self, shape, dtype):
        torch = self.torch
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        if self.poison is None:
            return torch.empty(shape, dtype=dtype, device=self.device)
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        raw = torch.full((2 * MARGIN + size,), CANARY, dtype=torch.uint8, device=self.device)
        body = raw[MARGIN:MARGIN + size]
        body.fill_(self.poison)
        (self.kept if self.preparing else self.passing).append((raw, size))
        return body.view(dtype).view(shape)

    def before(self, poison, own_sizes):
        """Before a run. own_sizes: bytes of outputs that the engine allocates itself."""
        self.passing, self.poison, self.preparing = [], poison, False
        for raw, size in self.kept:
            raw[MARGIN:MARGIN + size].fill_(poison)
        if self.device.type == "cuda":
            self.fill_free(poison)
        blocks = [self.torch.full((n,), poison, dtype=self.torch.uint8, device=self.device)
                  for n in own_sizes for _ in range(2)]
        del blocks

    def fill_free(self, poison):
        """Waits only where a block belongs to another stream: on ours, fills come after what was there."""
        torch = self.torch
        here, waited = torch.cuda.current_stream(self.device).cuda_stream, False
        for segment in torch.cuda.memory_snapshot(include_traces=False):
            if tuple(segment.get("segment_pool_id", (0, 0))) != (0, 0):
                continue
            if segment["stream"] != here and not waited:
                torch.cuda.synchronize()
                waited = True
            address = segment["address"]
            for block in segment["blocks"]:
                if block["state"] == "inactive":
                    self.view(address, block["size"]).fill_(poison)
                address += block["size"]
        if waited:
            torch.cuda.synchronize()

    def view(self, address, size):
        if (address, size) not in self.views:
            self.views[address, size] = self.torch.as_tensor(_Raw(address, size), device=self.device)
        return self.views[address, size]

    def canaries(self, into):
        """Adds the bytes around outputs that have changed to a tensor of one integer."""
        rings = [raw.as_strided((2, MARGIN), (MARGIN + size, 1)) for raw, size in self.kept + self.passing]
        if rings:
            into += (self.torch.stack(rings) != CANARY).sum()

    def owns(self, tensor):
        at = tensor.untyped_storage().data_ptr()
        return any(raw.untyped_storage().data_ptr() == at for raw, _ in self.kept + self.passing)


def narrow_ids(ids):
    """As I32 where that loses nothing: what the judge reads, and small."""
    import torch
    wide = ids.to(torch.int64)
    fits = not wide.numel() or (-2**31 <= int(wide.min()) and int(wide.max()) < 2**31)
    return wide.to(torch.int32) if fits else wide


def write(path, tensors, metadata):
    """tensors: {name: (safetensors dtype, shape, bytes)}. The file has its name when it is whole."""
    header, at = {"__metadata__": metadata}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with output_file(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            f.write(data)
