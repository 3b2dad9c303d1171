#!/usr/bin/env python3
"""Of what run.py --json wrote:

    python3 tools/engines/served.py FILE.json CASE [--not OTHER] [--part I/N]
                    kernels that ran on CASE, and not on OTHER, joined by commas; --part: every N-th of
                    them, from the I-th, so that N processes share them
    python3 tools/engines/served.py --join [--machine TEXT] FILE.json...
                    one document with the records of all; of FILE.json that is not there those of
                    FILE/records.jsonl. Each record of the files after TEXT says who else used the
                    machine meanwhile ("machine")
"""
import json
import os
import re
import sys


def records(path):
    """Of a run that was killed, what came until then: FILE/records.jsonl."""
    if os.path.exists(path):
        with open(path) as f:
            return json.load(f)["records"]
    lines = os.path.join(path.removesuffix(".json"), "records.jsonl")
    if not os.path.exists(lines):
        return []
    with open(lines) as f:
        return [json.loads(line) for line in f if line.endswith("}\n")]


def kernels(some, case):
    """A kernel of logits runs on CASE.TYPE-logits."""
    return {r["kernel"] for r in some if r["status"] == "RUN" and
            (r["case"] == case or r["case"].startswith(case + ".") and r["case"].endswith("-logits"))}


def join(words):
    machine, out, words = {}, [], iter(words)
    for word in words:
        if word == "--machine":
            machine = {"machine": next(words, "alone")}
        else:
            out += [{**r, **machine} for r in records(word)]
    return {"records": out}


def main(argv):
    if argv[:1] == ["--join"]:
        json.dump(join(argv[1:]), sys.stdout)
        return 0
    options = dict(zip(argv[2::2], argv[3::2]))
    part = re.fullmatch(r"(\d+)/([1-9]\d*)", options.pop("--part", "0/1"))
    other = options.pop("--not", None)
    if len(argv) < 2 or len(argv) % 2 or options or not part:
        print(__doc__, file=sys.stderr)
        return 2
    some = records(argv[0])
    found = sorted(kernels(some, argv[1]) - (kernels(some, other) if other else set()))
    print(",".join(found[int(part[1])::int(part[2])]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
