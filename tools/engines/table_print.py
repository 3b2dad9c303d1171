"""The table as Markdown: one line a kernel and case, adversarial classes together."""
import re

VERDICTS = ("exact", "tie", "rounding", "undecided", "wrong", "malformed", "nonfinite")
LOGITS = re.compile(r"(.+)\.(fp32|bf16|fp16)-logits$")
HEAD = ("kernel", "version", "starts from", "rows", *VERDICTS, "flips", "batch flips", "bits change",
        "deterministic", "declared arithmetic", "identified")


def spans(rows):
    """How many row counts, and from which to which."""
    rows = sorted(set(rows))
    return f"{rows[0]}" if len(rows) == 1 else f"{len(rows)}: {rows[0]} to {rows[-1]}"


def by_rows(rows, value):
    """"a", or "a at 1 to 16; b at 17 to 96": runs of row counts with the same value."""
    runs = []
    for r in rows:
        v = value(r)
        if v is None:
            continue
        if not runs or runs[-1][0] != v:
            runs.append((v, []))
        runs[-1][1].append(r["rows"])
    if len(runs) == 1:
        return runs[0][0]
    return "; ".join(f"{v} at {n[0]}" + (f" to {n[-1]}" if len(n) > 1 else "") for v, n in runs)


def identified(row):
    a = row.get("identified")
    if not a:
        return None
    if a["everything"]:
        return "any line"
    if not a["identified"]:
        near = f" ({a['nearest']} misses {a['mismatches']} of {a['checked']})" if a["nearest"] else ""
        return f"unidentified{near}"
    more = a["sums_in_all"] - 1
    return f"`{a['line']}`" + (f" or {more} more" if more else "")


def said(rows, names):
    """Faults of these names: at which row counts."""
    return "; ".join(f"{n}: {spans(at)} ({text})" for n in names
                     for at, text in [([r["rows"] for r in rows if n in r.get("faults", {})],
                                       next((r["faults"][n] for r in rows
                                             if n in r.get("faults", {})), ""))] if at)


def cell(text):
    return str(text).replace("|", "\\|").replace("\n", " ")


def line(cells):
    return "| " + " | ".join(map(cell, cells)) + " |\n"


def sum_of(rows, key):
    found = [r[key] for r in rows if r.get(key) is not None]
    return sum(found) if found else None


def share(part, whole):
    return "-" if not whole else f"{part} ({100 * part / whole:.2f} %)" if part else "0"


def one(k, start):
    """Cells of one kernel. Rows that were not judged are said below the table."""
    rows = [r for r in k["rows"] if r["status"] == "RUN"]
    if not rows:
        return None
    verdicts = {v: sum(r["verdicts"][v] for r in rows) for v in VERDICTS}
    changes = {w: sum_of(rows, f"batch_{w}") for w in ("weights", "logits")}
    bits = ", ".join(f"{n} {w}" for w, n in changes.items() if n) or "0"
    differ = {n for r in rows for n in r["faults"] if n in ("reruns", "positions", "memory")}
    steady = "yes" if not differ & {"reruns", "memory"} else "no"
    steady += ", but by position" if differ == {"positions"} else ""
    return [f"`{k['kernel']}`", k["engine_version"], start, spans([r["rows"] for r in rows]),
            *(verdicts[v] or "" for v in VERDICTS), share(sum_of(rows, "flips") or 0,
                                                          sum_of(rows, "decided")),
            sum_of(rows, "batch_flips"), bits, steady,
            by_rows(rows, lambda r: f"`{r['arithmetic']}`" if r["arithmetic"] else "none"),
            by_rows(rows, identified) if any(map(identified, rows)) else ""]


def together(kernels):
    """Cases of one kernel as one: of the adversarial classes."""
    rows = [r for k in kernels for r in k["rows"]]
    return {**kernels[0], "rows": sorted(rows, key=lambda r: r["rows"])}


