"""Rows on their way to a capture. They go to disk as they come, and OUT appears whole or not at all:

    OUT.part/           while rows come, and what a killed run leaves
        lock            held (flock) by the process that writes
        plan.json       what the rows are, and all that the case file will say
        0000.rows ...   one file for each layer of each phase: whole rows, all columns side by side
        config.json router.safetensors
    OUT/                by one rename, when all is written and synced

So finishing needs nothing but OUT.part: a run that was killed is finished by the same code (salvage),
and a row that was half written is cut off. Only one row block is in memory at a time."""
import fcntl
import json
import os
import shutil

from layout import WIDTH, CaptureError, sync_folder, write_json, write_safetensors

BLOCK = 4 << 20  # bytes of rows read at a time
OLD = ".moeref-replaced"
CAPTURE, ROUTER, CONFIG = "capture.safetensors", "router.safetensors", "config.json"


def _lock(part):
    """The lock's descriptor, or None: somebody alive holds it."""
    fd = os.open(os.path.join(part, "lock"), os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return fd
    except OSError:
        os.close(fd)
        return None


def _is_capture(folder):
    return os.path.exists(os.path.join(folder, CAPTURE)) or not os.listdir(folder)


def _is_part(folder):
    return os.path.isdir(folder) and (os.path.exists(os.path.join(folder, "lock"))
                                      or not os.listdir(folder))


def restore(out):
    """A kill between the two renames of --force leaves the old capture beside its place."""
    old = os.path.abspath(out) + OLD
    if os.path.isdir(old):
        if os.path.lexists(out):
            shutil.rmtree(old)
        else:
            os.rename(old, out)


def may_replace(out, force):
    if not os.path.lexists(out):
        return
    if not force:
        raise CaptureError(f"{out}: is there already (--force replaces it)")
    if not os.path.isdir(out) or not _is_capture(out):
        raise CaptureError(f"{out}: is no capture, and is not replaced")


class Spool:
    def __init__(self, out, force=False):
        self.out = os.path.abspath(out)
        self.part = self.out + ".part"
        self.streams, self.rows, self.plan = {}, {}, {}
        restore(out)
        may_replace(out, force)
        self._take_part(out, force)

    def _take_part(self, out, force):
        os.makedirs(os.path.dirname(self.out), exist_ok=True)
        try:
            os.mkdir(self.part)
        except FileExistsError:
            if not _is_part(self.part):
                raise CaptureError(f"{out}.part: is in the way, and no capture's") from None
            self.fd = _lock(self.part)
            if self.fd is None:
                raise CaptureError(f"{out}.part: another run is writing it") from None
            if not force:
                os.close(self.fd)
                raise CaptureError(f"{out}.part: left by a run that was killed (capture.py --salvage "
                                   f"{out} finishes it, --force throws it away)") from None
            for name in os.listdir(self.part):
                if name != "lock":
                    os.unlink(os.path.join(self.part, name))
            return
        self.fd = _lock(self.part)
        if self.fd is None:
            raise CaptureError(f"{out}.part: another run is writing it")

    def describe(self, plan):
        """name, about, metadata, and "case": what the case file says beside phases and arithmetic."""
        self.plan = plan
        self._save_plan()

    def path(self, name):
        return os.path.join(self.part, name)

    def _save_plan(self):
        streams = [{"phase": phase, "layer": layer, "file": s["file"], "columns": s["columns"]}
                   for (phase, layer), s in self.streams.items()]
        write_json(self.path("plan.json"), {**self.plan, "streams": streams})

    def append(self, phase, layer, columns, data, rows):
        """columns: (name, dtype, width) in the order in which they lie in a row; data: the bytes of
        whole rows."""
        columns = [list(c) for c in columns]
        s = self.streams.get((phase, layer))
        if s is None:
            s = {"file": f"{len(self.streams):04}.rows", "columns": columns}
            self.streams[phase, layer] = s
            self.rows[phase, layer] = 0
            self._save_plan()
        if s["columns"] != columns:
            raise CaptureError(f"layer {layer}, {phase}: rows of {columns} after rows of "
                               f"{s['columns']}")
        # No descriptor is kept: layers times phases may be more than a process may open.
        with open(self.path(s["file"]), "ab", buffering=0) as f:
            view = memoryview(data)
            while view:
                view = view[f.write(view):]
        self.rows[phase, layer] += rows

    def finish(self):
        """Makes OUT of OUT.part; returns the case file's path."""
        name = build(self.part)
        self._install()
        return os.path.join(self.out, name)

    def _install(self):
        sync_folder(self.part)
        old = self.out + OLD
        if os.path.isdir(self.out):
            os.rename(self.out, old)
        os.rename(self.part, self.out)
        sync_folder(os.path.dirname(self.out))
        if os.path.isdir(old):
            shutil.rmtree(old)
        os.unlink(os.path.join(self.out, "lock"))
        self.close()

    def close(self):
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None

    def discard(self):
        shutil.rmtree(self.part)
        self.close()


def salvage(out, force=False):
    """Finishes what a killed run left; returns the case file's path."""
    s = Spool.__new__(Spool)
    s.out, s.part = os.path.abspath(out), os.path.abspath(out) + ".part"
    restore(out)
    if not os.path.isdir(s.part):
        raise CaptureError(f"{out}.part: is not there: nothing to salvage")
    may_replace(out, force)
    if not _is_part(s.part):
        raise CaptureError(f"{out}.part: is no capture's")
    s.fd = _lock(s.part)
    if s.fd is None:
        raise CaptureError(f"{out}.part: a run that lives is writing it")
    try:
        return s.finish()
    finally:
        s.close()


def build(part):
    """Rows to tensors, and the case file; takes the rows away. Returns the case file's name."""
    plan_path = os.path.join(part, "plan.json")
    if not os.path.exists(plan_path) and os.path.exists(os.path.join(part, CAPTURE)):
        return _tidy(part)
    try:
        with open(plan_path) as f:
            plan = json.load(f)
    except (OSError, ValueError) as e:
        raise CaptureError(f"{plan_path}: {e}: nothing to salvage in {part}, remove it") from None
    for needed in (CONFIG, ROUTER):
        if not os.path.exists(os.path.join(part, needed)):
            raise CaptureError(f"{part}: has no {needed}: the run ended before its first row; "
                               "remove it")
    tensors, phases, kinds = [], [], set()
    for s in plan["streams"]:
        path = os.path.join(part, s["file"])
        row = sum(WIDTH[dtype] * width for _, dtype, width in s["columns"])
        rows = os.path.getsize(path) // row if os.path.exists(path) else 0
        if not rows:
            continue
        if s["phase"] not in phases:
            phases.append(s["phase"])
        at = 0
        for what, dtype, width in s["columns"]:
            size = WIDTH[dtype] * width
            name = f"{s['phase']}.model.layers.{s['layer']}.mlp.{what}"
            tensors.append((name, dtype, (rows, width), _column(path, rows, row, at, size)))
            kinds.add((what, dtype))
            at += size
    if not tensors:
        raise CaptureError(f"{part}: not one row came: no router ran, or only in compiled code or "
                           "CUDA graphs, where hooks do not run")
    line = arithmetic(kinds, plan.get("words", []))
    write_safetensors(os.path.join(part, CAPTURE), tensors,
                      {"format": "pt", "arithmetic": line, **plan["metadata"]})
    case = {"moeref_case": 1, "name": plan["name"], "about": plan["about"], "input": "hidden",
            **plan["case"], "checkpoint": [ROUTER], "capture": [CAPTURE], "phases": phases,
            "arith": line}
    write_json(os.path.join(part, plan["name"] + ".json"), case)
    os.unlink(plan_path)
    return _tidy(part)


def _tidy(part):
    """All is written, and says so by having no plan any more: only then may rows go."""
    case = None
    for name in os.listdir(part):
        if name.endswith((".rows", ".tmp")):
            os.unlink(os.path.join(part, name))
        elif name.endswith(".json") and name != CONFIG:
            case = name
    return case


def _column(path, rows, row, at, size):
    def pieces():
        step = max(1, BLOCK // row)
        with open(path, "rb") as f:
            for first in range(0, rows, step):
                n = min(step, rows - first)
                block = memoryview(f.read(n * row))
                yield b"".join(block[i * row + at:i * row + at + size] for i in range(n))
    return pieces


def arithmetic(kinds, words):
    """What the router rounds: to the types in which it gave logits and weights (a stored type says
    that it was rounded to), and what its class rounds before it widens again (words)."""
    narrow = {"BF16": "bf16", "F16": "fp16"}
    said = set(words)
    said.update(narrow[dtype] + "-logits" for what, dtype in kinds
                if what == "gate.logits" and dtype in narrow)
    # No word for fp16 weights: verify takes a type that weights are stored in from the file.
    if ("topk_weights", "BF16") in kinds:
        said.add("bf16-weights")
    return "+".join(sorted(said)) or "fp32"
