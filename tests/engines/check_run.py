#!/usr/bin/env python3
"""Oracle of tools/engines/run.py, on the CPU: check_run.py MOEREF. Needs torch; transformers if it is there.

1. Kernels that do what a kernel must not do (for_fake.py): each is reported as what it is.
2. Adapters that cannot be run: missing, of another version, dying on import; no GPU.
3. torch and transformers on shipped cases and adversarial classes, judged by `moeref verify`.
"""
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RUN = ROOT / "tools" / "engines" / "run.py"
sys.path.insert(0, str(ROOT / "tools" / "engines"))

ROWS = (1, 6, 33)
RUN_ALL = {r: ("RUN", "") for r in ROWS}


def at_6(status, reason):
    return {1: ("RUN", ""), 6: (status, reason), 33: ("RUN", "")}


def each(status, reason):
    return {r: (status, reason) for r in ROWS}


# Kernel: its outcome at each row count, and the faults found (beginnings of what is said).
EXPECTED = {
    "right": (RUN_ALL, {}),
    "wide": (RUN_ALL, {}),
    "packed": (RUN_ALL, {}),
    "derives": (RUN_ALL, {}),  # no fault of its own: the judge calls it wrong
    "wrong_ids": (RUN_ALL, {}),
    "hang": (at_6("NOT_RUN", "no end within"), {}),
    "crash": (at_6("NOT_RUN", "killed by SIGSEGV"), {}),
    "always_crash": (each("NOT_RUN", "killed by SIGSEGV"), {}),
    "leave": (each("NOT_RUN", "ended with status 7: the engine gives up"), {}),
    "throw": (at_6("NOT_RUN", "ValueError: no such tile"), {}),
    "late_refusal": (each("UNSUPPORTED", "says no when it is called"), {}),
    "unwritten": (RUN_ALL, {"unwritten": "elements, first: weights, row"}),
    "memory": (RUN_ALL, {"memory": "rows differ by what lay"}),
    "reruns": (RUN_ALL, {"reruns": "rows differ, first: row 0"}),
    "positions": (RUN_ALL, {"positions": "rows differ"}),
    "writes_input": (RUN_ALL, {"inputs": "runs changed them, first: logits"}),
    "writes_bias": (RUN_ALL, {"inputs": "runs changed them, first: bias"}),
    "outside": (RUN_ALL, {"canary": "bytes"}),
    "wrong_shape": (each("NOT_RUN", "RuntimeError: gave ids of shape"), {}),
    "nothing": (each("NOT_RUN", "RuntimeError: gave no weights"), {}),
    "one_row": ({1: ("RUN", ""), 6: ("UNSUPPORTED", "serves one row"),
                 33: ("UNSUPPORTED", "serves one row")}, {}),
    "sorts": (RUN_ALL, {}),
    "twice": (RUN_ALL, {"books": "launches, first: sorted: element"}),
    "other_tile": (RUN_ALL, {"books": "launches, first: tile_expert: tile 0"}),
    "short": (RUN_ALL, {"books": "launches, first: sorted_total"}),
    "gemm": (RUN_ALL, {}),
}
# Derived from other rows, its outputs depend on the place.
ALSO = {"derives": {"positions"}}
QUIET = ("none", "identical", "unchanged", "intact", "ok")
checks = failures = 0


def check(good, what):
    global checks, failures
    checks += 1
    if not good:
        failures += 1
        print(f"FAIL {what}")


def run(out, *arguments, expect=None):
    """(exit status, records, standard error)"""
    results = out / "results.json"
    results.unlink(missing_ok=True)
    ran = subprocess.run([sys.executable, str(RUN), "--out", str(out), "--json", str(results),
                          *arguments], capture_output=True, text=True)
    if expect is not None:
        check(ran.returncode == expect, f"{' '.join(arguments)}: status {ran.returncode}: {ran.stderr}")
    records = json.loads(results.read_text())["records"] if results.exists() else []
    return ran.returncode, records, ran.stderr


