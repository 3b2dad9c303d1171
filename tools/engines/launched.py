"""The runs of one layer's launches at one row count. All is enqueued, none is waited for: what a run gave is
copied to a log on the device, and so is whether it changed an input or a canary."""
import numpy as np

import observed
from engine import Kernel


class Launched:
    """.log {name: [poison, launch, ...]} as launch gave it, .values() after repack, .marks [poison, launch,
    1 + inputs]: bytes of canaries changed, then for each input whether it was."""

    def __init__(self, torch, kernel, router, inputs, outputs, plan):
        self.torch, self.kernel, self.router = torch, kernel, router
        self.inputs, self.outputs = inputs, outputs
        self.tokens = torch.from_numpy(np.stack(plan)).to(inputs.device)
        self.launches, self.rows = self.tokens.shape
        self.log, self.sizes = {}, []

    def run(self, launch):
        """Each launch once over each poison; the first once before that."""
        torch, poisons = self.torch, observed.POISONS
        self.launch = launch
        self.fill(0, poisons[0])
        given = launch()
        # Memory that the driver hands out at the first launch is not compared.
        self.sizes = [v.untyped_storage().nbytes() for v in given.values() if not self.outputs.owns(v)]
        shape = (len(poisons), self.launches)
        self.log = {k: torch.empty((*shape, *v.shape), dtype=v.dtype, device=v.device)
                    for k, v in given.items()}
        self.marks = torch.zeros((*shape, 1 + len(self.inputs.names)), dtype=torch.int64,
                                 device=self.inputs.device)
        del given
        for n in range(self.launches):
            for p, poison in enumerate(poisons):
                self.fill(n, poison)
                self.note(launch(), {k: v[p, n] for k, v in self.log.items()}, self.marks[p, n])
        self.wait()

    def fill(self, n, poison):
        self.inputs.fill(self.tokens[n])
        self.outputs.before(poison, self.sizes)

    def note(self, given, to, marks):
        """Copies: the next run writes where this one did."""
        if given.keys() != to.keys():
            raise RuntimeError(f"gave {', '.join(to)}, then {', '.join(given)}")
        for k, v in given.items():
            if v.shape != to[k].shape or v.dtype != to[k].dtype:
                raise RuntimeError(f"gave {k} of {list(to[k].shape)}, then of {list(v.shape)}")
            to[k].copy_(v)
        self.outputs.canaries(marks[:1])
        self.inputs.changed(marks[1:])

    def wait(self):
        if self.inputs.device.type == "cuda":
            self.torch.cuda.synchronize()

    def again(self, n):
        """Row-wise values of one more run of a launch, over the first poison."""
        self.fill(n, observed.POISONS[0])
        return self.named([self.launch()])[0]

    def values(self, p):
        """What was given over one poison: ids, weights and logits [rows of all launches, columns], ids as
        int64; all else [launches, ...]."""
        return self.named([{k: v[p, n] for k, v in self.log.items()} for n in range(self.launches)])

    def named(self, given):
        """given: what each launch gave."""
        r, rows = self.router, self.rows
        want = {"ids": [rows, r.top_k], "weights": [rows, r.top_k], "logits": [rows, r.experts]}
        packed = type(self.kernel).repack is not Kernel.repack
        each = [self.kernel.repack(dict(g)) if packed else g for g in given]
        for k in self.kernel.gives:
            if k not in each[0]:
                raise RuntimeError(f"gave no {k}")
            if k in want and list(each[0][k].shape) != want[k]:
                raise RuntimeError(f"gave {k} of shape {list(each[0][k].shape)}, expected {want[k]}")
        on = self.inputs.device
        rowwise = {k: self.torch.cat([e[k].to(on) for e in each]) for k in want if k in each[0]}
        if "ids" in rowwise:
            rowwise["ids"] = rowwise["ids"].to(self.torch.int64)
        rest = {k: [e[k] for e in each] for k in each[0] if k not in want}
        return rowwise, rest
