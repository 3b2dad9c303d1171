"""Judges what run.py recorded, on any machine: verdicts, flips against the certified sets, changes with
the row count, determinism, and the arithmetic that `moeref identify` names.

    python3 tools/engines/table.py DIR... [--cases DIR]... [--json F] [--markdown F]

DIR holds ENGINE.KERNEL.mROWS.safetensors, in any depth, and what run.py --json wrote. A recording names
its case; it is looked for as NAME.json under --cases, the folders themselves and cases/. Exit status: 0;
1 if a row of a kernel is wrong, malformed or nonfinite, or a kernel broke a rule of the runner; 3 if
something could not be judged.
"""
import argparse
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor

import table_batch
import table_explain
import table_files
import table_identify
import table_print
from output_file import output_file
from table_files import Bad
from table_judge import Moeref

VERDICTS = ("exact", "tie", "rounding", "undecided", "wrong", "malformed", "nonfinite")
BATCH = ("flips", "decided", "flip_gap", "batch_flips", "batch_order", "batch_weights", "batch_logits")
# What run.py writes of a launch, and what it says where there is nothing to say.
FAULTS = ("unwritten", "memory", "reruns", "positions", "inputs", "canary", "books", "sorted_reruns")
QUIET = ("none", "identical", "unchanged", "intact", "ok", "")
# Other than its own earlier answer is no fault by itself; these are.
BROKEN = ("unwritten", "memory", "inputs", "canary", "books")


def plain(bad, recording):
    """The reason without the path, which stands beside it."""
    return str(bad).replace(f"{recording.path}: ", "")


def judge(moeref, path, recordings):
    """verify's document, and of each recording its part of it; a recording that the judge refuses is
    left out with its reason, and the others are judged. A profile promises nothing of a router that it
    does not know: there any order is right."""
    refused = {}
    profile = recordings[0].metadata.get("profile") if recordings else None
    while recordings:
        try:
            document = moeref.verify(path, [r.path for r in recordings], profile)
            return document, dict(zip([r.path for r in recordings], document["sources"])), refused
        except Bad as e:
            if profile and "no kernel known for this router" in str(e):
                profile = None
                continue
            if len(recordings) == 1:
                return None, {}, {recordings[0].path: plain(e, recordings[0])}
            bad = {}
            for r in recordings:
                try:
                    moeref.verify(path, [r.path], profile)
                except Bad as one:
                    bad[r.path] = plain(one, r)
            if not bad:
                raise
            refused |= bad
            recordings = [r for r in recordings if r.path not in bad]
    return None, {}, refused


def faults_of(recording):
    """A kernel that differs from itself also differs between two contents of the memory: of those it
    says nothing."""
    said = {k: recording.metadata[k] for k in FAULTS if k in recording.metadata}
    said = {k: v for k, v in said.items() if v not in QUIET}
    if "reruns" in said:
        said.pop("memory", None)
    return said