def judge(moeref, case, file):
    ran = subprocess.run([moeref, "verify", str(case), "--observed", str(file), "--json", "-"],
                         capture_output=True, text=True)
    try:
        return ran.returncode, json.loads(ran.stdout)["verdicts"]
    except (ValueError, KeyError):
        return ran.returncode, {"unreadable": ran.stderr or ran.stdout[:200]}


def fakes(moeref, folder):
    # At 1 row the first token alone shows nothing of positions; reruns of one row do.
    silent = {("positions", 1), ("positions", 6)}
    _, records, said = run(folder, "--adapter", str(HERE / "for_fake.py"), "--engine", "fake",
                           "--kernel", ",".join(EXPECTED), "--case", str(ROOT / "cases/glm4moe-tiny.json"),
                           "--layers", "1", "--rows", ",".join(map(str, ROWS)), "--device", "cpu",
                           "--max-tokens", "12", "--timeout", "15", "--build-timeout", "120",
                           "--jobs", "2", expect=1)
    found = {}
    for r in records:
        if r["case"] in ("glm4moe-tiny", "glm4moe-tiny.fp32-logits"):
            found[r["kernel"].removeprefix("fake."), r["rows"]] = r
    for kernel, (outcomes, faults) in EXPECTED.items():
        for rows, (status, reason) in outcomes.items():
            r = found.get((kernel, rows))
            name = f"fake.{kernel} at {rows} rows"
            check(r is not None, f"{name}: no record")
            if r is None:
                continue
            check(r["status"] == status and r["reason"].startswith(reason),
                  f"{name}: {r['status']}: {r['reason']}, expected {status}: {reason}")
            if status != "RUN" or r["status"] != "RUN":
                continue
            got = {k: v for k, v in r["faults"].items() if v not in QUIET}
            wanted = {} if (kernel, rows) in silent else faults
            check(set(got) >= set(wanted) and all(v in got[k] for k, v in wanted.items() if k in got),
                  f"{name}: faults {got}, expected {wanted}")
            also = {"positions", "memory", "reruns", "sorted_reruns"} if faults else ALSO.get(kernel, set())
            others = set(got) - set(wanted) - also
            check(not others, f"{name}: faults {got}, expected {wanted}")
            check(r["faulty"] == [] if not faults or kernel in ("reruns", "positions") else
                  bool(r["faulty"]), f"{name}: faulty {r['faulty']}")
            verdicts(moeref, folder, r, kernel, name)
    check(said.count("fake.hang") == 1, f"fake.hang is told once: {said}")


def verdicts(moeref, folder, r, kernel, name):
    wrong = kernel in ("wrong_ids", "derives", "unwritten", "reruns", "positions", "memory")
    if "file" not in r or wrong and kernel not in ("wrong_ids", "derives"):
        return
    status, counts = judge(moeref, folder / "cases" / f"{r['case']}.json", folder / r["file"])
    bad = sum(counts.get(k, 0) for k in ("wrong", "malformed", "nonfinite"))
    check("unreadable" not in counts and (bad > 0) == wrong and (status == 1) == wrong,
          f"{name}: verify: status {status}, {counts}")


