"""From what ran on a device to spans: (name, start, end) of kernels, copies and memsets, in ns, into
samples from the first one's start to the last one's end. Needs no device, and no torch."""
import math
from collections import Counter


class Unclear(Exception):
    """The records do not say where samples begin and end: one line, why."""


def sections(records, mark):
    """The stretches between marks, in order of start; empty ones are left out, and so is what was
    before the first mark: a recorder may lose its beginning."""
    out, here = [], None
    for r in sorted(records, key=lambda r: r[1]):
        if r[0] == mark:
            here = []
            out.append(here)
        elif here is not None:
            here.append(r)
    return [s for s in out if s]


def led(records, lead, own=()):
    """Samples that a kernel called `lead` goes before; `own` belong to none."""
    out = []
    for r in sorted(records, key=lambda r: r[1]):
        if r[0] == lead:
            out.append([])
        elif out and r[0] not in own:
            out[-1].append(r)
    return out


def chunks(records, size):
    """Samples that follow each other with nothing between, each of `size` records; the last record is
    the last sample's last. Each sample is a graph launch of one stream, so all of it has ended before
    the next begins."""
    records = sorted(records, key=lambda r: r[1])
    if size < 1 or len(records) % size:
        raise Unclear(f"{len(records)} records are not in samples of {size}")
    return [records[i:i + size] for i in range(0, len(records), size)]


def names(sample):
    return [r[0] for r in sample]


def missing(records, sample):
    """Where sample has fewer records: the name of one that it lacks. None: it does not. (A library may
    choose another kernel while it is captured: names alone say nothing.)"""
    lost = Counter(names(records)) - Counter(names(sample))
    return sorted(lost)[0] if len(records) > len(sample) else None


def last(samples, count):
    """The last `count` samples, if all of them ran the same kernels."""
    samples = samples[-count:]
    if len(samples) < count:
        raise Unclear(f"{len(samples)} samples of {count} were recorded")
    expected = Counter(names(samples[-1]))
    if not expected:
        raise Unclear("nothing ran on the device")
    for i, s in enumerate(samples):
        other = Counter(names(s))
        if other != expected:
            odd = sorted((other - expected) + (expected - other))[0]
            raise Unclear(f"sample {i} ran {len(s)} kernels, the last {len(samples[-1])}; they differ "
                          f"in {odd[:60]}")
    return samples


def in_time(samples, host, limit, fewest):
    """Those that the host enqueued in no more than `limit`, all where that leaves too few; and how many
    were late."""
    good = [s for s, took in zip(samples, host) if took <= limit]
    return good if len(good) >= fewest else samples, len(samples) - len(good)


def microseconds(samples):
    return sorted((max(r[2] for r in s) - min(r[1] for r in s)) / 1e3 for s in samples)


def quantile(ordered, q):
    """Nearest rank, as gpu/stats.c has it."""
    return ordered[min(max(math.ceil(q * len(ordered)), 1), len(ordered)) - 1]
