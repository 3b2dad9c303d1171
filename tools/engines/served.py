#!/usr/bin/env python3
"""Of what run.py --json wrote:

    python3 tools/engines/served.py FILE.json CASE [--not OTHER]   kernels that ran on CASE, and not on
                                                                   OTHER, joined by commas
    python3 tools/engines/served.py --join FILE.json...            one document with the records of all;
                                                                   a file that is not there has none
"""
import json
import os
import sys


def records(path):
    if not os.path.exists(path):
        return []
    with open(path) as f:
        return json.load(f)["records"]


def kernels(some, case):
    """A kernel of logits runs on CASE.TYPE-logits."""
    return {r["kernel"] for r in some if r["status"] == "RUN" and
            (r["case"] == case or r["case"].startswith(case + ".") and r["case"].endswith("-logits"))}


def main(argv):
    if argv[:1] == ["--join"]:
        json.dump({"records": [r for path in argv[1:] for r in records(path)]}, sys.stdout)
        return 0
    if len(argv) not in (2, 4) or len(argv) == 4 and argv[2] != "--not":
        print(__doc__, file=sys.stderr)
        return 2
    some = records(argv[0])
    print(",".join(sorted(kernels(some, argv[1]) - (kernels(some, argv[3]) if argv[3:] else set()))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
