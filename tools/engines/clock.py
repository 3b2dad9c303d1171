"""Where the seconds of one row count go."""
import time


class Clock:
    def __init__(self):
        self.seconds, self.since = {}, time.perf_counter()

    def lap(self, what):
        """The time since the last lap was spent on this."""
        now = time.perf_counter()
        self.seconds[what] = self.seconds.get(what, 0) + now - self.since
        self.since = now

    def rounded(self):
        return {k: round(v, 4) for k, v in self.seconds.items()}