class Entry:
    """One kernel on one case."""

    def __init__(self, recordings):
        self.main = sorted((r for r in recordings if r.kind == "main"), key=lambda r: r.rows)
        self.logits = {r.rows: r for r in recordings if r.kind == "logits"}
        self.all = self.main + sorted(self.logits.values(), key=lambda r: r.rows)
        first = self.all[0]
        self.head = {"engine": first.engine, "engine_version": first.metadata.get("engine_version", ""),
                     "kernel": first.kernel, "case": first.case, "about": first.metadata.get("about", ""),
                     "device": first.metadata.get("device", ""), "seed": first.metadata.get("seed", "")}
        if first.metadata.get("profile"):
            self.head["profile"] = first.metadata["profile"]

    def judged(self, moeref, certified, sample):
        """The entry's part of the JSON."""
        path = moeref.case(self.head["case"], self.head["seed"])
        document, parts, refused = judge(moeref, path, list(self.all))
        batch, rows = table_batch.Kernel(certified), []
        for r in self.main:
            rows.append(self.row(r, parts, refused, batch))
        out = {**self.head, "input": json.loads(path.read_text())["input"], "rows": rows}
        if document:
            of = {str(r.path): r for r in self.all}
            out["explained"] = table_explain.explain(
                document, {k: r.rows for k, r in of.items()},
                {k: r.metadata.get("arithmetic", "") for k, r in of.items()}, sample)
        return out

    def row(self, r, parts, refused, batch):
        row = {"rows": r.rows, "file": str(r.path), "arithmetic": r.metadata.get("arithmetic", ""),
               "faults": faults_of(r), "status": "RUN"}
        if r.metadata.get("rows_left_out"):
            row["rows_left_out"] = int(r.metadata["rows_left_out"])
        if r.path in refused:
            return {**row, "status": "NOT_JUDGED", "reason": refused[r.path]}
        row |= {"judged": parts[r.path]["rows"], "verdicts": parts[r.path]["verdicts"]}
        counts, beside = batch.add(r), self.logits.get(r.rows)
        if beside and beside.path in parts:
            counts["batch_logits"] = batch.add(beside)["batch_logits"]
            row["logits"] = {k: parts[beside.path][k] for k in ("rows", "verdicts", "logit_error")}
        elif beside:
            row["logits"] = {"reason": refused[beside.path]}
        if "gate.logits" not in {w for r2 in (r, beside) if r2 for t in r2.layers.values() for w in t}:
            counts["batch_logits"] = None
        return row | {k: counts[k] for k in BATCH}


def entries_of(recordings):
    groups = {}
    for r in recordings:
        if r.kind != "sorted":
            groups.setdefault((r.kernel, r.case, r.metadata.get("engine_version")), []).append(r)
    return [Entry(g) for g in groups.values() if any(r.kind == "main" for r in g)]


def fill(moeref, entries, options):
    """[entry of the JSON], on all processors: each call of moeref has one thread."""
    certified, todo = {}, {}
    for e in entries:
        todo.setdefault((e.head["case"], e.head["seed"]), []).append(e)

    def certify(key):
        try:
            return moeref.certified(moeref.case(*key))
        except Bad as e:
            return e

    def one(e):
        found = certified[e.head["case"], e.head["seed"]]
        try:
            if isinstance(found, Bad):
                raise found
            return e.judged(moeref, found, options.sample)
        except Bad as bad:
            return {**e.head, "rows": [{"rows": r.rows, "file": str(r.path), "status": "NOT_JUDGED",
                                        "reason": str(bad)} for r in e.main]}

    for key in todo:
        try:
            moeref.case(*key)
        except Bad:
            pass  # said by whoever needs it
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        certified = dict(zip(todo, pool.map(certify, todo)))
        return list(pool.map(one, entries))


def name_sums(moeref, entries, document, options):
    """Adds what identify says, to the rows of the document that were judged."""
    asked = [e.logits.get(r.rows, r) for e, out in zip(entries, document["kernels"])
             for r, row in zip(e.main, out["rows"])
             if row["status"] == "RUN" and "reason" not in row.get("logits", {})]
    try:
        answers = table_identify.identify(moeref, asked, options.identify_rows)
    except Bad as e:
        document["faults"].append(f"identify: {e}")
        return
    for e, out in zip(entries, document["kernels"]):
        for r, row in zip(e.main, out["rows"]):
            found = answers.get(e.logits.get(r.rows, r).path)
            if found:
                row["identified"] = table_identify.short(found[0])


