"""Which tokens stand where, in which launch, and which rows go to a file. Plain Python and numpy."""
import numpy as np

LAUNCHES = 64  # the most at one row count
KEPT = 512     # rows that differ from their token's first, of one layer: in the file; the rest is counted


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


def firsts(tokens):
    """tokens of all rows of all launches, one after the other: the rows where each token stands first,
    and for each row the row where its token stands first."""
    _, first, inverse = np.unique(tokens, return_index=True, return_inverse=True)
    return np.sort(first), first[inverse.reshape(-1)]


class Rows:
    """What one layer gave at one row count: the first row of each token, and each row whose bits are
    not those of its token's first."""

    def __init__(self):
        self.token_index = np.zeros(0, np.int64)
        self.parts = {}  # name -> CPU tensor of these rows
        self.differing, self.kept = 0, 0