def adapters(folder):
    """Engines that cannot be run, beside one that can."""
    head = "import os, signal\nfrom engine import Found, Kernel\nVERSIONS = ('2.0',)\n"
    bodies = {"missing": "def find():\n    return Found(None, 'absent is not installed')\n"
                         "def kernels(found):\n    return []\n",
              "other": "def find():\n    return Found('3.1')\ndef kernels(found):\n    return []\n",
              "dying": "os.kill(os.getpid(), signal.SIGSEGV)\n",
              "broken": "import no_such_module\n"}
    options = []
    for name, body in bodies.items():
        path = folder / f"for_{name}.py"
        path.write_text(head + f"NAME = '{name}'\n" + body)
        options += ["--adapter", str(path)]
    subprocess.run([os.environ["MOEREF"], "gen", "near-tie", "-o", str(folder)], check=True,
                   stdout=subprocess.DEVNULL)
    common = ["--case", str(folder / "near-tie.json"), "--rows", "1", "--device", "cpu"]
    _, records, _ = run(folder, *options, "--adapter", str(HERE / "for_fake.py"), "--engine",
                        ",".join([*bodies, "fake"]), "--kernel", "right,fp16_only", *common, expect=1)
    reasons = {r["kernel"]: r["reason"] for r in records if r["status"] == "NOT_RUN"}
    for name, start in (("missing", "absent is not installed"), ("other", "version 3.1: read were 2.0"),
                        ("dying", "importing its adapter: killed by SIGSEGV"),
                        ("broken", "importing its adapter: ended with status 1: ModuleNotFoundError")):
        check(reasons.get(name, "").startswith(start), f"{name}: {reasons.get(name)}")
    check(any(r["kernel"] == "fake.fp16_only" and r["status"] == "UNSUPPORTED" and
              r["reason"] == "logits of fp32 are no numbers of fp16" for r in records),
          f"fp16 alone: {records}")
    check(any(r["kernel"] == "fake.right" and r["status"] == "RUN" for r in records),
          f"the others go on: {records}")
    listed = subprocess.run([sys.executable, str(RUN), "--list", *options], capture_output=True, text=True)
    check(listed.returncode == 0 and "missing: NOT_RUN: absent" in listed.stdout,
          f"--list: {listed.stdout}{listed.stderr}")
    _, records, _ = run(folder, "--engine", "torch", "--kernel", "topk", "--case",
                        str(ROOT / "cases/toy.json"), "--rows", "1,2", expect=None) \
        if not has_gpu() else (0, [], "")
    check(has_gpu() or records and all(r["status"] == "NOT_RUN" and r["reason"] == "no GPU that can be used"
                                       for r in records), f"no GPU: {records}")
    for bad, status in ((["--engine", "nonesuch", *common], 2), (["--engine", "torch"], 2),
                        (["--engine", "torch", "--rows", "0", "--case", "x"], 2),
                        (["--engine", "torch", "--rows", "1", "--case", "no/such.json"], 3),
                        (["--engine", "torch", "--kernel", "nonesuch", *common], 2)):
        run(folder / "bad", *bad, expect=status)