def add_records(document, records):
    """Times, to the rows; apart, kernels that did not run, and those that broke a rule and gave nothing to
    judge (sorted positions alone)."""
    rows = {(k["kernel"], k["case"], r["rows"]): r for k in document["kernels"] for r in k["rows"]}
    silent, document["broken"] = {}, []
    for r in records:
        name = r["kernel"] if r["kernel"].startswith(f"{r.get('engine')}.") \
            else f"{r.get('engine')}.{r['kernel']}"
        row = rows.get((name, r.get("case"), r.get("rows")))
        if row and r.get("us") is not None:
            row["us"] = r["us"]
        if not row and r.get("faulty"):
            document["broken"].append({"kernel": name, "case": r.get("case"), "rows": r.get("rows"),
                                       "faults": {f: r["faults"][f] for f in r["faulty"]}})
        if r["status"] != "RUN":
            key = (name, r.get("case"), r["status"], r.get("reason", ""))
            silent.setdefault(key, []).append(r.get("rows"))
    document["not_run"] = [
        {"kernel": k, "case": c, "status": s, "reason": why, "rows": rows}
        for (k, c, s, why), rows in silent.items()]


def total(document):
    out = dict.fromkeys(VERDICTS, 0)
    for k in document["kernels"]:
        for row in k["rows"]:
            for v, n in row.get("verdicts", {}).items():
                out[v] += n
    return out


def row_list(text):
    try:
        return tuple(int(n) for n in text.split(",") if n)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected row counts as in 1,96, found {text}") from None


def parse(arguments):
    p = argparse.ArgumentParser(prog="table.py", description=__doc__.split("\n\n")[0])
    p.add_argument("folders", nargs="+", metavar="DIR")
    p.add_argument("--cases", action="append", default=[], metavar="DIR", help="exported cases")
    p.add_argument("--moeref", metavar="F", help="the program (default: $MOEREF, else build/moeref)")
    p.add_argument("--json", metavar="F")
    p.add_argument("--markdown", metavar="F", help="(default: standard output)")
    p.add_argument("--sample", type=int, default=table_explain.SAMPLE, metavar="N",
                   help="tokens shown of each kernel, case, verdict and cause (default %(default)s)")
    p.add_argument("--identify-rows", type=row_list, default=table_identify.ROWS, metavar="LIST",
                   help="row counts whose logits are identified; '' for none")
    return p.parse_args(arguments)


def write(path, text):
    with output_file(path) as f:
        f.write(text)


def main(arguments=None):
    options = parse(arguments)
    try:
        recordings, records, faults = table_files.collect(options.folders)
        if not recordings and not records:
            raise Bad(f"{' '.join(options.folders)}: no ENGINE.KERNEL.mROWS.safetensors")
        moeref = Moeref(options.moeref, [*options.cases, *options.folders])
        entries = sorted(entries_of(recordings), key=lambda e: (e.head["case"], e.head["kernel"]))
        document = {"command": "table", "faults": faults}
        document["moeref"] = {"version": moeref.call("version").split()[-1]}
        document["kernels"] = fill(moeref, entries, options)
        for k in document["kernels"]:
            k["adversarial"] = table_print.start_of(k["case"])[0] in moeref.classes()
        name_sums(moeref, entries, document, options)
        add_records(document, records)
        document["verdicts"] = total(document)
        if options.json:
            write(options.json, json.dumps(document, indent=1) + "\n")
        text = table_print.markdown(document)
        if options.markdown:
            write(options.markdown, text)
        else:
            print(text, end="")
    except (Bad, OSError) as e:
        print(f"table.py: {e}", file=sys.stderr)
        return 3
    rows = [r for k in document["kernels"] for r in k["rows"]]
    logits = [r["logits"] for r in rows if "logits" in r]
    if document["faults"] or any(r["status"] != "RUN" for r in rows) or any("reason" in x for x in logits):
        return 3
    judged = [document["verdicts"], *(x["verdicts"] for x in logits)]
    bad = any(d[v] for d in judged for v in ("wrong", "malformed", "nonfinite"))
    return int(bad or bool(document["broken"]) or any(set(r["faults"]) & set(BROKEN) for r in rows))


if __name__ == "__main__":
    sys.exit(main())
