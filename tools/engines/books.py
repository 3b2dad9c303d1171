"""Sorted positions, held against the ids that they sort.

A kernel of gives "sorted" brings, with n = rows * top_k chosen experts in positions
token * top_k + slot, and tiles of `tile` positions:
    sorted        positions: experts ascending, each expert's positions in any order, filled up to whole
                  tiles with n; as many elements as the engine likes, those from the total on are free
    tile_expert   one for each tile: the expert whose positions it holds
    sorted_total  one element: how many of sorted count, the tiles' sum
Ids outside of 0 .. experts - 1 are in no tile; some kernels give them tiles of expert -1 first, which is
allowed, and said.
"""
import numpy as np


def choose(router, logits, bias):
    """ids [tokens, top_k] for kernels that take ids: by score in fp64, ties by lowest id."""
    x = np.nan_to_num(logits.astype(np.float64), nan=-1e30, posinf=1e30, neginf=-1e30)
    with np.errstate(over="ignore", under="ignore"):
        if router.rank_by_logit:
            key = x
        elif router.score == "sigmoid":
            key = 1 / (1 + np.exp(-x))
        elif router.score == "softmax":
            key = np.exp(x - x.max(1, keepdims=True))
            key /= key.sum(1, keepdims=True)
        else:
            key = np.sqrt(np.logaddexp(0, x))
    if bias is not None:
        key = key + bias.astype(np.float64)
    if router.n_group > 1:
        grouped = key.reshape(len(key), router.n_group, -1)
        best = -np.sort(-grouped, 2)
        score = best[:, :, 0] if router.group_score == "max" else best[:, :, :2].sum(2)
        out = np.argsort(-score, 1, kind="stable")[:, router.topk_group:]
        np.put_along_axis(grouped, out[:, :, None], -np.inf, 1)
        key = grouped.reshape(key.shape)
    return np.argsort(-key, 1, kind="stable")[:, :router.top_k].astype(np.int32)


def used(outputs):
    """How many elements of sorted count, as the kernel says."""
    return int(np.asarray(outputs["sorted_total"]).reshape(-1)[0])


def check(ids, outputs, experts, tile):
    """"ok", or the first fault with its place. ids [rows, top_k]; arrays on the CPU."""
    flat = np.asarray(ids).reshape(-1).astype(np.int64)
    n = flat.size
    place = np.asarray(outputs["sorted"]).reshape(-1).astype(np.int64)
    owner = np.asarray(outputs["tile_expert"]).reshape(-1).astype(np.int64)
    total = used(outputs)
    inside = (flat >= 0) & (flat < experts)
    counts = np.bincount(flat[inside], minlength=experts)
    whole = -(-counts // tile) * tile
    outside = -(-(n - counts.sum()) // tile) * tile  # as tiles of expert -1, where they are kept
    if total not in (whole.sum(), whole.sum() + outside):
        return f"sorted_total: {total}, expected {whole.sum()}"
    if total > place.size or total // tile > owner.size:
        return f"sorted_total: {total}, and sorted has {place.size}, tile_expert {owner.size} elements"
    experts_in_order = np.arange(experts)
    if outside and total > whole.sum():
        whole = np.concatenate([[outside], whole])
        counts = np.concatenate([[n - counts.sum()], counts])
        experts_in_order = np.arange(-1, experts)
    expected = np.repeat(experts_in_order, whole // tile)
    bad = np.flatnonzero(owner[:expected.size] != expected)
    if bad.size:
        return f"tile_expert: tile {bad[0]}: {owner[bad[0]]}, expected {expected[bad[0]]}"
    return check_shares(flat, inside, place, counts, whole, experts_in_order)


def check_shares(flat, inside, place, counts, whole, order):
    n, at, seen = flat.size, 0, np.zeros(flat.size, bool)
    for expert, count, share in zip(order.tolist(), counts.tolist(), whole.tolist()):
        mine = place[at:at + share]
        real = np.flatnonzero(mine != n)
        for i in real.tolist():
            p = mine[i]
            if not 0 <= p < n:
                return f"sorted: element {at + i}, of expert {expert}: {p}, no position and no padding"
            if seen[p]:
                return f"sorted: element {at + i}, of expert {expert}: position {p} again"
            if (flat[p] != expert) if inside[p] else (expert != -1):
                return f"sorted: element {at + i}, of expert {expert}: position {p} is of {flat[p]}"
            seen[p] = True
        if len(real) != count:
            return f"sorted: expert {expert}: {len(real)} positions, expected {count}"
        if count and real[-1] != count - 1:
            return f"sorted: element {at + np.flatnonzero(mine == n)[0]}, of expert {expert}: padding " \
                   "before a position"
        at += share
    return "ok"
