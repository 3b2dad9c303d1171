"""One kernel on one case: launches, poison, comparisons, files. Runs in a child."""
import json

import numpy as np

import books
import checks
import launches
import observed
from clock import Clock
from engine import Unsupported
from inputs import Inputs
from launched import Launched

# What a kernel must not do; the rest (reruns, positions) is told, and judged elsewhere.
FORBIDDEN = ("unwritten", "memory", "inputs", "canary", "books")
QUIET = {"unwritten": "none", "memory": "none", "reruns": "identical", "positions": "identical",
         "inputs": "unchanged", "canary": "intact", "books": "none"}
UNIT = {"unwritten": "elements", "memory": "rows differ by what lay in the memory before",
        "reruns": "rows differ", "positions": "rows differ", "inputs": "runs changed them",
        "canary": "bytes", "books": "launches", "sorted_reruns": "launches differ"}


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

    def __init__(self, torch, kernel, case, stock, max_tokens):
        self.torch, self.kernel, self.case, self.stock = torch, kernel, case, stock
        self.device, self.max_tokens, self.layers = stock.device, max_tokens, {}

    def run(self, rows, named=True, measure=None):
        """Fills .faults, .rows {(phase, layer): Rows}, .names, .sorted, .times and .clock."""
        self.faults, self.rows, self.sorted, self.clock = Faults(), {}, None, Clock()
        self.names, self.times = "[]", None
        if self.device.type == "cuda":
            # What launches before left is as much to poison before each run of this one.
            self.torch.cuda.empty_cache()
        for at in self.case.layers:
            if not self.case.tokens[at]:
                continue
            if at not in self.layers:
                self.layers[at] = Inputs(self.torch, self.case, self.kernel, *at, self.stock)
                self.clock.lap("load")
            first = not self.rows
            launch, outputs = self.run_layer(at, rows, first)
            if first:
                outputs.poison = None
                self.names = self.profile(launch) if named else "[]"
                self.clock.lap("names")
                self.times = timed(measure, launch, self.device) if measure else None
                self.clock.lap("time")
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
        self.clock.lap("prepare")
        done = Launched(torch, self.kernel, self.case.router, inputs, outputs, plan)
        done.run(launch)
        self.clock.lap("launches")
        self.check(done, np.concatenate(plan), at, first,
                   lambda n: where if n is None else f"{where}, launch {n}")
        self.clock.lap("checks")
        return launch, outputs

    def check(self, done, tokens, at, first, place):
        """Enqueues all comparisons before it reads the first result."""
        torch, faults, rows = self.torch, self.faults, done.rows
        (a, more), (b, more_b) = done.values(0), done.values(1)
        ends = [checks.unwritten(torch, faults, k, v[0], v[1], v.shape[2] if v.dim() > 2 else 1, place)
                for k, v in done.log.items() if k not in ("sorted", "tile_expert")]
        for k in sorted(a.keys() - done.log.keys()):
            x, y = (v[k].view(done.launches, rows, -1) for v in (a, b))
            ends.append(checks.unwritten(torch, faults, k, x, y, rows, place))
        ends.append(checks.reruns(torch, faults, a, b, rows, done.again, place))
        kept = {k: v for k, v in a.items() if k in self.kernel.gives}
        found = checks.positions(torch, faults, tokens, kept, rows, place) if kept else launches.Rows
        checks.marks(faults, done, place)
        for end in ends:
            end()
        self.rows[at] = found()
        if "sorted" in self.kernel.gives:
            self.check_books(a, more, more_b, tokens.reshape(-1, rows), at, place, first)

    def check_books(self, values, first, second, tokens, at, place, keep):
        """Sorted positions may leave a tail unwritten: only what counts is looked at."""
        rows = tokens.shape[1]
        ids = values["ids"] if "ids" in values else self.layers[at].source["ids"][
            self.torch.from_numpy(tokens.reshape(-1)).to(self.device)]
        ids = ids.cpu()
        first, second = ({k: [t.cpu().numpy() for t in v] for k, v in x.items()} for x in (first, second))
        for n in range(len(tokens)):
            x, y = ({k: v[n] for k, v in given.items()} for given in (first, second))
            mine = ids[n * rows:(n + 1) * rows]
            said = books.check(mine.numpy(), x, self.case.router.experts, self.kernel.tile)
            if said != "ok":
                self.faults.add("books", 1, f"{said} ({place(n)})")
            used = [g["sorted"].reshape(-1)[:books.used(g)] for g in (x, y)]
            self.faults.add("sorted_reruns", not np.array_equal(*used), place(n))
            if keep and n == 0:
                self.sorted = {k: self.torch.from_numpy(x[k]).to(self.torch.int32).reshape(-1)
                               for k in ("sorted", "tile_expert", "sorted_total")}
                self.sorted["ids"] = mine.to(self.torch.int32)

    def profile(self, launch):
        """Kernels of one launch, as the profiler names them."""
        if self.device.type != "cuda":
            return "[]"
        torch, cuda = self.torch, self.torch.autograd.DeviceType.CUDA
        try:
            with torch.autograd.profiler.profile(use_cpu=False, use_device="cuda", use_kineto=True) as p:
                launch()
                torch.cuda.synchronize()
            # Straight from the records: torch.profiler's own list costs far more than the launch.
            found = [(e.start_ns(), e.name()[:160]) for e in p.kineto_results.events()
                     if e.device_type() == cuda and not e.is_user_annotation()
                     and not e.name().endswith((" Sync", "Stream Wait Event"))]
            return json.dumps([name for _, name in sorted(found)])
        except RuntimeError as e:
            return json.dumps([f"not profiled: {str(e).splitlines()[0][:120]}"])


def timed(measure, launch, device):
    """A kernel that cannot be timed has been judged all the same."""
    try:
        return measure(launch, device)
    except Exception as e:
        return {"failed": f"{type(e).__name__}: {(str(e).splitlines() or [''])[0][:200]}"}
