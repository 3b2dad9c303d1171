"""tools/engines/table.py on recordings whose faults are known: check_table.py [MOEREF]. Needs numpy.

From the certified answer of a case recordings are made of kernels that are right, that round their logits
to bf16 and say so or not, that change with the row count, that write nonsense, and files that are none.
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(HERE / "tools" / "engines"))
from table_files import Safetensors  # noqa: E402
from table_identify import write_safetensors  # noqa: E402

TYPES = {np.dtype(np.int32): "I32", np.dtype(np.int64): "I64", np.dtype(np.float32): "F32",
         np.dtype(np.float64): "F64"}
AT = "decode.model.layers.1.mlp."
ROWS = (1, 6, 128)


def fp32(bf16):
    return (bf16.astype(np.uint32) << 16).view(np.float32)


def to_bf16(x):
    """Rounded to nearest, ties to even, as values."""
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000).view(np.float32)


class Glm:
    """glm4moe-tiny: 128 experts, top 8, sigmoid, bias, scaled by 2.5."""

    def __init__(self, moeref, folder):
        subprocess.run([moeref, "export", HERE / "cases/glm4moe-tiny.json", "--layers", "1", "--phase",
                        "decode", "-o", folder], check=True)
        f = Safetensors(folder / "glm4moe-tiny.safetensors")
        at = "model.layers.1.mlp.gate."
        self.hidden, self.gate = fp32(f.tensor(AT + "gate.input")), fp32(f.tensor(at + "weight"))
        self.bias = f.tensor(at + "e_score_correction_bias")
        self.tokens = len(self.hidden)

    def route(self, bf16, dtype=np.float64):
        logits = self.hidden.astype(dtype) @ self.gate.astype(dtype).T
        if bf16:
            logits = to_bf16(logits).astype(dtype)
        score = 1 / (1 + np.exp(-logits.astype(np.float64)))
        ids = np.argsort(-(score + self.bias), 1, "stable")[:, :8]
        weights = np.take_along_axis(score, ids, 1)
        weights *= 2.5 / weights.sum(1, keepdims=True)
        return ids.astype(np.int32), weights.astype(np.float32), logits.astype(np.float32)


def put(folder, kernel, rows, ids, weights=None, logits=None, tokens=None, **said):
    tensors = {AT + "topk_ids": ids, AT + "topk_weights": weights, AT + "gate.token_index": tokens}
    metadata = {"engine": kernel.split(".")[0], "engine_version": "1", "kernel": kernel,
                "case": "glm4moe-tiny", "rows": str(rows), "arithmetic": "fp32",
                "reruns": "identical", "positions": "identical", **said}
    at = folder / "glm4moe-tiny"
    at.mkdir(exist_ok=True)
    entries = {n: (TYPES[t.dtype], t.shape, np.ascontiguousarray(t).tobytes())
               for n, t in tensors.items() if t is not None}
    write_safetensors(at / f"{kernel}.m{rows}.safetensors", entries, metadata)
    if logits is not None:
        index = np.arange(len(logits), dtype=np.int64)
        write_safetensors(at / f"{kernel}.m{rows}.logits.safetensors", {
            AT + "gate.logits": ("F32", logits.shape, logits.tobytes()),
            AT + "gate.token_index": ("I64", index.shape, index.tobytes())}, metadata)


def record(glm, folder):
    """Recordings, and what is to be counted of each kernel: (verdicts at all row counts, other)."""
    right, rounded = glm.route(False), glm.route(True)
    index = np.arange(glm.tokens, dtype=np.int64)
    flips = int((np.sort(right[0], 1) != np.sort(rounded[0], 1)).any(1).sum())
    assert 0 < flips < 20
    for rows in ROWS:
        put(folder, "a.right", rows, *right[:2], tokens=index)
        put(folder, "a.bf16", rows, *rounded[:2], tokens=index, arithmetic="bf16-logits")
        put(folder, "a.liar", rows, *rounded[:2], tokens=index, arithmetic="fp32")
        put(folder, "b.moody", rows, *(rounded if rows == 6 else right)[:2], tokens=index,
            arithmetic="bf16-logits", reruns="2 rows differ, first: row 3")
    twice = right[0].copy()
    twice[5, 1] = twice[5, 0]
    put(folder, "b.twice", 1, twice, right[1], tokens=index)
    swapped = right[0][:, ::-1].copy(), right[1][:, ::-1].copy()
    put(folder, "b.ordered", 1, *right[:2], tokens=index)
    put(folder, "b.ordered", 6, *swapped, tokens=index)
    put(folder, "c.outside", 1, right[0], right[1], tokens=index + 1)
    put(folder, "c.exact", 16, *right, tokens=index)
    put(folder, "c.cut", 16, *right, tokens=index)
    cut = folder / "glm4moe-tiny" / "c.cut.m16.logits.safetensors"
    cut.write_bytes(cut.read_bytes()[:-4])
    put(folder, "c.unwritten", 16, *right[:2], tokens=index, unwritten="3 elements, first: ids")
    (folder / "glm4moe-tiny" / "c.none.m1.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0{}      ")
    (folder / "run.json").write_text(json.dumps({"records": [
        {"engine": "d", "kernel": "gone", "case": "glm4moe-tiny", "rows": r, "status": "NOT_RUN",
         "reason": "died of signal 11"} for r in ROWS] + [
        {"engine": "a", "kernel": "a.right", "case": "glm4moe-tiny", "rows": 1, "status": "RUN",
         "us": {"us_cold": 3.5}},
        {"engine": "d", "kernel": "d.sorts", "case": "glm4moe-tiny", "rows": 6, "status": "RUN",
         "faulty": ["books"], "faults": {"books": "1 launches, first: sorted_total: 4"}}]}))
    return flips


def statuses(moeref, cases, glm):
    """Faults that show in one place alone, each in a folder of its own."""
    right, index = glm.route(False), np.arange(glm.tokens, dtype=np.int64)
    books = {"engine": "d", "kernel": "d.sorts", "case": "glm4moe-tiny", "rows": 6, "status": "RUN",
             "faulty": ["books"], "faults": {"books": "1 launches, first: sorted_total: 4"}}
    for name, status in (("sound", 0), ("books", 1), ("logits", 1)):
        with tempfile.TemporaryDirectory(prefix="check-table.") as out:
            logits = right[2] + np.float32(name == "logits")
            put(Path(out), "a.one", 6, *right[:2], logits, tokens=index)
            (Path(out) / "run.json").write_text(json.dumps([books] if name == "books" else []))
            ran = subprocess.run([sys.executable, HERE / "tools/engines/table.py", out, "--cases", cases,
                                  "--moeref", moeref, "--identify-rows", ""], capture_output=True, text=True)
        expect(f"status of {name}", (ran.returncode, ran.stderr), (status, ""))


def expect(name, found, wanted):
    if found != wanted:
        sys.exit(f"check_table: {name}: {found}, expected {wanted}")


def counts(entry, key):
    return [r[key] for r in entry["rows"]]


def main():
    moeref = sys.argv[1] if len(sys.argv) > 1 else str(HERE / "build" / "moeref")
    with tempfile.TemporaryDirectory(prefix="check-table.") as work:
        cases, out = Path(work) / "cases", Path(work) / "out"
        out.mkdir()
        glm = Glm(moeref, cases)
        flips = record(glm, out)
        ran = subprocess.run(
            [sys.executable, HERE / "tools/engines/table.py", out, "--cases", cases, "--moeref", moeref,
             "--json", out / "table.json", "--identify-rows", "16"], capture_output=True, text=True)
        expect("status (a file cannot be judged)", (ran.returncode, ran.stderr), (3, ""))
        table = json.loads((out / "table.json").read_text())
        statuses(moeref, cases, glm)
    kernels = {k["kernel"]: k for k in table["kernels"]}
    n = glm.tokens
    expect("kernels", sorted(kernels), ["a.bf16", "a.liar", "a.right", "b.moody", "b.ordered", "b.twice",
                                        "c.cut", "c.exact", "c.outside", "c.unwritten"])
    for k in ("a.right", "c.exact"):
        expect(k, {v: c for v, c in kernels[k]["rows"][0]["verdicts"].items() if c}, {"exact": n})
        expect(k, kernels[k]["explained"]["groups"], [])
    expect("flips", counts(kernels["a.bf16"], "flips"), [flips] * 3)
    expect("rounding", [r["verdicts"]["rounding"] for r in kernels["a.bf16"]["rows"]], [flips] * 3)
    expect("no flip by batch", counts(kernels["a.bf16"], "batch_flips"), [0] * 3)
    wrong = [r["verdicts"]["wrong"] for r in kernels["a.liar"]["rows"]]
    if not flips <= wrong[0] <= n or len(set(wrong)) > 1:
        sys.exit(f"check_table: a.liar: {wrong} wrong")
    groups = kernels["a.liar"]["explained"]["groups"]
    expect("a.liar", {g["verdict"] for g in groups} >= {"wrong"}, True)
    worst = groups[0]["worst"][0]
    expect("a row of the sample", (worst["rows"], worst["difference"] > worst["radius"]),
           (list(ROWS), True))
    expect("flips by batch", counts(kernels["b.moody"], "batch_flips"), [0, flips, 0])
    expect("reruns", "2 rows differ" in kernels["b.moody"]["rows"][0]["faults"]["reruns"], True)
    expect("order", (counts(kernels["b.ordered"], "batch_order"),
                     counts(kernels["b.ordered"], "batch_flips")), ([0, n], [0, 0]))
    expect("twice", kernels["b.twice"]["rows"][0]["verdicts"]["malformed"], 1)
    expect("outside", kernels["c.outside"]["rows"][0]["status"], "NOT_JUDGED")
    expect("unwritten", kernels["c.unwritten"]["rows"][0]["faults"], {"unwritten": "3 elements, first: ids"})
    logits = kernels["c.exact"]["rows"][0]
    expect("logits", (logits["logits"]["rows"], logits["logits"]["verdicts"]["exact"]), (n, n))
    expect("identify", logits["identified"]["line"], "fp32")
    expect("faults", [f for f in table["faults"] if "c.none" in f] == table["faults"], True)
    expect("not run", table["not_run"], [{"kernel": "d.gone", "case": "glm4moe-tiny", "status": "NOT_RUN",
                                          "reason": "died of signal 11", "rows": list(ROWS)}])
    expect("times", kernels["a.right"]["rows"][0]["us"], {"us_cold": 3.5})
    expect("logits not judged", kernels["c.cut"]["rows"][0]["logits"].keys(), {"reason"})
    for word in ("`a.liar`", "`d.sorts`, glm4moe-tiny: books: 6", "`c.cut` | NOT_JUDGED | logits: ",
                 "b.twice`, glm4moe-tiny: 1 tokens malformed", "died of signal 11", "| no |", "3 elements"):
        expect(f"markdown: {word}", word in ran.stdout, True)
    print("check_table: fine")


if __name__ == "__main__":
    main()
