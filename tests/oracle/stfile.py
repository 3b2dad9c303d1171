"""Reads safetensors files with struct, json and numpy only.

Format: huggingface/safetensors README, "Format": u64 header length, JSON header, data.
"""
import json
import struct

import numpy as np

# BF16 has no numpy type: its bits come as uint16 and formats.py gives them a meaning.
STORAGE = {"BF16": "<u2", "F16": "<u2", "F32": "<u4", "F64": "<u8", "I32": "<i4", "I64": "<i8",
           "U8": "u1"}


class Tensor:
    """Stored bits (unsigned integers for floating-point dtypes) and the dtype that reads them."""

    def __init__(self, dtype, bits):
        self.dtype = dtype
        self.bits = bits

    @property
    def shape(self):
        return self.bits.shape

    def f64(self):
        """Exact values; every dtype but F64 widens without rounding."""
        if self.dtype == "BF16":
            return (self.bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
        if self.dtype in ("F16", "F32", "F64"):
            kind = {"F16": np.float16, "F32": np.float32, "F64": np.float64}[self.dtype]
            return np.ascontiguousarray(self.bits).view(kind).astype(np.float64)
        raise TypeError("no floating-point dtype: " + self.dtype)


class File:
    def __init__(self, path):
        self.path = path
        with open(path, "rb") as f:
            (size,) = struct.unpack("<Q", f.read(8))
            self.header = json.loads(f.read(size))
            self.base = 8 + size
        self.metadata = self.header.pop("__metadata__", {})

    def names(self):
        return list(self.header)

    def __contains__(self, name):
        return name in self.header

    def __getitem__(self, name):
        entry = self.header[name]
        begin, end = entry["data_offsets"]
        storage = np.dtype(STORAGE[entry["dtype"]])
        with open(self.path, "rb") as f:
            f.seek(self.base + begin)
            raw = f.read(end - begin)
        if len(raw) != end - begin:
            raise ValueError(f"{self.path}: {name}: truncated")
        return Tensor(entry["dtype"], np.frombuffer(raw, storage).reshape(entry["shape"]))
