#!/usr/bin/env python3
"""Stores operands of tensor-core steps in their own types: narrow.py F.safetensors OUT.safetensors

GPU.FORMAT.a and .b of bf16, fp16, E4M3 and E5M2, that came as binary32 words (text files of the
recordings' authors), become BF16, F16, F8_E4M3 and F8_E5M2; all else stays. Fails unless each word
comes back. Same input, same bytes. Plain Python, no packages.
"""
import json
import struct
import sys


def half(code):
    return struct.unpack("<e", struct.pack("<H", code))[0]


def e5m2(code):
    return half(code << 8)


def e4m3(code):
    exponent, fraction = code >> 3 & 15, code & 7
    value = fraction * 2.0**-9 if not exponent else (8 + fraction) * 2.0**(exponent - 10)
    return -value if code & 128 else value


def words(decode, codes, skip):
    """{binary32 word: code} of the numbers of a format."""
    return {struct.unpack("<I", struct.pack("<f", decode(c)))[0]: c for c in codes if not skip(c)}


FORMATS = {
    "bf16": ("BF16", "H", {c << 16: c for c in range(1 << 16)}),
    "fp16": ("F16", "H", words(half, range(1 << 16), lambda c: c >> 10 & 31 == 31)),
    "E4M3": ("F8_E4M3", "B", words(e4m3, range(256), lambda c: c & 127 == 127)),
    "E5M2": ("F8_E5M2", "B", words(e5m2, range(256), lambda c: c >> 2 & 31 == 31)),
}


def narrow(name, entry, data):
    _, kind, what = name.split(".")
    if what not in "ab" or kind not in FORMATS or entry["dtype"] != "F32":
        return entry["dtype"], data
    dtype, letter, code = FORMATS[kind]
    found = struct.unpack(f"<{len(data) // 4}I", data)
    try:
        return dtype, struct.pack(f"<{len(found)}{letter}", *(code[w] for w in found))
    except KeyError as word:
        sys.exit(f"{name}: {int(str(word)):#010x} is no {kind} number")


def main():
    source, target = sys.argv[1:]
    with open(source, "rb") as f:
        data = f.read()
    n, = struct.unpack_from("<Q", data)
    header, out, at, body = json.loads(data[8:8 + n]), {}, 0, b""
    if "__metadata__" in header:
        out["__metadata__"] = header.pop("__metadata__")
    tensors = []
    for name, entry in header.items():
        a, b = entry["data_offsets"]
        tensors.append((name, entry["shape"], *narrow(name, entry, data[8 + n + a:8 + n + b])))
    # By falling width, then name: every tensor is aligned to its element.
    tensors.sort(key=lambda t: (-{"F32": 4, "BF16": 2, "F16": 2}.get(t[2], 1), t[0]))
    for name, shape, dtype, part in tensors:
        out[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(part)]}
        at, body = at + len(part), body + part
    text = json.dumps(out, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(target, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + body)


if __name__ == "__main__":
    main()
