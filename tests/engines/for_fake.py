"""Kernels that do what a kernel must not do, each in one way: what the runner has to report of each stands
in EXPECTED of check_run.py. On the CPU."""
import os
import signal
import sys
import time

from engine import Found, Kernel, Unsupported
from for_torch import five_lines

NAME = "fake"
VERSIONS = ("1.0",)


def find():
    return Found("1.0+local", where=os.path.dirname(__file__))


class Fake(Kernel):
    about = "of the tests"
    takes = "logits"
    devices = ("cpu",)

    def __init__(self, name, spoil=None, **more):
        self.name, self.spoil = name, spoil
        for key, value in more.items():
            setattr(self, key, value)

    def prepare(self, p):
        import torch
        ids_out = p.empty((p.rows, p.router.top_k), torch.int32)
        weights_out = p.empty((p.rows, p.router.top_k), torch.float32)
        self.calls = 0

        def launch():
            self.calls += 1
            ids, weights = five_lines(torch, p.router, p.logits.float(), p.bias)
            old = weights_out.clone()
            ids_out.copy_(ids)
            weights_out.copy_(weights)
            given = {"ids": ids_out, "weights": weights_out}
            return self.spoil(self, p, given, old) or given if self.spoil else given
        return launch


def hang(k, p, given, old):
    if p.rows == 6:
        time.sleep(3600)


def crash(k, p, given, old):
    if p.rows == 6:
        os.kill(os.getpid(), signal.SIGSEGV)


def always_crash(k, p, given, old):
    os.kill(os.getpid(), signal.SIGSEGV)


def leave(k, p, given, old):
    sys.stderr.write("the engine gives up\n")
    sys.stderr.flush()
    os._exit(7)


def throw(k, p, given, old):
    if p.rows == 6:
        raise ValueError("no such tile\nsecond line")


def late_refusal(k, p, given, old):
    raise Unsupported("says no when it is called")


def unwritten(k, p, given, old):
    given["weights"][-1, -1] = old[-1, -1]


def own_unwritten(k, p, given, old):
    """Of memory that the engine allocates itself."""
    import torch
    fresh = torch.empty_like(given["weights"])
    kept = fresh[-1, -1].clone()
    fresh.copy_(given["weights"])
    fresh[-1, -1] = kept
    return {"ids": given["ids"], "weights": fresh}


def memory(k, p, given, old):
    """What lay in the output before decides; each element is written."""
    given["weights"][0, 0] += 0.0 if old.isnan().any() else 0.25


def reruns(k, p, given, old):
    given["weights"][0, 0] += k.calls * 2.0 ** -10


def positions(k, p, given, old):
    import torch
    given["weights"][:, 0] += torch.arange(p.rows) * 2.0 ** -10


def writes_input(k, p, given, old):
    p.logits[0, 0] += 1


def writes_bias(k, p, given, old):
    p.bias[3] += 1


def outside(k, p, given, old):
    n = given["ids"].numel()
    given["ids"].as_strided((n + 1,), (1,))[n] = 5


def wrong_ids(k, p, given, old):
    """The first rejected expert, or another, for the last selected one."""
    given["ids"][:, -1] = (given["ids"].max(1).values + 1) % p.router.experts


def wrong_shape(k, p, given, old):
    return {"ids": given["ids"][:, :-1], "weights": given["weights"]}


def nothing(k, p, given, old):
    return {"ids": given["ids"]}


def wide(k, p, given, old):
    return {"ids": given["ids"].long(), "weights": given["weights"].double()}


class Derives(Fake):
    """Looks at the logits in prepare, though they change from launch to launch."""

    def prepare(self, p):
        import torch
        ids, weights = five_lines(torch, p.router, p.logits.float(), p.bias)
        return lambda: {"ids": ids.clone(), "weights": weights.clone()}


class Packed(Fake):
    """Two halves of one word, as engines pack score and id; the score in bf16."""

    def arithmetic(self, router, rows):
        return "bf16-weights"

    def prepare(self, p):
        import torch
        packed = p.empty((p.rows, p.router.top_k, 2), torch.int16)

        def launch():
            ids, weights = five_lines(torch, p.router, p.logits.float(), p.bias)
            packed[:, :, 0] = ids.short()
            packed[:, :, 1] = weights.bfloat16().view(torch.int16)
            return {"packed": packed}
        return launch

    def repack(self, outputs):
        import torch
        pair = outputs["packed"]
        return {"ids": pair[:, :, 0].int(), "weights": pair[:, :, 1].contiguous().view(torch.bfloat16)}


class Sorts(Kernel):
    """Aligns ids to tiles; `spoil` changes the outcome."""
    about = "of the tests"
    takes = "ids"
    gives = ("sorted", "tile_expert", "sorted_total")
    tile = 16
    devices = ("cpu",)

    def __init__(self, name, spoil=None):
        self.name, self.spoil = name, spoil

    def prepare(self, p):
        import torch
        n, e = p.rows * p.router.top_k, p.router.experts
        place = p.empty((n + e * (self.tile - 1),), torch.int32)
        owner = p.empty((len(place) // self.tile + 1,), torch.int32)
        total = p.empty((1,), torch.int32)

        def launch():
            at = 0
            for expert in range(e):
                mine = (p.ids.view(-1) == expert).nonzero().view(-1).int()
                share = -(-len(mine) // self.tile) * self.tile
                place[at:at + share] = n
                place[at:at + len(mine)] = mine
                owner[at // self.tile:(at + share) // self.tile] = expert
                at += share
            total[0] = at
            if self.spoil:
                self.spoil(place, owner, total)
            return {"sorted": place, "tile_expert": owner, "sorted_total": total}
        return launch


def twice(place, owner, total):
    place[1] = place[0]


def other_tile(place, owner, total):
    owner[0] += 1


def short(place, owner, total):
    total[0] -= 16


class Logits(Fake):
    """A router GEMM alone."""
    takes = "hidden"
    gives = ("logits",)

    def prepare(self, p):
        import torch

        def launch():
            out = p.empty((p.rows, p.router.experts), torch.float32)
            out.copy_(p.hidden.float() @ p.gate.float().T)
            return {"logits": out}
        return launch


def kernels(found):
    class OneRow(Fake):
        def refuses(self, router, rows):
            return None if rows == 1 else "serves one row"

    spoilers = (hang, crash, always_crash, leave, throw, late_refusal, unwritten, own_unwritten, memory,
                reruns, positions, writes_input, writes_bias, outside, wrong_ids, wrong_shape, nothing,
                wide)
    return [Fake("right"), *(Fake(f.__name__, f) for f in spoilers), OneRow("one_row"),
            Fake("fp16_only", logits_types=("fp16",)), Derives("derives"), Packed("packed"),
            Sorts("sorts"), *(Sorts(f.__name__, f) for f in (twice, other_tile, short)),
            Logits("gemm")]
