"""One kernel's recordings of one case at several row counts, held against the certified sets and against
each other: what gpu/judge.c and gpu/bits.h count for our own kernels."""
import numpy as np

from table_files import bits
from table_judge import CERT_TIE


class Seen:
    """The first that was seen of each token of one layer: bits of rows."""

    def __init__(self, tokens):
        self.there, self.rows = np.zeros(tokens, bool), None

    def differing(self, token, rows):
        """Tokens of which a row is not the first one ever seen; then remembers those that are new.
        rows: [n, bytes]. Bits whose number changes with the row count differ in all tokens."""
        if self.rows is None:
            self.rows = np.zeros((len(self.there), rows.shape[1]), np.uint8)
        if rows.shape[1] != self.rows.shape[1]:
            return np.unique(token[self.there[token]])
        other = self.there[token] & (self.rows[token] != rows).any(1)
        new, at = np.unique(token, return_index=True)
        at = at[~self.there[new]]
        self.rows[token[at]], self.there[token[at]] = rows[at], True
        return np.unique(token[other])


class Kernel:
    """Add recordings in ascending order of rows."""

    def __init__(self, certified):
        self.certified = certified
        self.seen = {}  # (phase, layer, what) -> Seen

    def compare(self, at, what, token, rows):
        key = (*at, what)
        if key not in self.seen:
            self.seen[key] = Seen(len(self.certified[at][0]))
        return len(self.seen[key].differing(token, rows))

    def add(self, recording):
        """Counts over all layers: rows off the certified set, of so many that have one; tokens with
        another set, order, weights, logits than the first that was ever seen of them."""
        n = dict.fromkeys(("flips", "decided", "batch_flips", "batch_order", "batch_weights",
                           "batch_logits"), 0)
        n["flip_gap"] = 0.0
        for at in recording.layers:
            if at not in self.certified:
                continue
            token = recording.tokens(at)
            if len(token) and (token.min() < 0 or token.max() >= len(self.certified[at][0])):
                continue  # the judge says so
            self.add_ids(recording, at, token, n)
            for what, count in (("topk_weights", "batch_weights"), ("gate.logits", "batch_logits")):
                rows = recording.get(at, what)
                if rows is not None and len(rows):
                    n[count] += self.compare(at, what, token[:len(rows)], bits(rows))
        return n

    def add_ids(self, recording, at, token, n):
        ids = recording.get(at, "topk_ids")
        if ids is None or not len(ids):
            return
        right, certificate, gap = self.certified[at]
        ids = ids.astype(np.int64)
        sets = np.sort(ids, 1)
        decided = certificate[token] < CERT_TIE
        flipped = decided & ((sets != right[token]).any(1) if sets.shape[1] == right.shape[1] else True)
        n["decided"] += int(decided.sum())
        n["flips"] += int(flipped.sum())
        if flipped.any():
            n["flip_gap"] = max(n["flip_gap"], float(gap[token[flipped]].max()))
        n["batch_flips"] += self.compare(at, "set", token, bits(sets))
        n["batch_order"] += self.compare(at, "ids", token, bits(ids))
