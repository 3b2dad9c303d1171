"""Children of the runner: one process runs the kernels of an engine one after the other as long as
nothing fails. A hang, a signal or a lost device is a reason and not the end: what was left goes to a
fresh child, the kernel that failed in one of its own."""
import json
import os
import select
import signal
import subprocess
import sys
import time

OVER = "the time of the whole run is over"
DEATHS = 3  # of one kernel on one case; then its other row counts are not tried


class Child:
    def __init__(self, script, spec, log):
        self.log_path, self.buffer, self.lines = log, b"", []
        with open(log, "ab") as err:
            self.begin = err.tell()
            self.process = subprocess.Popen([sys.executable, str(script), "--child"],
                                            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=err, start_new_session=True)
        try:
            self.process.stdin.write(json.dumps(spec).encode())
            self.process.stdin.close()
        except BrokenPipeError:
            pass

    def line(self, seconds):
        """The next message; None at the end; TimeoutError."""
        out, until = self.process.stdout.fileno(), time.monotonic() + seconds
        while b"\n" not in self.buffer:
            if not select.select([out], [], [], max(0, until - time.monotonic()))[0]:
                raise TimeoutError
            piece = os.read(out, 1 << 16)
            if not piece:
                return None
            self.buffer += piece
        line, self.buffer = self.buffer.split(b"\n", 1)
        return json.loads(line)

    def kill(self):
        """The child and what it started (compilers), which share its session."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.process.stdout.close()

    def death(self):
        """How it ended, in one line."""
        code = self.process.wait()
        if code < 0:
            return f"killed by {signal.Signals(-code).name}"
        with open(self.log_path, "rb") as f:
            f.seek(self.begin)
            said = [l.strip() for l in f.read().decode(errors="replace").splitlines() if l.strip()]
        return f"ended with status {code}: {said[-1][:300] if said else 'no message'}"


def describe(script, adapter, log, seconds):
    """What an adapter says of itself, or {"failed": reason}."""
    child = Child(script, {"describe": True, "adapter": str(adapter)}, log)
    try:
        while (line := child.line(seconds)) is not None:
            if "told" in line:
                return line["told"]
        return {"failed": f"importing its adapter: {child.death()}"}
    except TimeoutError:
        return {"failed": f"importing its adapter: no end within {seconds} s"}
    finally:
        child.kill()


class Batch:
    """Units of one engine for one child: {"kernel", "case", "rows": [...], "deaths"}."""

    def __init__(self, engine, units):
        self.engine, self.units = engine, units


def run_batch(script, batch, spec, log, limits, report, remaining):
    """Runs one child. report(unit, rows, record) for each result. Returns batches for what is left.
    limits: (seconds until all is imported, seconds for the first row count of a unit, which may
    compile, seconds for the others). remaining(): of the
    time of the whole run."""
    child = Child(script, {**spec, "units": batch.units}, log)
    at, rows, why, failed = None, None, None, None
    done = [set() for _ in batch.units]
    try:
        seconds = limits[0]
        while True:
            line = child.line(min(seconds, max(1, remaining())))
            if line is None:
                why = child.death()
                break
            if "failed" in line:
                failed = line["failed"]
                break
            if "retire" in line or "end" in line:
                break
            if line.get("at") == "run":
                at, rows = line["unit"], line["rows"]
                seconds = limits[2] if done[at] else limits[1]
            elif "record" in line:
                done[line["unit"]].add(line["rows"])
                report(batch.units[line["unit"]], line["rows"], line["record"])
                rows, seconds = None, limits[1]
                if remaining() <= 0:
                    break
    except TimeoutError:
        why = f"no end within {seconds:g} s" if remaining() > 0 else OVER
    finally:
        child.kill()
    if failed is None and why and at is None:
        failed = f"before its first kernel: {why}"
    if failed is not None:
        for unit in batch.units:
            for r in unit["rows"]:
                report(unit, r, {"status": "NOT_RUN", "reason": failed})
        return []
    if why and rows is not None:
        done[at].add(rows)
        report(batch.units[at], rows, {"status": "NOT_RUN", "reason": why})
        batch.units[at]["deaths"] = batch.units[at].get("deaths", 0) + 1
    return left(batch, done, at, report)


def left(batch, done, at, report):
    """The unit that failed alone; the others, untouched so far, together."""
    rest = [{**u, "rows": [r for r in u["rows"] if r not in d]} for u, d in zip(batch.units, done)]
    if at is not None and rest[at].get("deaths", 0) >= DEATHS:
        for r in rest[at]["rows"]:
            report(rest[at], r, {"status": "NOT_RUN",
                                 "reason": f"not tried: its child died {DEATHS} times before"})
        rest[at]["rows"] = []
    alone = [u for i, u in enumerate(rest) if i == at and u["rows"]]
    others = [u for i, u in enumerate(rest) if i != at and u["rows"]]
    return [Batch(batch.engine, part) for part in (alone, others) if part]
