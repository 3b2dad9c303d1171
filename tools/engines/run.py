#!/usr/bin/env python3
"""Runs the router kernels of released engines on moeref's cases, for `moeref verify` to judge.

    python3 tools/engines/run.py --list
    python3 tools/engines/run.py --engine torch --case cases/glm4moe-tiny.json --rows axis --out DIR
    build/moeref verify DIR/cases/glm4moe-tiny.json --observed DIR/glm4moe-tiny/torch.reference.m1.safetensors

Files: DIR/CASE/ENGINE.KERNEL.mROWS.safetensors. This process never touches CUDA: kernels run in children.
Exit status: 0 all ran, or are refused by the engine; 1 a kernel could not be run, or did what none may
(unwritten outputs, written inputs, wrong books ...); 2 usage; 3 a bad case.
"""
import sys

if __name__ == "__main__" and sys.argv[1:] == ["--child"]:
    import worker
    sys.exit(worker.main())

import argparse
import importlib.util
import json
import os
import subprocess
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import adapters
import children
from case import BadCase, Exported
from engine import ROW_AXIS
from output_file import output_file
from work import Work

SCRIPT = Path(__file__).resolve()
MAX_TOKENS = 256
TIMED = (1, 6, 16, 96, 1024, 8192)
LARGEST = 1 << 20


def rows_of(text):
    if text == "axis":
        return list(ROW_AXIS)
    try:
        rows = sorted({int(p) for p in text.split(",")})
    except ValueError:
        rows = []
    if not rows or rows[0] < 1 or rows[-1] > LARGEST:
        raise argparse.ArgumentTypeError(f"expected 'axis', or numbers from 1 as in 1,6,96, not '{text}'")
    return rows


class Named(argparse.Action):
    """--case: takes the values that stand before it."""

    def __call__(self, parser, a, path, option=None):
        a.case.append({"path": path, "rows": a.rows, "layers": a.layers, "max_tokens": a.max_tokens,
                       "turn": a.turn})


class Then(argparse.Action):
    def __call__(self, parser, a, values, option=None):
        a.turn += 1


def settle(cases, a, p):
    """What stands after the last case is for all, where nothing stood before one."""
    for key in ("rows", "layers", "max_tokens"):
        if all(c[key] is None for c in cases):
            for c in cases:
                c[key] = getattr(a, key)
    for c in cases:
        if c["rows"] is None:
            p.error(f"--case {c['path']}: expected --rows before it")
        c["max_tokens"] = c["max_tokens"] or MAX_TOKENS