def table(kernels, starts):
    lines = [one(k, s) for k, s in zip(kernels, starts)]
    lines = [l for l in lines if l]
    if not lines:
        return ""
    keep = [i for i, name in enumerate(HEAD)
            if name not in VERDICTS[1:] or any(l[i] != "" for l in lines)]
    out = line([HEAD[i] for i in keep]) + "|" + "---|" * len(keep) + "\n"
    return out + "".join(line([l[i] for i in keep]) for l in lines) + "\n"


def start_of(case, given=False):
    """The case that it was made of, and what a kernel got: exact logits, rounded, or what is there."""
    m = LOGITS.match(case)
    if m:
        return m[1], f"{m[2]} logits"
    return case, "given logits" if given else "hidden states"


def findings(document):
    """Every verdict that fails, with the worst token of its cause."""
    out = ""
    for k in document["kernels"]:
        for g in k.get("explained", {}).get("groups", []):
            if g["verdict"] in ("wrong", "malformed", "nonfinite"):
                w = g["worst"][0]
                more = "at least " if k["explained"]["omitted"] else ""
                out += (f"- `{k['kernel']}`, {k['case']}: {more}{g['tokens']} tokens {g['verdict']} by "
                        f"{g['cause']} at {spans(g['rows'])} rows; the worst, layer {w['layer']}, "
                        f"{w['phase']}, token {w['token']}: {w['why']} (arithmetic "
                        f"`{w['arithmetic'] or 'none'}`, gap {w['gap']})\n")
        broken = said(k["rows"], ("unwritten", "memory", "inputs", "canary", "books"))
        if broken:
            out += f"- `{k['kernel']}`, {k['case']}: {broken}\n"
    apart = {}
    for b in document["broken"]:
        apart.setdefault((b["kernel"], b["case"]), []).append(b)
    for (kernel, case), found in apart.items():
        names = dict.fromkeys(f for b in found for f in b["faults"])
        out += f"- `{kernel}`, {case}: {said(found, names)}\n"
    return out


def silent(document):
    """What did not run or could not be judged: one line a kernel and reason."""
    reasons = {}
    for r in document["not_run"]:
        reasons.setdefault((r["kernel"], r["status"], r["reason"]), set()).add(r["case"])
    for k in document["kernels"]:
        for r in k["rows"]:
            if r["status"] != "RUN":
                reasons.setdefault((k["kernel"], r["status"], r["reason"]), set()).add(k["case"])
            elif "reason" in r.get("logits", {}):
                reasons.setdefault((k["kernel"], "NOT_JUDGED", f"logits: {r['logits']['reason']}"),
                                   set()).add(k["case"])
    out = "| kernel | status | reason | cases |\n|---|---|---|---|\n" if reasons else ""
    for (kernel, status, reason), cases in sorted(reasons.items()):
        names = sorted(map(str, cases))
        out += line([f"`{kernel}`", status, reason,
                     ", ".join(names) if len(names) < 6 else f"{len(names)} cases"])
    return out


def markdown(document):
    groups, classes = {}, {}
    for k in document["kernels"]:
        base, start = start_of(k["case"], k.get("input") == "logits")
        if k["adversarial"]:
            classes.setdefault((k["kernel"], start), []).append(k)
        else:
            groups.setdefault(base, []).append((k, start))
    out = ""
    for base, found in groups.items():
        made = table([k for k, _ in found], [s for _, s in found])
        out += f"### {base}\n\n{made}" if made else ""
    if classes:
        names = {start_of(k["case"])[0] for found in classes.values() for k in found}
        made = table([together(f) for f in classes.values()],
                     [f"{s}, {len(f)} classes" for (_, s), f in classes.items()])
        out += f"### {len(names)} adversarial classes\n\n{made}" if made else ""
    bad, quiet = findings(document), silent(document)
    if bad:
        out += f"### Wrong, malformed, nonfinite, or against a rule\n\n{bad}\n"
    if quiet:
        out += f"### Not run, not served\n\n{quiet}\n"
    out += "".join(f"- {f}\n" for f in document["faults"])
    return out
