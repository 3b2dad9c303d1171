"""What a failing test says."""


def _counts(title, counts):
    if counts is None:
        return []
    seen = ", ".join(f"{n} {verdict}" for verdict, n in counts.items() if n)
    return [f"  {title}: {seen or 'nothing judged'}"]


def _one(finding):
    where = f"token {finding.token}"
    if finding.row != finding.token:
        where += f" (row {finding.row})"
    text = [f"  {where}: {finding.verdict}: {finding.why}"]
    gap = "not known" if finding.gap is None else f"{finding.gap:.3g}"
    text.append(f"    gap at the cut {gap} (certificate {finding.certificate})")
    text.append(f"    expected {list(finding.expected)}")
    if finding.source == "topk":
        text.append(f"    observed {list(finding.observed)}")
    return text


def failure_message(found, show, fails):
    """fails: the verdicts that make a row fail."""
    failures = found.failures
    listed = [one for one in found.worst if one.verdict in fails][:show]
    judged = found.rows * sum(counts is not None for counts in (found.counts, found.logit_counts))
    text = [f"{failures} of {judged} rows fail" + (" (strict)" if found.strict else "") +
            f", judged under {found.arith}"]
    text += _counts("ids and weights", found.counts)
    text += _counts("logits", found.logit_counts)
    for finding in listed:
        text += _one(finding)
    if failures > len(listed):
        text.append(f"  and {failures - len(listed)} more")
    return "\n".join(text)
