"""One kernel on one case: launches, poison, comparisons, files. Runs in a child."""
import json
from dataclasses import dataclass

import numpy as np

import books
import launches
import observed
from engine import Unsupported
from inputs import Inputs

ROWWISE = ("ids", "weights", "logits")
# What a kernel must not do; the rest (reruns, positions) is told, and judged elsewhere.
FORBIDDEN = ("unwritten", "memory", "inputs", "canary", "books")
QUIET = {"unwritten": "none", "memory": "none", "reruns": "identical", "positions": "identical",
         "inputs": "unchanged", "canary": "intact", "books": "none"}
UNIT = {"unwritten": "elements", "memory": "rows differ by what lay in the memory before",
        "reruns": "rows differ", "positions": "rows differ", "inputs": "runs changed them",
        "canary": "bytes", "books": "launches", "sorted_reruns": "launches differ"}


@dataclass
class Run:
    raw: dict       # what launch gave, on the CPU
    values: dict    # after repack; ids are int64
    sizes: list     # bytes of outputs that the engine allocated
    changed: list   # names of inputs
    canaries: int   # bytes


class Faults:
    """Counts over all layers and launches of one row count, each with its first place."""

    def __init__(self):
        self.count, self.where = {}, {}

    def add(self, what, count, where):
        if count:
            self.count[what] = self.count.get(what, 0) + int(count)
            self.where.setdefault(what, where)

    def text(self):
        said = {k: f"{n} {UNIT[k]}, first: {self.where[k]}" for k, n in self.count.items()}
        return {**QUIET, **said}


