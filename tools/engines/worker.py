"""The child: runs the units that it is given, and tells its parent each step before it is taken, so that
the parent knows where it died. Lines of JSON on what was standard output; what engines print goes to
standard error."""
import faulthandler
import importlib
import json
import os
import sys
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
        self.torch, self.case_class, self.cases = torch, Case, {}
        self.device = device_of(torch, spec["device"])
        torch.set_grad_enabled(False)
        adapter = adapters.load(spec["adapter"])
        found = adapter.find()
        self.version = found.version
        self.kernels = {k.name: k for k in adapter.kernels(found)}
        self.timing, self.no_timing = timing_of(spec)
        self.floors = None
        self.machine = about_machine(torch, self.device)

    def unit(self, number, unit):
        """All row counts of one kernel on one case. False: this child is not to go on."""
        from session import Session
        kernel = self.kernels[unit["kernel"]]
        if unit["case"] not in self.cases:
            self.cases[unit["case"]] = self.case_class(unit["case"])
        case = self.cases[unit["case"]]
        defaults(self.torch)
        session, clean = Session(self.torch, kernel, case, self.device, self.spec["max_tokens"]), True
        for rows in unit["rows"]:
            self.pipe.say(at="run", unit=number, rows=rows)
            try:
                record, fine = self.rows(session, kernel, case, rows), True
            except Unsupported as e:
                record, fine = {"status": "UNSUPPORTED", "reason": str(e)[:NARROW]}, True
            except Exception as e:
                traceback.print_exc()
                record, fine = {"status": "NOT_RUN", "reason": reason_of(e)}, False
            self.pipe.say(unit=number, rows=rows, record=record)
            if not fine and not alive(self.torch, self.device) or record.get("corrupt"):
                return False
            clean = clean and fine
        return clean

    def rows(self, session, kernel, case, rows):
        import recording
        from session import FORBIDDEN
        if self.device.type not in kernel.devices:
            raise Unsupported(f"runs on {' and '.join(kernel.devices)} only")
        no = kernel.refuses(case.router, rows)
        if no:
            raise Unsupported(no)
        timed = self.spec["time"] is not None and rows in self.spec["time"]
        session.run(rows, self.timing.measure if timed and self.timing else None)
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
        return record

    def floors_of(self, session):
        """What no kernel can beat, measured once in each child: with this case's gate weight."""
        if self.floors is None and self.timing and hasattr(self.timing, "floors"):
            gate = next(iter(session.layers.values())).fixed.get("gate")
            try:
                self.floors = self.timing.floors(self.device, gate)
            except Exception as e:
                self.floors = {"failed": reason_of(e)}
        return self.floors


def main():
    faulthandler.enable()
    pipe, spec = Pipe(), json.load(sys.stdin)
    pipe.say(at="import")
    if spec.get("describe"):
        pipe.say(told=adapters.describe(spec["adapter"]))
        return 0
    try:
        worker = Worker(spec, pipe)
    except Exception as e:
        traceback.print_exc()
        pipe.say(failed=reason_of(e) if str(e) != "no GPU that can be used" else str(e))
        return 1
    for number, unit in enumerate(spec["units"]):
        if not worker.unit(number, unit):
            pipe.say(retire=number)
            return 0
    pipe.say(end=True)
    return 0
