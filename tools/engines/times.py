#!/usr/bin/env python3
"""Microseconds side by side, from what run.py --time --json wrote:

    python3 tools/engines/times.py FILE.json... [--what us_cold|us_warm] [--case NAME]

A Markdown table for each case: a line a kernel, a column a row count. Kernels that start from logits,
of the case's own exact ones, say so: they do less than the others. Below it the floors that were
measured in the same processes, from the fastest to the slowest. Marks say what is not a plain
figure: s, timed on the stream, since the launch could not be captured; h, there, where the host was
late; e, by events, which hold the launch of the graph, too. A line says whether others used the
machine meanwhile. An entry that was timed in another way than the others is no basis for a ratio.
`-`: not run, or not served; `?`: run, and not timed.
"""
import argparse
import json
import re
import sys

ROWS = (1, 6, 16, 96, 1024, 8192)
LOGITS = re.compile(r"(.*?)(?:\.(fp32|bf16|fp16)-logits)?$")
MARKS = {"s": "on the stream: not captured", "e": "by events",
         "h": "the host was late, and may be part of it"}


class Bad(Exception):
    pass


def records_of(path):
    try:
        with open(path) as f:
            document = json.load(f)
    except (OSError, ValueError) as e:
        raise Bad(f"{path}: {e}") from None
    records = document.get("records") if isinstance(document, dict) else document
    if not isinstance(records, list) or not all(isinstance(r, dict) for r in records):
        raise Bad(f"{path}: no list of records, as run.py --json writes it")
    return records


def entry(record, what):
    us = record.get("us")
    if record.get("status") != "RUN":
        return "-"
    if not isinstance(us, dict) or not isinstance(us.get(what), (int, float)):
        return "?"
    how = us.get("how", "")
    marks = ("s" if how.startswith("stream") else "") + ("e" if "by events" in how else "") + (
        "h" if "host late" in how else "")
    return f"{us[what]:.2f}{' ' + marks if marks else ''}"


def name_of(record):
    kernel = record.get("kernel", "?")
    engine = record.get("engine", "")
    return kernel if not engine or kernel.startswith(engine + ".") else f"{engine}.{kernel}"


def base_of(record):
    """The case, and the type of the logits that it was turned into."""
    m = LOGITS.match(str(record.get("case", "?")))
    return m[1], m[2]


def label_of(record):
    kind = base_of(record)[1]
    return name_of(record) + (f" (from {kind} logits)" if kind else "")


def floors_line(records, what):
    """Each process measured them anew."""
    seen = {}
    for r in records:
        floors = r.get("floors")
        for name, f in (floors if isinstance(floors, dict) else {}).items():
            if isinstance(f, dict) and isinstance(f.get(what), (int, float)):
                seen.setdefault(name + (f" of {f['bytes']} bytes" if "bytes" in f else ""), []).append(
                    f[what])
    return "; ".join(f"{n} {min(v):.2f} to {max(v):.2f}" for n, v in sorted(seen.items()))


def table(records, rows, what):
    """Lines. A kernel that was timed at no row count has none."""
    by = {}
    for r in records:
        if r.get("rows") in rows:
            by.setdefault(label_of(r), {})[r["rows"]] = entry(r, what)
    timed = {k: v for k, v in by.items() if any(e[0].isdigit() for e in v.values())}
    if not timed:
        return ["Nothing was timed."]
    lines = ["| kernel | " + " | ".join(str(r) for r in rows) + " |", "|---" + "|--:" * len(rows) + "|"]
    lines += [f"| {k} | " + " | ".join(v.get(r, "-") for r in rows) + " |"
              for k, v in sorted(timed.items())]
    seen = "".join(e for v in timed.values() for e in v.values())
    legend = [f"{m}: {text}" for m, text in MARKS.items() if m in seen]
    machines = dict.fromkeys(r.get("machine", "alone") for r in records if r.get("us"))
    legend += [f"machine: {m}" for m in machines if m != "alone"]
    floors = floors_line(records, what)
    return lines + ([""] + ["; ".join(legend) + "."] if legend else []) + (
        ["", f"Floors: {floors}."] if floors else [])


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="+", metavar="FILE.json")
    parser.add_argument("--what", default="us_cold", choices=("us_cold", "us_warm"))
    parser.add_argument("--case")
    parser.add_argument("--rows", default=",".join(map(str, ROWS)))
    a = parser.parse_args(argv)
    try:
        rows = [int(r) for r in a.rows.split(",")]
        records = [r for path in a.files for r in records_of(path)]
    except (Bad, ValueError) as e:
        print(f"times.py: {e}", file=sys.stderr)
        return 3
    cases = dict.fromkeys(base_of(r)[0] for r in records)
    for case in [c for c in cases if a.case in (None, c)]:
        print(f"**{case}**, microseconds, {'cold' if a.what == 'us_cold' else 'warm'} L2\n")
        print("\n".join(table([r for r in records if base_of(r)[0] == case], rows, a.what)))
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
