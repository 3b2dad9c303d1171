"""tools/engines/spans.py on made records; exit status 1 if one answer is wrong. Needs no device."""
import os
import random
import sys

sys.dont_write_bytecode = True
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tools", "engines"))
import spans
from expecting import expect, verdict

MARK, FLUSH, SPIN = "mark", "flush", "spin"


def refused(what, function, *arguments):
    try:
        expect(what, function(*arguments), "a refusal")
    except spans.Unclear as e:
        return str(e)


def tape(*names, gap=10, length=5):
    """Records one after the other, handed over in any order, as a profiler does."""
    out = [(n, 1000 + i * gap, 1000 + i * gap + length) for i, n in enumerate(names)]
    random.Random(len(out)).shuffle(out)
    return out


def chain(at, overlap):
    """Two kernels; the second begins before the first has ended, or after."""
    return [("a", at, at + 40), ("b", at + 40 - overlap, at + 70)]


def check_sections():
    three = tape("lost", MARK, MARK, "a", MARK, FLUSH, "a", FLUSH, "a", MARK, "a", "a", MARK)
    found = [spans.names(s) for s in spans.sections(three, MARK)]
    expect("sections", found, [["a"], [FLUSH, "a", FLUSH, "a"], ["a", "a"]])
    expect("no mark", spans.sections(tape("a", "b"), MARK), [])


def check_samples():
    cold = tape(FLUSH, "a", "b", FLUSH, "a", "b", FLUSH, "a", "b")
    found = [spans.names(s) for s in spans.last(spans.led(cold, FLUSH), 2)]
    expect("cold", found, [["a", "b"]] * 2)
    stream = tape(FLUSH, SPIN, "a", FLUSH, SPIN, "a", FLUSH, SPIN, "a")
    found = [spans.names(s) for s in spans.last(spans.led(stream, SPIN, (FLUSH,)), 3)]
    expect("cold, on the stream", found, [["a"]] * 3)
    found = [spans.names(s) for s in spans.chunks(tape("a", "b", "a", "b"), 2)]
    expect("warm", found, [["a", "b"]] * 2)
    expect("late samples are left out", spans.in_time(["a", "b", "c"], [5, 6, 4], 5, 2), (["a", "c"], 1))
    expect("too few are in time", spans.in_time(["a", "b", "c"], [5, 6, 4], 5, 3), (["a", "b", "c"], 1))
    refused("a lost record", spans.chunks, tape("a", "b", "b"), 2)
    refused("too few samples", spans.last, [[("a", 0, 1)]], 2)
    refused("unlike samples", spans.last, [[("a", 0, 1)], [("b", 2, 3)]], 2)
    refused("an empty sample", spans.last, [[]], 1)
    expect("missing", spans.missing(tape("a", "b"), tape("a")), "b")
    expect("another kernel in its place", spans.missing(tape("a", "b"), tape("a", "c")), None)


def check_spans():
    for overlap, expected in ((-20, 0.07), (0, 0.07), (15, 0.07)):
        expect("span", spans.microseconds([chain(500, overlap)]), [expected])
    inner = [("long", 0, 900), ("short", 100, 200)]  # the last to begin is not the last to end
    expect("one inside another", spans.microseconds([inner]), [0.9])
    ordered = list(range(1, 202))
    expect("quantiles", [spans.quantile(ordered, q) for q in (0.1, 0.5, 0.9)], [21, 101, 181])
    expect("of one", spans.quantile([3.0], 0.1), 3.0)


if __name__ == "__main__":
    check_sections()
    check_samples()
    check_spans()
    sys.exit(verdict("spans", "all right"))
