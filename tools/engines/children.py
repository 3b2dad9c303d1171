"""Children of the runner: one process runs the kernels of an engine one after the other, as it is given
them, as long as nothing fails. A hang, a signal or a lost device is a reason and not the end: another
child goes on, and one of its own with the row counts that the kernel that failed has left."""
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
    def __init__(self, script, spec, log, environment=None):
        self.log_path, self.buffer, self.lines = log, b"", []
        with open(log, "ab") as err:
            self.begin = err.tell()
            self.process = subprocess.Popen([sys.executable, str(script), "--child"],
                                            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=err, start_new_session=True, env=environment)
        self.tell(spec)

    def tell(self, what):
        try:
            self.process.stdin.write(json.dumps(what).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # its end is seen where its next line is read

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
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass

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


def feed(child, work, engine, limits, report, remaining):
    """Gives a child one unit after the other. Returns None, or why it never came up. limits: (seconds until
    all is imported, seconds for the first row count of a unit, which may compile, seconds for the others).
    remaining(): of the time of the whole run."""
    unit, rows, why, seconds = None, None, None, limits[0]
    try:
        while True:
            line = child.line(min(seconds, max(1, remaining())))
            if line is None:
                why = child.death()
                break
            if "failed" in line:
                return line["failed"]
            if "ready" in line:
                work.came_up(engine)
            if line.get("at") == "run":
                rows = line["rows"]
            elif "record" in line:
                unit["rows"].remove(line["rows"])
                report(unit, line["rows"], line["record"])
                rows, seconds = None, limits[2]
            if remaining() <= 0:
                break
            if "ready" in line or "done" in line:
                last, unit = unit, None
                if last is not None and (not line["clean"] or last.get("alone")):
                    # A lost device: the child stopped before its last row count.
                    unit = last
                    break
                unit = work.take(engine, last)
                if unit is None:
                    break
                child.tell(unit)
                seconds = limits[1]
    except TimeoutError:
        why = f"no end within {seconds:g} s" if remaining() > 0 else OVER
    finally:
        child.kill()
    if why and unit is None:
        return f"before its first kernel: {why}"
    if why:
        # Also of one that died before its first row count, as of a case that it cannot read.
        unit["deaths"] = unit.get("deaths", 0) + 1
        if rows is not None:
            unit["rows"].remove(rows)
            report(unit, rows, {"status": "NOT_RUN", "reason": why})
    if unit and unit["rows"]:
        put_back(unit, work, report, why)
    return None


def put_back(unit, work, report, why):
    """The row counts that are left, for a child of their own."""
    if unit.get("deaths", 0) < DEATHS:
        work.back({**unit, "alone": True})
        return
    for r in unit["rows"]:
        report(unit, r, {"status": "NOT_RUN",
                         "reason": f"not tried: its child died {DEATHS} times before; the last: {why}"})