def arguments():
    p = argparse.ArgumentParser(usage="run.py --engine NAME[,NAME]|all --case CASE --rows axis|LIST "
                                "--out DIR [options], or run.py --list", description=__doc__.split("\n\n")[0])
    p.add_argument("--list", action="store_true", help="engines, versions found, kernels, what they serve")
    p.add_argument("--engine", help="all, or names joined by commas")
    p.add_argument("--kernel", help="only these, joined by commas: KERNEL or ENGINE.KERNEL")
    p.add_argument("--case", action=Named, default=[], help="repeatable; any case of moeref. --rows, "
                   "--layers and --max-tokens before one hold for the cases after them")
    p.add_argument("--then", action=Then, nargs=0, help="cases after it are run after those before it")
    p.add_argument("--rows", type=rows_of, help="axis, or numbers as in 1,6,96")
    p.add_argument("--out", type=Path)
    p.add_argument("--json", metavar="F", help="one record for each kernel, case and row count; - is "
                   "standard output")
    p.add_argument("--time", action="store_true", help="microseconds, too: at the rows given, of the axis "
                   f"at {', '.join(map(str, TIMED))}")
    p.add_argument("--any-version", action="store_true", help="also versions whose source was not read")
    p.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    p.add_argument("--layers", help="only these layers of a case, as in 1,3-5")
    p.add_argument("--seed", help="of generated cases")
    p.add_argument("--max-tokens", type=int, metavar="N",
                   help=f"below 256 rows the first N tokens take part (default {MAX_TOKENS})")
    p.add_argument("--first-type", action="store_true", help="of logits only the first type that a kernel "
                   "takes")
    p.add_argument("--logits-rows", type=int, default=64, metavar="N",
                   help="rows of logits in a file, of each layer (default 64; 0: none)")
    p.add_argument("--names", type=rows_of, metavar="LIST", help="row counts at which the profiler names "
                   "the kernels that ran (default: all)")
    p.add_argument("--sorted-rows", type=int, default=64, metavar="N",
                   help="sorted positions go to a file up to N rows (default 64); they are checked at all")
    p.add_argument("--jobs", type=int, default=1, metavar="N", help="children at a time (default 1)")
    p.add_argument("--timeout", type=float, default=60, metavar="S",
                   help="seconds for one row count (default 60)")
    p.add_argument("--build-timeout", type=float, default=300, metavar="S",
                   help="for an import, and for a kernel's first row count, which may compile (default 300)")
    p.add_argument("--deadline", type=float, metavar="S", help="for all: what is left then is NOT_RUN")
    p.add_argument("--adapter", action="append", default=[], metavar="F", help="one more adapter's file")
    p.set_defaults(turn=0)
    a = p.parse_args()
    if not a.list and not (a.engine and a.case and a.rows and a.out):
        p.error("expected --engine, --case, --rows and --out, or --list")
    if a.time and a.jobs > 1:
        p.error("--time: one child at a time, without --jobs")
    least = min(MAX_TOKENS if a.max_tokens is None else a.max_tokens, a.jobs)
    if least < 1 or a.logits_rows < 0 or min(a.timeout, a.build_timeout) <= 0:
        p.error("expected positive numbers")
    settle(a.case, a, p)
    return a, p


def driver():
    try:
        ran = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
                             capture_output=True, text=True, timeout=20)
        return ran.stdout.split("\n")[0].strip() if ran.returncode == 0 else "none"
    except (OSError, subprocess.TimeoutExpired):
        return "none"


def describe_all(extra, wanted, log, seconds):
    """[(name, adapter path, what it says)]; an adapter that cannot be loaded is named by its file."""
    def describe(path):
        name = path.stem.removeprefix("for_")
        if importlib.util.find_spec("torch") is None:
            return name, path, {"failed": "torch is not installed"}
        said = children.describe(SCRIPT, path, f"{log}.{name}", seconds)
        return said.get("name", name), path, said

    paths = [p for p in adapters.paths(extra) if wanted is None or p.stem.removeprefix("for_") in wanted]
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(describe, paths))


def why_not(said, any_version):
    """Why an engine is not run, or None."""
    if "failed" in said:
        return said["failed"]
    if said["version"] is None:
        return said["reason"] or "not found"
    if not any_version and not adapters.known(said["version"], said["versions"]):
        return (f"version {said['version']}: read were {', '.join(said['versions'])} "
                "(--any-version runs it all the same)")
    return None


def show_list(told):
    for name, path, said in told:
        why = why_not(said, False)
        where = f" in {said['where']}" if said.get("where") else ""
        print(f"{name} {said.get('version') or ''}".rstrip() + (where if not why else f": NOT_RUN: {why}"))
        for k in said.get("kernels", []):
            takes = {"hidden": "hidden states of " + ", ".join(k["hidden_types"]),
                     "logits": "logits of " + ", ".join(k["logits_types"])}.get(k["takes"], k["takes"])
            print(f"  {name}.{k['name']}: {k['about']}\n      takes {takes}; gives "
                  f"{', '.join(k['gives'])}; on {', '.join(k['devices'])}"
                  + (f"; order as profile {k['profile']}" if k["profile"] else ""))
    return 0


