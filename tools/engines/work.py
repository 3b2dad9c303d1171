"""What is left to run, and which child runs it next. A child takes units of one engine until there are no
more: imports take seconds, and so do first launches, which a kernel's next case in the same child is
spared."""
import threading

ROW_COUNT, COMPILE, IMPORT = 0.15, 3.0, 8.0  # seconds, guessed: only the order of work depends on it
FAILURES = 3  # children of an engine, one after the other, that did not come up


def cost(unit):
    """A unit is {"engine", "kernel", "compiles", "case", "case_name", "rows": [...], "max_tokens", "turn",
    "alone", "deaths"}."""
    return ROW_COUNT * len(unit["rows"]) + COMPILE * unit["compiles"]


class Work:
    def __init__(self, units):
        self.state, self.waiting, self.active = threading.Condition(), {}, {}
        self.begun, self.up, self.failures = set(), set(), {}
        # What compiles comes first, so that it is no one's last.
        for u in sorted(units, key=lambda u: (u["turn"], not u["compiles"])):
            self.waiting.setdefault(u["engine"], []).append(u)
            self.active[u["engine"]] = 0

    def engine(self):
        """The engine that a child is to be started for; None when all is done."""
        with self.state:
            while True:
                best = max((e for e in self.waiting if self.need(e) > 0), key=self.order, default=None)
                if best is not None:
                    self.active[best] += 1
                    return best
                # What others run may come back.
                if not any(self.active.values()):
                    return None
                self.state.wait(1)

    def need(self, engine):
        """Seconds that wait for each child of an engine; 0: one more would come too late to help."""
        units, active = self.waiting[engine], self.active[engine]
        seconds = sum(map(cost, units)) / (active + 1)
        worth = not active or any(u.get("alone") for u in units) or seconds > IMPORT
        return seconds if units and worth else 0

    def order(self, engine):
        return -min(u["turn"] for u in self.waiting[engine]), self.need(engine)

    def take(self, engine, last):
        """The next unit of a child whose last one is named; None: there is no more for it."""
        with self.state:
            units = self.waiting[engine]
            alone = [u for u in units if u.get("alone")]
            free = [u for u in units if not u.get("alone")]
            free = [u for u in free if u["turn"] == min(u["turn"] for u in free)]
            same = [u for u in free if last and u["kernel"] == last["kernel"]]
            fresh = [u for u in free if (engine, u["kernel"], u["turn"]) not in self.begun]
            found = next(iter((alone if last is None else []) or same or fresh or free), None)
            if found is not None:
                units.remove(found)
                self.begun.add((engine, found["kernel"], found["turn"]))
            return found

    def back(self, unit):
        with self.state:
            self.waiting[unit["engine"]].append(unit)
            self.state.notify_all()

    def came_up(self, engine):
        with self.state:
            self.up.add(engine)
            self.failures[engine] = 0

    def ended(self, engine, failed):
        """A child has ended. Where none ever came up, or none of the last few did (the device is lost), no
        other will: returns what waited."""
        with self.state:
            self.active[engine] -= 1
            dropped = []
            self.failures[engine] = self.failures.get(engine, 0) + bool(failed)
            if failed and (engine not in self.up or
                           not self.active[engine] and self.failures[engine] >= FAILURES):
                dropped, self.waiting[engine] = self.waiting[engine], []
            self.state.notify_all()
            return dropped

    def rest(self):
        """All that waits: the time is over."""
        with self.state:
            units = [u for some in self.waiting.values() for u in some]
            self.waiting = {e: [] for e in self.waiting}
            return units
