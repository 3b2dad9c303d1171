"""Why tokens are not EXACT: what `moeref verify` lists, gathered by token and cause."""

SAMPLE = 5  # tokens shown of each verdict and cause
SHOWN = ("verdict", "cause", "why", "omitted", "included", "slot", "difference", "radius", "gap",
         "certificate", "expected", "observed")


def entry(finding, arithmetic, rows):
    """One token: as the judge first (worst) saw it, and at which row counts."""
    out = {"phase": finding["phase"], "layer": finding["layer"], "token": finding["token"]}
    out |= {k: finding[k] for k in SHOWN}
    out["arithmetic"], out["rows"] = arithmetic, [rows]
    return out


def largest(entries, key):
    found = [e[key] for e in entries if e[key] is not None]
    return max(found) if found else None


def explain(document, rows_of, arithmetic_of, sample):
    """document: of verify; rows_of, arithmetic_of: {path: of the recording}. Findings are the worst
    1000; `omitted` counts the others, which `verdicts` of each recording count by verdict."""
    tokens = {}
    for f in document["worst"]:
        key = (f["verdict"], f["cause"], f["phase"], f["layer"], f["token"])
        rows, arithmetic = rows_of[f["source"]], arithmetic_of[f["source"]]
        if key not in tokens:
            tokens[key] = entry(f, arithmetic, rows)
        elif rows not in tokens[key]["rows"]:
            tokens[key]["rows"].append(rows)
    causes = {}
    for (verdict, cause, *_), e in tokens.items():
        causes.setdefault((verdict, cause), []).append(e)
    groups = []
    for (verdict, cause), found in causes.items():
        for e in found:
            e["rows"].sort()
        groups.append({"verdict": verdict, "cause": cause, "tokens": len(found),
                       "rows": sorted({r for e in found for r in e["rows"]}),
                       "largest_difference": largest(found, "difference"),
                       "largest_radius": largest(found, "radius"),
                       "largest_gap": largest(found, "gap"), "worst": found[:sample]})
    return {"listed": len(document["worst"]), "omitted": document["worst_omitted"], "groups": groups}