class Run:
    """Results of all children, as they come."""

    def __init__(self, a):
        self.a, self.records, self.lock = a, [], threading.Lock()
        self.out = open(a.out / "records.jsonl", "w", encoding="utf-8")

    def add(self, engine, version, kernel, case, rows, record):
        line = {"engine": engine, "engine_version": version, "kernel": f"{engine}.{kernel}" if kernel
                else engine, "case": case, "rows": rows, **record}
        with self.lock:
            self.records.append(line)
            self.out.write(json.dumps(line) + "\n")
            self.out.flush()
            if record["status"] == "NOT_RUN" or record.get("faulty"):
                self.tell(line)

    def tell(self, line):
        rows = f" at {line['rows']} rows" if line["rows"] is not None else ""
        why = line.get("reason") or "; ".join(f"{k}: {line['faults'][k]}" for k in line["faulty"])
        what = line["status"] if line["status"] != "RUN" else "FAULTY"
        print(f"{line['kernel']} on {line['case']}{rows}: {what}: {why}", file=sys.stderr)

    def finish(self):
        """Table to standard output, JSON where asked for; the exit status."""
        self.out.close()
        if self.a.json:
            text = '{"records": [\n' + ",\n".join(map(json.dumps, self.records)) + "\n]}\n"
            if self.a.json == "-":
                sys.stdout.write(text)
            else:
                with output_file(self.a.json) as f:
                    f.write(text)
        if self.a.json != "-":
            self.summary()
        bad = any(r["status"] == "NOT_RUN" or r.get("faulty") for r in self.records)
        return 1 if bad else 0

    def summary(self):
        groups = {}
        for r in self.records:
            groups.setdefault((r["kernel"], r["case"]), []).append(r)
        for (kernel, case), records in sorted(groups.items()):
            said = []
            for status in ("RUN", "NOT_RUN", "UNSUPPORTED"):
                some = [r for r in records if r["status"] == status]
                if not some:
                    continue
                whys = sorted({r["reason"] for r in some} - {""})
                more = f" (and {len(whys) - 1} more)" if len(whys) > 1 else ""
                said.append(f"{status} {len(some)}" + (f": {whys[0]}{more}" if whys else ""))
            moved = [w for w in ("reruns", "positions") if any(
                r.get("faults", {}).get(w, "identical") != "identical" for r in records)]
            print(f"{kernel:40} {case:32} {'; '.join(said)}"
                  + (f"; bits differ in {' and '.join(moved)}" if moved else ""))


def chosen(kernels, names, engine):
    if not names:
        return kernels
    return [k for k in kernels if k["name"] in names or f"{engine}.{k['name']}" in names]


def plan(a, told, cases, run):
    """Units, and names that no kernel has; what cannot be run is reported at once."""
    units, names, matched = [], set(a.kernel.split(",")) if a.kernel else None, set()
    for engine, path, said in told:
        kernels = chosen(said.get("kernels", []), names, engine)
        matched |= {k["name"] for k in kernels} | {f"{engine}.{k['name']}" for k in kernels}
        why = why_not(said, a.any_version)
        if why:
            for c in cases:
                run.add(engine, said.get("version"), None, c.main.name, None,
                        {"status": "NOT_RUN", "reason": why})
            continue
        units += [{"engine": engine, "kernel": k["name"], "compiles": k["compiles"], "case": str(at),
                   "case_name": case_name, "rows": list(given["rows"]), "turn": given["turn"],
                   "max_tokens": given["max_tokens"]}
                  for k in kernels for c, given in zip(cases, a.case)
                  for case_name, at in c.for_kernel(k["takes"], k["logits_types"][:1 if a.first_type
                                                                                  else None])]
    return units, (names or set()) - matched


def environment(a):
    """Of children: many of them, each on a core of its own."""
    if a.jobs == 1:
        return None
    alone = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    return {**alone, **os.environ}


def forget(out, units):
    """Recordings of an earlier run, which would stand for what fails in this one."""
    for u in units:
        for r in u["rows"]:
            for ending in ("", ".logits", ".sorted"):
                name = f"{u['engine']}.{u['kernel']}.m{r}{ending}.safetensors"
                (out / u["case_name"] / name).unlink(missing_ok=True)


