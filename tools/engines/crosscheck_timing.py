#!/usr/bin/env python3
"""Do timing.py and `moeref-gpu bench` say the same of the same kernels? On a machine with a GPU:

    python3 tools/engines/crosscheck_timing.py [--kernels K,K] [--rows 1,6,16,96,1024] [--repeats N]
        [--gpu build/moeref-gpu] [--case cases/glm-5.3-flash.json] [--json FILE]

Both time the very same code on the same device, one after the other: the bench by CUPTI from C, this
by torch's profiler. Floors are compared, too. Two medians agree if each lies between the other's 10th
and 90th percentile, widened by one step of the device's clock (STEP): spans are differences of two
readings of it. Exit status 1 if any disagree, or if either timed by something else than records of
kernels; 3 if one of the two cannot be run.

The bench has no percentiles, only how far they are apart: half of that on either side stands for them.
Where there is no moeref that exports, CASE is an exported one, with its fp32-logits twin beside it.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
import torch

import for_moeref
import harness_abi as abi
import timing
from case import BadCase, Case, Exported
from engine import Unsupported
from inputs import Inputs

STEP = 0.032
KERNELS = "single,single_sorted,pair,tiny_gemm_16,fused_topk,routing_stage,naive,cublas,merged_front"


def bench_kernel(a, kernel):
    """The bench's JSON. It takes one kernel."""
    command = [a.gpu, "bench", a.case, "--kernel", kernel, "--rows", a.rows, "--repeats",
               str(a.repeats), "--json", "-"]
    try:
        ran = subprocess.run(command, capture_output=True, text=True)
        return json.loads(ran.stdout)
    except OSError as e:
        raise BadCase(f"{a.gpu}: {e.strerror}") from None
    except ValueError:
        raise BadCase(f"{a.gpu} bench: status {ran.returncode}: {ran.stderr.strip()}") from None


def bench(a):
    """{(name, rows, pdl): what the bench's JSON says of it}; floors have 0 rows, and are those of the
    first kernel's process."""
    out = {}
    for kernel in a.kernels.split(","):
        document = bench_kernel(a, kernel)
        for name, floor in document["floor"].items():
            if isinstance(floor, dict):
                out.setdefault((name, 0, None), floor)
        out.update({(k["kernel"], k["rows"], k["pdl"]): k for k in document["kernels"]
                    if k["us_cold"] is not None})
    return out


def problem_of(kernel, exported, rows, device):
    """Of the first layer, row r is token r: as the bench has it."""
    _, path = exported.for_kernel(kernel.takes, kernel.logits_types)[0]
    case = Case(path)
    inputs = Inputs(torch, case, kernel, *case.layers[0], device)
    problem = inputs.problem(rows, lambda shape, dtype: torch.empty(shape, dtype=dtype, device=device))
    inputs.fill(torch.arange(rows, device=device) % inputs.tokens)
    return problem


def ours(name, rows, pdl, exported, device, repeats):
    kernel = for_moeref.Own(name, {"cuda": for_moeref.library("cuda")[0]}, pdl is not False)
    launch = kernel.prepare(problem_of(kernel, exported, rows, device))
    return timing.measure(launch, device, repeats=repeats)


def floors_of(exported, device, repeats):
    case = Case(exported.main.path)
    gate = case.inputs(*case.layers[0])["gate"]
    return timing.floors(device, None if gate is None else gate.to(device), repeats=repeats)


def agree(b, cold, us, spread):
    """cold: the key's ending, "" or "_warm"."""
    theirs, half = b["us" + (cold or "_cold")], b["spread" + cold] / 2 + STEP
    return abs(theirs - us) <= half or spread[0] - STEP <= theirs <= spread[1] + STEP


def line(name, rows, pdl, b, t):
    """Prints one comparison; whether it agrees."""
    fine = True
    for ending, us, spread in (("", t["us_cold"], t["spread"]),
                               ("_warm", t["us_warm"], t["spread_warm"])):
        theirs = b["us" + (ending or "_cold")]
        same = agree(b, ending, us, spread)
        fine = fine and same
        print(f"{name:20} {rows or '-':>5} {'-' if pdl is None else 'on' if pdl else 'off':>4} "
              f"{'warm' if ending else 'cold'} {theirs:9.3f} {b['spread' + ending]:8.3f} {us:9.3f} "
              f"{spread[1] - spread[0]:8.3f} {us / theirs:7.3f}  {'' if same else 'DIFFERS'}")
    if b.get("method") != "cupti" or t["how"] != "graph":
        print(f"{'':20} the bench: by {b.get('method')}; here: {t['how']}")
        fine = False
    if b.get("launches") and b["launches"] > t["launches"]:
        print(f"{'':20} the bench saw {b['launches']} kernels, this {t['launches']}: {t['kernels']}")
        fine = False
    return fine


def arguments(argv):
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--kernels", default=KERNELS)
    p.add_argument("--rows", default="1,6,16,96,1024")
    p.add_argument("--repeats", type=int, default=201)
    p.add_argument("--gpu", default=os.path.join(for_moeref.ROOT, "build", "moeref-gpu"))
    p.add_argument("--case", default=os.path.join(for_moeref.ROOT, "cases", "glm-5.3-flash.json"))
    p.add_argument("--json")
    return p.parse_args(argv)


def compare(a, folder):
    """How many were compared, how many differ."""
    exported = Exported(a.case, folder, [])
    begin = time.monotonic()
    theirs = bench(a)
    device, bad, said = torch.device("cuda", 0), 0, []
    print(f"{torch.cuda.get_device_name(0)}, torch {torch.__version__}; the bench took "
          f"{time.monotonic() - begin:.1f} s\n"
          f"{'microseconds':20} {'rows':>5} {'pdl':>4}      {'bench':>9} {'spread':>8} {'timing':>9} "
          f"{'spread':>8} {'ratio':>7}")
    begin = time.monotonic()
    floors = floors_of(exported, device, a.repeats)
    for (name, rows, pdl), b in theirs.items():
        try:
            t = ours(name, rows, pdl, exported, device, a.repeats) if rows else floors[name]
        except Unsupported as e:
            print(f"{name:20} {rows:>5}  {e}")
            bad += 1
            continue
        bad += not line(name, rows, pdl, b, t)
        said.append({"kernel": name, "rows": rows, "pdl": pdl, "bench": b, "timing": t})
    print(f"\n{len(theirs)} compared, {bad} differ; timing.py took {time.monotonic() - begin:.1f} s")
    if a.json:
        with open(a.json, "w") as f:
            json.dump(said, f, indent=1)
    return len(theirs), bad


def main(argv):
    a = arguments(argv)
    try:
        for_moeref.library("cuda")
        if not torch.cuda.is_available():
            raise abi.Refused("no GPU that can be used")
        with tempfile.TemporaryDirectory() as folder:
            count, bad = compare(a, folder)
    except (abi.Refused, BadCase) as e:
        print(f"crosscheck_timing.py: {e}", file=sys.stderr)
        return 3
    return 1 if bad or not count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
