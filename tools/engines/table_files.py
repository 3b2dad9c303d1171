"""Recordings of kernels: safetensors files named ENGINE.KERNEL.mROWS.safetensors, read as encodings; and
what run.py wrote down of those that did not run. Needs numpy only."""
import json
import re
from pathlib import Path

import numpy as np

NAME = re.compile(r"(?P<kernel>.+)\.m(?P<rows>\d+)(\.(?P<kind>logits|sorted))?\.safetensors$")
TENSOR = re.compile(r"(?P<phase>.+)\.model\.layers\.(?P<layer>\d+)\.mlp\."
                    r"(?P<what>topk_ids|topk_weights|gate\.logits|gate\.token_index)$")
# Without a type of numpy's own: only the bits are asked for.
TYPES = {"I64": np.int64, "I32": np.int32, "I16": np.int16, "I8": np.int8, "U64": np.uint64,
         "U32": np.uint32, "U16": np.uint16, "U8": np.uint8, "F64": np.float64, "F32": np.float32,
         "F16": np.uint16, "BF16": np.uint16}


class Bad(Exception):
    """One line: which file, and what is wrong with it."""


class Safetensors:
    """huggingface/safetensors README, "Format": u64 header length, JSON header, data."""

    def __init__(self, path):
        self.path = Path(path)
        try:
            with open(path, "rb") as f:
                size = int.from_bytes(f.read(8), "little")
                header = json.loads(f.read(min(size, 100 << 20)))
            self.metadata = header.pop("__metadata__", {})
            self.header, self.base = header, 8 + size
        except (OSError, ValueError, AttributeError) as e:
            raise Bad(f"{path}: {e}") from None

    def tensor(self, name):
        """As stored: [rows, columns] or [rows]; of 16-bit floats the bits."""
        try:
            entry = self.header[name]
            dtype, shape = np.dtype(TYPES[entry["dtype"]]), entry["shape"]
            begin, end = entry["data_offsets"]
            data = np.memmap(self.path, np.uint8, "r", self.base + begin, end - begin) \
                if end > begin else np.zeros(0, np.uint8)
            return np.frombuffer(data, dtype).reshape(shape)
        except (OSError, KeyError, ValueError, TypeError) as e:
            raise Bad(f"{self.path}: {name}: {e}") from None


class Recording(Safetensors):
    """One kernel at one row count on one case."""

    def __init__(self, path):
        super().__init__(path)
        m = NAME.match(self.path.name)
        self.rows, self.kind = int(m["rows"]), m["kind"] or "main"
        self.kernel = self.metadata.get("kernel") or m["kernel"]
        self.engine = self.metadata.get("engine") or self.kernel.split(".")[0]
        self.case = self.metadata.get("case") or ""
        if not self.case:
            raise Bad(f"{path}: its metadata name no case")
        self.layers = {}  # (phase, layer) -> {what: tensor name}
        for name in self.header:
            t = TENSOR.match(name)
            if t:
                self.layers.setdefault((t["phase"], int(t["layer"])), {})[t["what"]] = name

    def get(self, at, what):
        """[rows, ...], or None."""
        name = self.layers[at].get(what)
        return None if name is None else self.tensor(name)

    def tokens(self, at):
        """The token of each row."""
        index = self.get(at, "gate.token_index")
        if index is not None:
            return index
        first = next(iter(self.layers[at].values()))
        return np.arange(self.header[first]["shape"][0], dtype=np.int64)


def bits(tensor):
    """[rows, bytes]"""
    rows = tensor.shape[0]
    return np.ascontiguousarray(tensor).view(np.uint8).reshape(rows, -1)


def records_of(document):
    """The records in a JSON file of run.py: {"records": [...]}, or the list itself."""
    found = document.get("records", []) if isinstance(document, dict) else document
    if not isinstance(found, list):
        return []
    return [r for r in found if isinstance(r, dict) and "status" in r and "kernel" in r]


def collect(folders):
    """(recordings, records, faults) of all folders. A record is what run.py said of one kernel, case
    and row count; a fault is a line about a file that cannot be read."""
    recordings, records, faults = [], [], []
    for folder in map(Path, folders):
        if not folder.is_dir():
            raise Bad(f"{folder}: no folder")
        for path in sorted(folder.rglob("*.m*.safetensors")):
            try:
                if NAME.match(path.name):
                    recordings.append(Recording(path))
            except Bad as e:
                faults.append(str(e))
        for path in sorted([*folder.rglob("*.json"), *folder.rglob("records.jsonl")]):
            try:
                text = path.read_text()
                records += records_of(json.loads(text) if path.suffix == ".json" else
                                      [json.loads(line) for line in text.splitlines()])
            except (OSError, ValueError):
                pass  # some other file: cases are read when they are needed
    # The same run's, as they came and at its end.
    unique = {json.dumps(r, sort_keys=True): r for r in records}
    return recordings, list(unique.values()), faults
