"""What the runs of one layer's launches are held to: comparisons of bits, on the device where the outputs
are, so that the host waits once for a layer and not for each launch."""
import numpy as np

import observed
from launches import KEPT, Rows, firsts

ROWWISE = ("ids", "weights", "logits")
WORD = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}


def words(torch, tensor):
    """The encodings as integers of the elements' size."""
    t = tensor.contiguous()
    return t.view(getattr(torch, WORD[t.element_size()]))


def poison_word(poison, size):
    """The integer that an element of `size` bytes of poison is."""
    return int.from_bytes(bytes([poison]) * size, "little", signed=size > 1)


def holes(torch, first, second, poisons):
    """Which elements hold one poison after one run and the other after the other."""
    a, b = words(torch, first), words(torch, second)
    size = first.element_size()
    return (a == poison_word(poisons[0], size)) & (b == poison_word(poisons[1], size))


def differing(torch, a, b):
    """[rows] whose bits are not the same in both: {name: [rows, columns]}."""
    out = None
    for k in ROWWISE:
        if k in a:
            d = (words(torch, a[k]) != words(torch, b[k])).any(1)
            out = d if out is None else out | d
    return out


def unwritten(torch, faults, name, first, second, rows, place):
    """first, second: [launches, rows of it, ...] of one output. Returns a check that is finished when the
    device is done."""
    found = holes(torch, first, second, observed.POISONS).flatten(1)
    count = found.sum()

    def finish():
        if int(count):
            launch, element = map(int, found.nonzero()[0])
            width = found.shape[1] // rows if rows else 1
            faults.add("unwritten", int(count), f"{name}, row {element // width}, element "
                       f"{element % width} ({place(launch)})")
    return finish


def reruns(torch, faults, a, b, rows, again, place):
    """a, b: {name: [rows of all launches, columns]}. again(launch): the values of one more run over the
    first poison: where it is as the first time, then old memory made the difference."""
    found = differing(torch, a, b)

    def finish():
        if found is None or not bool(found.any()):
            return
        at = np.flatnonzero(found.cpu().numpy())
        for launch in np.unique(at // rows):
            mine = at[at // rows == launch]
            part = slice(int(launch) * rows, (int(launch) + 1) * rows)
            third = differing(torch, {k: v[part] for k, v in a.items()}, again(int(launch)))
            faults.add("reruns" if bool(third.any()) else "memory", len(mine),
                       f"row {mine[0] - launch * rows} ({place(int(launch))})")
    return finish


def positions(torch, faults, tokens, values, rows, place):
    """tokens [rows of all launches]. Returns a check that gives the Rows to be written."""
    first, first_of = firsts(tokens)
    some = next(iter(values.values()))
    back = torch.from_numpy(first_of).to(some.device)
    found = differing(torch, values, {k: v[back] for k, v in values.items()})
    count = found.sum()
    start = {k: v[torch.from_numpy(first).to(v.device)] for k, v in values.items()}

    def finish():
        out, take, there = Rows(), first, start
        out.differing = int(count)
        if out.differing:
            other = np.flatnonzero(found.cpu().numpy())
            where = f"token {tokens[other[0]]}, launch {other[0] // rows}, row {other[0] % rows}"
            faults.add("positions", out.differing, f"{place(None)}, {where}")
            other = other[:KEPT]
            out.kept = len(other)
            take = np.sort(np.concatenate([first, other]))
            at = torch.from_numpy(take)
            there = {k: v[at.to(v.device)] for k, v in values.items()}
        out.token_index = tokens[take]
        out.parts = {k: v.cpu() for k, v in there.items()}
        return out
    return finish


def marks(faults, done, place):
    """Inputs and canaries, as noted after each run; and what inputs are copied from."""
    seen = done.marks.cpu().numpy()
    for n in range(done.launches):
        for p in range(len(seen)):
            names = [k for k, bad in zip(done.inputs.names, seen[p, n, 1:]) if bad]
            faults.add("inputs", len(names), f"{', '.join(names)} ({place(n)})")
            faults.add("canary", seen[p, n, 0], place(n))
    if not bool((done.inputs.sum() == done.inputs.sums).all()):
        faults.add("canary", 1, f"memory far from its outputs, which nothing points to ({place(None)})")
