#!/usr/bin/env python3
"""Do timing.py and `moeref-gpu bench` say the same of the same kernels? On a machine with a GPU:

    python3 tools/engines/crosscheck_timing.py [--kernels K,K] [--rows 1,16,96,1024] [--repeats N]
        [--gpu build/moeref-gpu] [--case cases/glm-5.3-flash.json] [--json FILE] [--seconds S]

Both time the very same code on the same device, one after the other: the bench by CUPTI from C, this
by torch's profiler. Floors are compared, too. Two medians agree if each lies between the other's 10th
and 90th percentile, widened by one step of the device's clock (STEP): spans are differences of two
readings of it. A kernel is compared at the rows that it serves, as its own `supports` says; one that
fails is a line, and the others go on. Exit status 1 if any disagree, fail or are left out when S seconds
(35) are over, or if either timed by something else than records of kernels; 3 if nothing can be run.

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
from inputs import Inputs, Stock
from output_file import output_file

STEP = 0.032
KERNELS = "single,pair,tiny_gemm_16,fused_topk,cublas"


def served(name, router, rows):
    """The row counts at which a kernel serves a router. Raises BadCase."""
    library = for_moeref.library("cuda")[0]
    if name not in library.kernels:
        raise BadCase(f"no such kernel: there are {', '.join(library.kernels)}")
    kernel = for_moeref.Own(name, {"cuda": library})
    reasons = {r: kernel.refuses(router, r) for r in rows}
    if all(reasons.values()):
        raise BadCase(reasons[rows[0]])
    return [r for r in rows if not reasons[r]]


def bench(a, kernel, rows, seconds):
    """The bench's JSON of one kernel: {(name, rows, pdl): entry}; floors have 0 rows."""
    command = [a.gpu, "bench", a.case, "--kernel", kernel, "--rows", ",".join(map(str, rows)), "--repeats",
               str(a.repeats), "--json", "-"]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=max(seconds, 1))
        document = json.loads(ran.stdout)
    except OSError as e:
        raise BadCase(f"{a.gpu}: {e.strerror}") from None
    except subprocess.TimeoutExpired:
        raise BadCase(f"{a.gpu} bench: the time is over") from None
    except ValueError:
        raise BadCase(f"{a.gpu} bench: status {ran.returncode}: {ran.stderr.strip()}") from None
    out = {(n, 0, None): f for n, f in document["floor"].items() if isinstance(f, dict)}
    out.update({(k["kernel"], k["rows"], k["pdl"]): k for k in document["kernels"]
                if k["us_cold"] is not None})
    if not any(rows for _, rows, _ in out):
        raise BadCase(f"{a.gpu} bench: status {ran.returncode}: it timed nothing")
    return out


def problem_of(kernel, exported, rows, device):
    """Of the first layer, row r is token r: as the bench has it."""
    _, path = exported.for_kernel(kernel.takes, kernel.logits_types)[0]
    case = Case(path)
    inputs = Inputs(torch, case, kernel, *case.layers[0], Stock(device))
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
    p.add_argument("--rows", default="1,16,96,1024")
    p.add_argument("--repeats", type=int, default=201)
    p.add_argument("--gpu", default=os.path.join(for_moeref.ROOT, "build", "moeref-gpu"))
    p.add_argument("--case", default=os.path.join(for_moeref.ROOT, "cases", "glm-5.3-flash.json"))
    p.add_argument("--json")
    p.add_argument("--seconds", type=float, default=35)
    return p.parse_args(argv)


class Comparison:
    """Kernel by kernel, the bench first: neither disturbs the other."""

    def __init__(self, a, exported, until):
        self.a, self.exported, self.until = a, exported, until
        self.device, self.floors, self.said, self.bad = torch.device("cuda", 0), None, [], 0

    def kernel(self, name, rows):
        theirs = bench(self.a, name, rows, self.until - time.monotonic())
        if self.floors is None:
            self.floors = floors_of(self.exported, self.device, self.a.repeats)
        elif theirs:
            theirs = {k: b for k, b in theirs.items() if k[1]}
        for key, b in theirs.items():
            if time.monotonic() > self.until:
                raise BadCase("the time is over")
            self.one(*key, b)

    def one(self, name, rows, pdl, b):
        t = self.floors[name] if not rows else ours(name, rows, pdl, self.exported, self.device,
                                                    self.a.repeats)
        self.bad += not line(name, rows, pdl, b, t)
        self.said.append({"kernel": name, "rows": rows, "pdl": pdl, "bench": b, "timing": t})

    def all(self):
        rows = [int(r) for r in self.a.rows.split(",")]
        router = Case(self.exported.main.path).router
        for name in self.a.kernels.split(","):
            try:
                self.kernel(name, served(name, router, rows))
            except (abi.Refused, BadCase, Unsupported, KeyError, RuntimeError) as e:
                print(f"{name:20} FAILED: {type(e).__name__}: {(str(e).splitlines() or [''])[0]}")
                self.said.append({"kernel": name, "failed": str(e)})
                self.bad += 1


def compare(a, folder):
    """How many were compared, how many differ or failed."""
    begin = time.monotonic()
    comparison = Comparison(a, Exported(a.case, folder, []), begin + a.seconds)
    print(f"{torch.cuda.get_device_name(0)}, torch {torch.__version__}\n"
          f"{'microseconds':20} {'rows':>5} {'pdl':>4}      {'bench':>9} {'spread':>8} {'timing':>9} "
          f"{'spread':>8} {'ratio':>7}")
    comparison.all()
    count = sum("timing" in s for s in comparison.said)
    print(f"\n{count} compared, {comparison.bad} differ or failed; {time.monotonic() - begin:.1f} s")
    if a.json:
        with output_file(a.json) as f:
            json.dump(comparison.said, f, indent=1)
    return count, comparison.bad


def main(argv):
    a = arguments(argv)
    try:
        if not os.path.exists(a.gpu):
            raise abi.Refused(f"{a.gpu} is not there: make gpu")
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
