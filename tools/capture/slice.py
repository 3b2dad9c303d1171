#!/usr/bin/env python3
"""Cuts the full captures down to what data/captures holds: slice.py SOURCE data/captures

SOURCE holds NAME-config.json, NAME-router.safetensors and NAME-capture.safetensors for the two
models. Kept: all layers; the first 128 tokens of prefill, all of decode; routers without the shared
expert. Same input, same bytes. Plain Python, no packages.
"""
import json
import os
import re
import shutil
import struct
import sys

WIDTH = {"F32": 4, "I32": 4, "BF16": 2}
ROWS = {"prefill": 128, "decode": 128}
ORIGIN = ("{model} byte-level MoE of the moeref project, trained on Python source and "
          "documentation, run in bf16 on an H200 with transformers 5.17's own forward; Apache-2.0")


def read(path):
    with open(path, "rb") as f:
        data = f.read()
    n, = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + n])
    header.pop("__metadata__", None)
    for name, t in header.items():
        a, b = t["data_offsets"]
        yield name, t["dtype"], t["shape"], data[8 + n + a:8 + n + b]


def write(path, tensors, metadata):
    """By falling width, then name: every tensor is aligned to its element."""
    tensors = sorted(tensors, key=lambda t: (-WIDTH[t[1]], t[0]))
    header, at = {"__metadata__": metadata}, 0
    for name, dtype, shape, data in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(t[3] for t in tensors))
    print(f"{path}: {len(tensors)} tensors, {os.path.getsize(path)} bytes")


def routers(tensors):
    for t in tensors:
        if ".mlp.gate." in t[0]:
            yield t


def rows(tensors):
    for name, dtype, shape, data in tensors:
        phase, rest = name.split(".", 1)
        if not re.search(r"\.mlp\.(gate\.(input|logits)|topk_ids|topk_weights)$", rest):
            continue
        n = min(ROWS[phase], shape[0])
        yield name, dtype, [n] + shape[1:], data[:n * (len(data) // shape[0])]


def main():
    source, target = sys.argv[1:]
    for model in ("glm4moe-tiny", "qwen3moe-tiny"):
        folder = os.path.join(target, model)
        os.makedirs(folder, exist_ok=True)
        at = os.path.join(source, model)
        origin = ORIGIN.format(model=model)
        shutil.copyfile(at + "-config.json", os.path.join(folder, "config.json"))
        write(os.path.join(folder, "router.safetensors"), routers(read(at + "-router.safetensors")),
              {"format": "pt", "origin": origin})
        write(os.path.join(folder, "capture.safetensors"), rows(read(at + "-capture.safetensors")),
              {"format": "pt", "origin": origin, "rows": "prefill: first 128 of 1024 tokens; "
               "decode: 16 sequences x 8 steps"})


if __name__ == "__main__":
    main()
