"""Which tokens stand where, in which launch. Plain Python and numpy."""
import numpy as np

LAUNCHES = 64  # the most at one row count


def plan(tokens, rows, most):
    """[token of each row], one array a launch. Below 256 rows the first `most` tokens take part, else
    all. Fewer rows than these: consecutive blocks, 64 at most, the last one filled up from the
    beginning. More: the tokens repeat, each time moved on by a prime, so that a token stands at places
    of different alignment."""
    n = min(tokens, most) if rows < 256 else tokens
    if n == 0:
        return []
    at = np.arange(rows, dtype=np.int64)
    if rows >= n:
        shift = 37 if n % 37 else 41
        return [(at + at // n * shift) % n]
    return [(b * rows + at) % n for b in range(min(-(-n // rows), LAUNCHES))]


class Rows:
    """What one layer gave at one row count: the first row of each token, and each row whose bits are
    not those of its token's first."""

    KEPT = 512  # rows that differ, of one layer; the rest is counted

    def __init__(self, tokens):
        self.seen = np.zeros(tokens, bool)
        self.first = None    # [tokens, bytes]: the bits of each token's first row
        self.token_index = []
        self.parts = {}      # name -> [arrays of rows]
        self.differing, self.kept, self.where = 0, 0, ""

    def add(self, tokens, bits, values, launch):
        """tokens [rows]; bits [rows, bytes]: all that is compared; values {name: [rows, ...]}."""
        if self.first is None:
            self.first = np.zeros((len(self.seen), bits.shape[1]), np.uint8)
        distinct, row = np.unique(tokens, return_index=True)
        row = row[~self.seen[distinct]]
        self.first[tokens[row]] = bits[row]
        self.seen[tokens[row]] = True
        other = np.flatnonzero((bits != self.first[tokens]).any(1))
        if len(other) and not self.where:
            self.where = f"token {tokens[other[0]]}, launch {launch}, row {other[0]}"
        self.differing += len(other)
        other = other[:self.KEPT - self.kept]
        self.kept += len(other)
        take = np.sort(np.concatenate([row, other]))
        self.token_index.append(tokens[take])
        for name, v in values.items():
            self.parts.setdefault(name, []).append(v[take])