def execute(a, told, units, run, log, begin):
    forget(a.out, units)
    asked = {(f"{u['engine']}.{u['kernel']}", u["case_name"], r): u for u in units for r in u["rows"]}
    work = Work(units)
    engines = {name: (path, said.get("version")) for name, path, said in told}
    timed = sorted({r for c in a.case for r in (TIMED if c["rows"] == list(ROW_AXIS) else c["rows"])})
    common = {"device": a.device, "out": str(a.out), "driver": driver(), "sorted_rows": a.sorted_rows,
              "logits_rows": a.logits_rows, "seed": a.seed or "", "time": list(timed) if a.time else None,
              "names": a.names, "threads": 1 if a.jobs > 1 else None}
    limits = (a.build_timeout, a.build_timeout, a.timeout)

    def remaining():
        return float("inf") if a.deadline is None else a.deadline - (time.monotonic() - begin)

    def report(unit, rows, record):
        run.add(unit["engine"], engines[unit["engine"]][1], unit["kernel"], unit["case_name"], rows, record)

    def give_up(some, why):
        for u in some:
            for r in u["rows"]:
                report(u, r, {"status": "NOT_RUN", "reason": why})

    def loop(number):
        while remaining() > 0 and (engine := work.engine()) is not None:
            spec = {**common, "engine": engine, "adapter": str(engines[engine][0])}
            failed = None
            try:
                child = children.Child(SCRIPT, spec, f"{log}.{number}", environment(a))
                failed = children.feed(child, work, engine, limits, report, remaining)
            finally:
                give_up(work.ended(engine, failed), failed)

    threads = [threading.Thread(target=loop, args=(i,), daemon=True) for i in range(a.jobs)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    give_up(work.rest(), children.OVER)
    known = {(r["kernel"], r["case"], r["rows"]) for r in run.records}
    for key in sorted(asked.keys() - known):
        report(asked[key], key[2], {"status": "NOT_RUN", "reason": "the runner lost it: see standard error"})


def needed(a, told, cases):
    """(case, (takes, types)) that some kernel is given."""
    names = a.kernel.split(",") if a.kernel else None
    ways = {(k["takes"], (t,)) for engine, _, said in told if why_not(said, a.any_version) is None
            for k in chosen(said.get("kernels", []), names, engine)
            for t in k["logits_types"][:1 if a.first_type else None]}
    return [(c, w) for c in cases for w in sorted(ways)]


def exported(a, case):
    options = [*(["--layers", case["layers"]] if case["layers"] else []),
               *(["--seed", a.seed] if a.seed else [])]
    return Exported(case["path"], a.out / "cases", options)


def main():
    begin = time.monotonic()
    a, parser = arguments()
    wanted = None if a.list or a.engine == "all" else set(a.engine.split(","))
    if a.list:
        with tempfile.TemporaryDirectory() as folder:
            return show_list(describe_all(a.adapter, None, f"{folder}/log", a.build_timeout))
    try:
        (a.out / "logs").mkdir(parents=True, exist_ok=True)
    except OSError as e:
        parser.error(f"--out: {e}")
    told = describe_all(a.adapter, wanted, a.out / "logs" / "describe", a.build_timeout)
    unknown = (wanted or set()) - {name for name, _, _ in told}
    if unknown:
        parser.error(f"--engine: no adapter of {', '.join(sorted(unknown))}: there are "
                     f"{', '.join(p.stem.removeprefix('for_') for p in adapters.paths(a.adapter))}")
    try:
        with ThreadPoolExecutor(a.jobs) as pool:
            cases = list(pool.map(lambda c: exported(a, c), a.case))
            # Here, all at once, not one by one when the plan asks for them.
            list(pool.map(lambda pair: pair[0].for_kernel(*pair[1]), needed(a, told, cases)))
        names = [c.main.name for c in cases]
        for name in names:
            if names.count(name) > 1:
                raise BadCase(f"{name}: two cases of one name")
        run = Run(a)
        units, unmatched = plan(a, told, cases, run)
    except BadCase as e:
        print(f"run.py: {e}", file=sys.stderr)
        return 3
    if unmatched:
        parser.error(f"--kernel: no {', '.join(sorted(unmatched))}: see --list")
    execute(a, told, units, run, a.out / "logs" / "child", begin)
    return run.finish()


if __name__ == "__main__":
    sys.exit(main())
