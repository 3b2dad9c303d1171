"""Writes what `make test` expects of recordings (tests/support/engine_records.h):

    python3 tools/engines/expect.py data/engines [--cases DIR]... > data/engines/EXPECTED

DIR/CASE/*.safetensors are judged as they lie there, and sums that `moeref identify` finds are noted. How
a case is made is noted, too, where it is not cases/CASE.json: exact logits of one of those, or a class of
`moeref gen`. Look at the difference before it is committed: this writes down whatever the judge says.
"""
import argparse
import re
import sys
from pathlib import Path

import table_identify
from table import VERDICTS, judge
from table_files import Bad, Recording
from table_judge import HERE, LOGITS, Moeref

MADE = re.compile(r"Made by moeref (gen \S+ --seed \d+ --tokens \d+)")


ALL = dict.fromkeys(table_identify.MOST, sys.maxsize)


def making(moeref, case, seed):
    """The `make` line of a case, or None."""
    if (HERE / "cases" / f"{case}.json").exists() and not seed:
        return None
    m = LOGITS.match(case)
    seeded = f" --seed {seed}" if seed else ""
    if m and (HERE / "cases" / f"{m['base']}.json").exists():
        return f"make {case} export cases/{m['base']}.json --logits {m['type']}{seeded}"
    for shipped in (f"cases/{case}.json", f"cases/suspects/{case}.json"):
        if (HERE / shipped).exists():
            return f"make {case} export {shipped}{seeded}"
    path = moeref.case(case, seed)
    found = MADE.search(path.read_text())
    if not found or m:
        raise Bad(f"{path}: neither a case of cases/, nor made by moeref gen")
    return f"make {case} {found[1]}"


def lines_of(moeref, folder, recordings):
    """All lines about one case; its folder has its name."""
    first = recordings[0]
    case, seed = first.case, first.metadata.get("seed", "")
    if folder.name != case or any(r.case != case for r in recordings):
        raise Bad(f"{folder}: holds recordings of case {case}")
    made = making(moeref, case, seed)
    if made:
        yield made
    path, profiles = moeref.case(case, seed), {}
    for r in recordings:
        profiles.setdefault(r.metadata.get("profile"), []).append(r)
    for alike in profiles.values():
        _, parts, refused = judge(moeref, path, list(alike))
        for why in refused.values():
            raise Bad(f"{case}: {why}")
        for r in alike:
            p = parts[r.path]
            yield (f"judge {case}/{r.path.name} {p['rows']} "
                   + " ".join(str(p["verdicts"][v]) for v in VERDICTS))


def replays(moeref, recordings):
    """One sum that makes all logits of all layers, where there is one."""
    rows = {r.rows for r in recordings}
    answers = table_identify.identify(moeref, recordings, rows, ALL, every=True)
    for r in recordings:
        found = [a for a in answers.get(r.path, []) if not a["everything"]]
        common = set.intersection(*(set(a["sums"]) for a in found)) if found else set()
        line = next((s for s in found[0]["sums"] if s in common), None) if found else None
        if line:
            n = sum(r.tensor(t["gate.logits"]).size for t in r.layers.values() if "gate.logits" in t)
            yield f"replay {r.case}/{r.path.name} {n} {line}"


def main():
    p = argparse.ArgumentParser(prog="expect.py", description=__doc__.split("\n\n")[0])
    p.add_argument("folder", metavar="DIR", type=Path)
    p.add_argument("--cases", action="append", default=[], metavar="DIR")
    p.add_argument("--moeref", metavar="F")
    options = p.parse_args()
    try:
        moeref = Moeref(options.moeref, options.cases)
        print("# CASE/FILE rows " + " ".join(VERDICTS) + " (tools/engines/expect.py)")
        every = []
        for folder in sorted(f for f in options.folder.iterdir() if f.is_dir()):
            recordings = [Recording(f) for f in sorted(folder.glob("*.m*.safetensors"))
                          if not f.name.endswith(".sorted.safetensors")]
            if not recordings:
                continue
            every += recordings
            for line in lines_of(moeref, folder, recordings):
                print(line)
        for line in replays(moeref, every):
            print(line)
    except (Bad, OSError) as e:
        print(f"expect.py: {e}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
