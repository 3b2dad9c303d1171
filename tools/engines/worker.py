"""The child: runs the units that it is given, and tells its parent each step before it is taken, so that
the parent knows where it died. Lines of JSON on what was standard output; what engines print goes to
standard error."""
import ctypes
import faulthandler
import importlib
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path

import adapters
from engine import Unsupported

NARROW = 400  # characters of a reason


class Pipe:
    def __init__(self):
        self.to = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)

    def say(self, **line):
        print(json.dumps(line), file=self.to, flush=True)


def reason_of(error):
    lines = [l.strip() for l in str(error).splitlines() if l.strip()]
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return text[:NARROW]


def device_of(torch, name):
    """The device, or Unsupported with the reason."""
    if name == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise RuntimeError("no GPU that can be used")
    return torch.device("cuda", torch.cuda.current_device())


def about_machine(torch, device):
    cuda = device.type == "cuda"
    return {"device": torch.cuda.get_device_name(device) if cuda else "cpu",
            "cuda": (torch.version.cuda or "none") if cuda else "none", "torch": torch.__version__}


def defaults(torch):
    """Switches that a kernel before may have turned."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = True
    if torch.are_deterministic_algorithms_enabled():
        torch.use_deterministic_algorithms(False)


def alive(torch, device):
    """Whether the device still answers after an exception."""
    if device.type != "cuda":
        return True
    try:
        torch.cuda.synchronize()
        return int(torch.ones(3, device=device).sum()) == 3
    except RuntimeError:
        return False


def timing_of(spec):
    """timing.py, and why not if it cannot be used."""
    if not spec["time"]:
        return None, None
    try:
        return importlib.import_module("timing"), None
    except Exception as e:
        return None, {"failed": f"no timing: {reason_of(e)}"}


class Worker:
    def __init__(self, spec, pipe):
        self.spec, self.pipe = spec, pipe
        import torch
        from case import Case
        from inputs import Stock
        self.torch, self.case_class, self.cases = torch, Case, {}
        self.device = device_of(torch, spec["device"])
        self.stock = Stock(self.device)
        torch.set_grad_enabled(False)
        if spec["threads"]:
            torch.set_num_threads(spec["threads"])
        adapter = adapters.load(spec["adapter"])
        found = adapter.find()
        self.version = found.version
        self.kernels = {k.name: k for k in adapter.kernels(found)}
        self.timing, self.no_timing = timing_of(spec)
        self.floors = {}
        self.machine = about_machine(torch, self.device)

    def unit(self, unit):
        """All row counts of one kernel on one case. False: this child is not to go on."""
        from session import Session
        kernel = self.kernels[unit["kernel"]]
        if unit["case"] not in self.cases:
            self.cases[unit["case"]] = self.case_class(unit["case"])
        case = self.cases[unit["case"]]
        defaults(self.torch)
        session = Session(self.torch, kernel, case, self.stock, self.spec["max_tokens"])
        clean, vain = True, Vain()
        for rows in unit["rows"]:
            self.pipe.say(at="run", rows=rows)
            record, fine = vain.refusal, False
            if record is None:
                begin = time.perf_counter()
                try:
                    record, fine = self.rows(session, kernel, case, rows), True
                except Unsupported as e:
                    record, fine = {"status": "UNSUPPORTED", "reason": str(e)[:NARROW]}, True
                except Exception as e:
                    traceback.print_exc()
                    record = {"status": "NOT_RUN", "reason": reason_of(e)}
                record["seconds"] = {**(session.clock.rounded() if fine and session.clock else {}),
                                     "all": round(time.perf_counter() - begin, 4)}
                vain.see(record)
            self.pipe.say(rows=rows, record=record)
            if not fine and not alive(self.torch, self.device) or record.get("corrupt"):
                return False
            clean = clean and fine
        return clean

    def rows(self, session, kernel, case, rows):
        import recording
        from session import FORBIDDEN
        session.clock = None
        if self.device.type not in kernel.devices:
            raise Unsupported(f"runs on {' and '.join(kernel.devices)} only")
        no = kernel.refuses(case.router, rows)
        if no:
            raise Unsupported(no)
        timed = self.spec["time"] is not None and rows in self.spec["time"]
        named = self.spec["names"] is None or rows in self.spec["names"]
        session.run(rows, named, self.timing.measure if timed and self.timing else None)
        faults, arithmetic = session.faults.text(), kernel.arithmetic(case.router, rows)
        if "sorted" in kernel.gives and faults["books"] == "none":
            faults["books"] = "ok"
        name = f"{self.spec['engine']}.{kernel.name}"
        metadata = {"engine": self.spec["engine"], "engine_version": self.version, "kernel": name,
                    "about": kernel.about, "case": case.name, "seed": self.spec["seed"],
                    "rows": str(rows), "arithmetic": arithmetic, "cuda_kernels": session.names,
                    "driver": self.spec["driver"], **self.machine, **faults}
        if kernel.profile:
            metadata["profile"] = kernel.profile
        left_out = sum(g.differing - g.kept for g in session.rows.values())
        if left_out:
            metadata["rows_left_out"] = str(left_out)
        folder = Path(self.spec["out"]) / case.name
        folder.mkdir(parents=True, exist_ok=True)
        files = recording.write(session, folder, name, rows, metadata, self.spec["logits_rows"])
        session.clock.lap("file")
        record = {"status": "RUN", "reason": "", "faults": faults, "arithmetic": arithmetic,
                  "faulty": [k for k in FORBIDDEN if k in session.faults.count],
                  "corrupt": "canary" in session.faults.count,
                  "cuda_kernels": json.loads(session.names),
                  **{k: f"{case.name}/{v}" for k, v in files.items()}}
        if kernel.profile:
            record["profile"] = kernel.profile
        if timed:
            record["us"] = session.times or self.no_timing
            record["floors"] = self.floors_of(session)
            record["corrupt"] = record["corrupt"] or not alive(self.torch, self.device)
            session.clock.lap("floors")
        return record

    def floors_of(self, session):
        """What no kernel can beat, measured once in each child, and for each gate weight once."""
        if not self.timing or not hasattr(self.timing, "floors"):
            return None
        gate = next(iter(session.layers.values())).fixed.get("gate")
        at = None if gate is None else tuple(gate.shape)
        if at not in self.floors:
            try:
                self.floors[at] = self.timing.floors(self.device, gate)
            except Exception as e:
                self.floors[at] = {"failed": reason_of(e)}
        return self.floors[at]


class Vain:
    """A kernel that fails in the same way three times, and slowly, is not tried at more row counts."""
    TIMES, SECONDS = 3, 20

    def __init__(self):
        self.reason, self.times, self.seconds, self.refusal = None, 0, 0.0, None

    def see(self, record):
        if record["status"] != "NOT_RUN" or record["reason"] != self.reason:
            self.reason, self.times, self.seconds = record["reason"], 0, 0.0
        if record["status"] != "NOT_RUN":
            return
        self.times, self.seconds = self.times + 1, self.seconds + record["seconds"]["all"]
        if self.times >= self.TIMES and self.seconds >= self.SECONDS:
            self.refusal = {"status": "NOT_RUN", "reason":
                            f"not tried: {self.times} row counts before: {self.reason}"[:NARROW]}


def die_with_parent():
    """A kernel that hangs must not outlive a parent that was killed."""
    try:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
    except (OSError, AttributeError):
        pass


def main():
    faulthandler.enable()
    die_with_parent()
    pipe, spec = Pipe(), json.loads(sys.stdin.readline())
    pipe.say(at="import")
    if spec.get("describe"):
        pipe.say(told=adapters.describe(spec["adapter"]))
        return 0
    begin = time.perf_counter()
    try:
        worker = Worker(spec, pipe)
    except Exception as e:
        traceback.print_exc()
        pipe.say(failed=reason_of(e) if str(e) != "no GPU that can be used" else str(e))
        return 1
    pipe.say(ready=round(time.perf_counter() - begin, 3))
    for line in sys.stdin:
        clean = worker.unit(json.loads(line))
        pipe.say(done=True, clean=clean)
        if not clean:
            break
    return 0