def parts():
    """What needs no child: the plan of launches, and books."""
    import numpy as np
    import books
    import launches
    for tokens, rows, most in ((1024, 1, 256), (1024, 5, 256), (1024, 257, 256), (128, 8192, 256),
                               (37, 8192, 256), (3, 33, 256), (1024, 1024, 256), (1, 1, 256)):
        plan = launches.plan(tokens, rows, most)
        n = min(tokens, most) if rows < 256 else tokens
        name = f"plan({tokens}, {rows}, {most})"
        check(all(len(p) == rows and p.min() >= 0 and p.max() < n for p in plan), name)
        check(len({t for p in plan for t in p.tolist()}) == min(n, 64 * rows), f"{name}: tokens")
        check(len(plan) == min(64, -(-n // rows)), f"{name}: {len(plan)} launches")
    check(launches.plan(0, 8, 256) == [], "no tokens, no launches")
    # Ids -1 (padding) are in no tile, or in leading tiles of expert -1.
    ids = np.array([[0, 2], [-1, 2]])
    dropped = {"sorted": [0, 4, 1, 3], "tile_expert": [0, 2], "sorted_total": [4]}
    kept = {"sorted": [2, 4, 0, 4, 1, 3], "tile_expert": [-1, 0, 2], "sorted_total": [6]}
    for good in (dropped, kept):
        check(books.check(ids, good, 3, 2) == "ok", f"books: {books.check(ids, good, 3, 2)}")
    for key, place, value in (("sorted", 0, 4), ("sorted", 1, 0), ("sorted", 3, 1), ("sorted", 2, 0),
                              ("tile_expert", 0, 1), ("sorted_total", 0, 2), ("sorted_total", 0, 8)):
        bad = {k: list(v) for k, v in dropped.items()}
        bad[key][place] = value
        check(books.check(ids, bad, 3, 2) != "ok", f"books: {key}[{place}] = {value} passes")


def has_gpu():
    import torch
    return torch.cuda.is_available()


def engines(moeref, folder):
    """Shipped cases and classes; nothing that the judge calls wrong."""
    classes = ("all-equal", "bias-negative", "tie-at-cut", "tie-between-groups", "sigmoid-tail",
               "softplus-tail", "wide-stride", "experts-odd", "k-one")
    for name in classes:
        subprocess.run([moeref, "gen", name, "-o", str(folder / "gen")], check=True,
                       stdout=subprocess.DEVNULL)
    names = "torch,transformers" if importlib.util.find_spec("transformers") else "torch"
    if "transformers" not in names:
        print("check_run: transformers: MISSING -> its routers are NOT checked")
    cases = [x for c in classes for x in ("--case", str(folder / "gen" / f"{c}.json"))]
    shipped = [x for c in ("glm4moe-tiny", "qwen3moe-tiny")
               for x in ("--case", str(ROOT / f"cases/{c}.json"))]
    records = run(folder / "gen-out", "--engine", "torch", "--rows", "1,5,33", "--device", "cpu",
                  *cases, expect=0)[1]
    found = [(folder / "gen-out", r) for r in records]
    records = run(folder / "shipped", "--engine", names, "--rows", "2,33,257", "--device", "cpu", "--layers",
                  "1,3", "--max-tokens", "48", "--jobs", "2", *shipped, expect=0)[1]
    found += [(folder / "shipped", r) for r in records]
    seen = set()
    for out, r in found:
        if r["status"] != "RUN":
            continue
        case = out / "cases" / f"{r['case']}.json"
        case = case if case.exists() else folder / "gen" / f"{r['case']}.json"
        status, counts = judge(moeref, case, out / r["file"])
        seen.add(r["kernel"])
        check(status == 0 and sum(counts.values()) > 0,
              f"{r['kernel']} on {r['case']} at {r['rows']} rows: {status}, {counts}")
        check(not r["faulty"], f"{r['kernel']} on {r['case']}: {r['faults']}")
    for kernel in ("torch.topk", "torch.reference", "torch.bf16_logits"):
        check(kernel in seen, f"{kernel} ran")
    if "transformers" in names:
        check(len([k for k in seen if k.startswith("transformers.")]) >= 9, f"ran: {sorted(seen)}")
        twins()


def twins():
    """The table of routers whose forward is the same, word for word."""
    import inspect
    import re
    import for_transformers
    texts = {}
    for first, others in for_transformers.TWINS.items():
        cls = next(row.cls for row in for_transformers.ROWS if row.model == first)
        for model in (first, *others):
            module = importlib.import_module(f"transformers.models.{model}.modeling_{model}")
            names = [n for n in vars(module) if re.search(r"Top[kK]Router$", n)]
            texts[model] = {inspect.getsource(getattr(module, n).forward) for n in names}
        own = inspect.getsource(getattr(importlib.import_module(
            f"transformers.models.{first}.modeling_{first}"), cls).forward)
        for model in others:
            check(own in texts[model], f"{model}: its router's forward is not that of {first}")


def main():
    moeref = os.path.abspath(sys.argv[1])
    os.environ["MOEREF"] = moeref
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as folder:
        for part, name in ((lambda f: parts(), "parts"), (lambda f: fakes(moeref, f), "fakes"), (adapters, "adapters"),
                           (lambda f: engines(moeref, f), "engines")):
            (Path(folder) / name).mkdir()
            part(Path(folder) / name)
            print(f"check_run: {name}: {checks} checks, {failures} failures so far", flush=True)
    print(f"check_run: {checks} checks, {failures} failures")
    return failures != 0


if __name__ == "__main__":
    sys.exit(main())