class Session:
    """All layers of one case for one kernel, one row count after the other."""

    def __init__(self, torch, kernel, case, device, max_tokens):
        self.torch, self.kernel, self.case, self.device = torch, kernel, case, device
        self.max_tokens, self.layers = max_tokens, {}

    def run(self, rows, measure=None):
        """Fills .faults, .rows {(phase, layer): Rows}, .names, .sorted and .times."""
        self.faults, self.rows, self.sorted = Faults(), {}, None
        self.names, self.times, self.types = "[]", None, {}
        for at in self.case.layers:
            if not self.case.tokens[at]:
                continue
            if at not in self.layers:
                self.layers[at] = Inputs(self.torch, self.case, self.kernel, *at, self.device)
            first = not self.rows
            launch, outputs = self.run_layer(at, rows, first)
            if first:
                outputs.poison = None
                self.names = self.profile(launch)
                self.times = timed(measure, launch, self.device) if measure else None
        if not self.rows:
            raise Unsupported("the case has no token")

    def run_layer(self, at, rows, first):
        torch, inputs, where = self.torch, self.layers[at], f"{at[0]}, layer {at[1]}"
        plan = launches.plan(inputs.tokens, rows, self.max_tokens)
        outputs = observed.Outputs(torch, self.device)
        problem = inputs.problem(rows, outputs)
        # A kernel that derives something from hidden states in prepare is wrong later: other rows.
        inputs.fill(torch.from_numpy(plan[-1][::-1].copy()).to(self.device))
        launch = self.kernel.prepare(problem)
        got = self.rows[at] = launches.Rows(inputs.tokens)
        for n, tokens in enumerate(plan):
            on_device = torch.from_numpy(tokens).to(self.device)

            def once(poison, sizes):
                inputs.fill(on_device)
                outputs.before(poison, sizes)
                return self.once(launch, inputs, outputs, rows)

            if n == 0:
                sizes = once(observed.POISONS[0], []).sizes
            place = f"{where}, launch {n}"
            runs = [once(p, sizes) for p in observed.POISONS]
            self.compare(*runs, lambda: once(observed.POISONS[0], sizes), place)
            self.keep(got, tokens, runs[0].values, n)
            if "sorted" in self.kernel.gives:
                self.check_books(runs[0].values, inputs, place, first and n == 0)
        self.faults.add("positions", got.differing, f"{where}, {got.where}")
        return launch, outputs

    def once(self, launch, inputs, outputs, rows):
        given = launch()
        if self.device.type == "cuda":
            self.torch.cuda.synchronize()
        sizes = [v.untyped_storage().nbytes() for v in given.values() if not outputs.owns(v)]
        # Copies, on the CPU too: the next run writes where this one did.
        values = {k: v.detach().to("cpu", copy=True)
                  for k, v in self.kernel.repack(dict(given)).items()}
        r = self.case.router
        want = {"ids": [rows, r.top_k], "weights": [rows, r.top_k], "logits": [rows, r.experts]}
        for k in self.kernel.gives:
            if k not in values:
                raise RuntimeError(f"gave no {k}")
            if k in want and list(values[k].shape) != want[k]:
                raise RuntimeError(f"gave {k} of shape {list(values[k].shape)}, expected {want[k]}")
        if "ids" in values:
            values["ids"] = values["ids"].to(self.torch.int64)
        # Sorted positions may leave a tail unwritten; books.py looks at what counts.
        raw = {k: v.detach().to("cpu", copy=True) for k, v in given.items()
               if k not in ("sorted", "tile_expert")}
        return Run(raw, values, sizes, inputs.changed(), outputs.canaries())

    def compare(self, a, b, again, place):
        for run in (a, b):
            self.faults.add("inputs", len(run.changed), f"{', '.join(run.changed)} ({place})")
            self.faults.add("canary", run.canaries, place)
        for k in sorted({*a.raw, *(v for v in ROWWISE if v in a.values)}):
            x, y = (a.raw[k], b.raw[k]) if k in a.raw else (a.values[k], b.values[k])
            if x.shape != y.shape:
                raise RuntimeError(f"gave {k} of {list(x.shape)}, then of {list(y.shape)}")
            holes = observed.unwritten(observed.bytes_of(x), observed.bytes_of(y),
                                       observed.POISONS, x.element_size())
            if holes.any():
                row, element = np.argwhere(holes)[0]
                self.faults.add("unwritten", holes.sum(), f"{k}, row {row}, element {element} "
                                f"({place})")
        differ = differing(a.values, b.values)
        if differ.any():
            # Over the first poison again: as the first time, then old memory made the difference.
            memory = not differing(a.values, again().values).any()
            self.faults.add("memory" if memory else "reruns", differ.sum(),
                            f"row {np.flatnonzero(differ)[0]} ({place})")
        if "sorted" in self.kernel.gives:
            x, y = (np.asarray(r.values["sorted"]).reshape(-1)[:books.used(r.values)]
                    for r in (a, b))
            self.faults.add("sorted_reruns", not np.array_equal(x, y), place)

    def keep(self, got, tokens, values, n):
        parts = {k: observed.bytes_of(values[k]) for k in ROWWISE if k in self.kernel.gives}
        if not parts:
            return
        self.types = {k: (values[k].dtype, values[k].shape[1]) for k in parts}
        got.add(tokens, np.concatenate(list(parts.values()), 1), parts, n)

    def check_books(self, values, inputs, place, keep):
        ids = values["ids"] if "ids" in values else inputs.want["ids"].cpu()
        said = books.check(ids.numpy(), values, self.case.router.experts, self.kernel.tile)
        if said != "ok":
            self.faults.add("books", 1, f"{said} ({place})")
        if keep:
            self.sorted = {k: values[k].to(self.torch.int32).reshape(-1)
                           for k in ("sorted", "tile_expert", "sorted_total")}
            self.sorted["ids"] = ids.to(self.torch.int32)

    def profile(self, launch):
        """Kernels of one launch, as the profiler names them."""
        if self.device.type != "cuda":
            return "[]"
        from torch.profiler import ProfilerActivity, profile
        try:
            with profile(activities=[ProfilerActivity.CUDA]) as p:
                launch()
                self.torch.cuda.synchronize()
            return json.dumps([e.name[:160] for e in p.events()
                               if "cuda" in str(e.device_type).lower()])
        except RuntimeError as e:
            return json.dumps([f"not profiled: {str(e).splitlines()[0][:120]}"])


def timed(measure, launch, device):
    """A kernel that cannot be timed has been judged all the same."""
    try:
        return measure(launch, device)
    except Exception as e:
        return {"failed": f"{type(e).__name__}: {(str(e).splitlines() or [''])[0][:200]}"}


def differing(a, b):
    """[rows] whose bits are not the same in both."""
    parts = [(observed.bytes_of(a[k]) != observed.bytes_of(b[k])).any(1) for k in ROWWISE if k in a]
    return np.any(parts, 0) if parts else np.zeros(1, bool)
