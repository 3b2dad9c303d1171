"""What the checks of tools/capture share."""
import json
import os
import subprocess
import sys

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
TOOLS = os.path.join(HERE, "..", "..", "tools", "capture")
sys.path.insert(0, TOOLS)

import torch

from layout import CaptureError, read_header

VERDICTS = ("exact", "tie", "rounding", "undecided", "wrong", "malformed", "nonfinite")


class Checks:
    def __init__(self, moeref):
        self.moeref, self.done, self.failed = moeref, 0, 0

    def that(self, true, text):
        self.done += 1
        if not true:
            self.failed += 1
            print(f"FAILED: {text}")
        return bool(true)

    def refuses(self, call, words, text):
        try:
            call()
        except CaptureError as e:
            self.that(words in str(e) and "\n" not in str(e), f"{text}: refused with: {e}")
        else:
            self.that(False, f"{text}: was not refused")

    def json(self, *args):
        """(exit status, what the command says as JSON)"""
        r = subprocess.run([self.moeref, *args, "--json", "-", "-q"], capture_output=True, text=True)
        try:
            return r.returncode, json.loads(r.stdout)
        except ValueError:
            print(r.stderr.strip())
            return r.returncode, None

    def good(self, case, what, rows):
        """route proves and verify excuses every row of a capture. Returns verify's JSON."""
        status, routed = self.json("route", case)
        self.that(status == 0 and routed, f"{what}: route exits {status}")
        status, judged = self.json("verify", case)
        if not self.that(status == 0 and judged, f"{what}: verify exits {status}"):
            return None
        v = judged["verdicts"]
        self.that(v["exact"] + v["tie"] + v["rounding"] == rows == sum(v[k] for k in VERDICTS),
                  f"{what}: expected {rows} rows without fault, found {v}")
        return judged


def tensors(path):
    """name -> (dtype, shape, bytes)"""
    header, base = read_header(path)
    with open(path, "rb") as f:
        data = f.read()[base:]
    return {name: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])])
            for name, t in header.items()}


def prompt(rows, length, device, seed=3):
    g = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (rows, length), generator=g).to(device)


def generate(model, x, steps):
    """A prefill of x, and as many steps of decoding."""
    with torch.inference_mode():
        given = model(input_ids=x, use_cache=True)
        for _ in range(steps):
            x = given.logits[:, -1:].argmax(-1)
            given = model(input_ids=x, past_key_values=given.past_key_values, use_cache=True)
