"""SGLang's sorting of positions by expert, from ids."""
from engine import Kernel, Unsupported
from for_sglang_common import of

WRAPPER = "srt.layers.moe.moe_runner.triton_utils.moe_align_block_size"


class Align(Kernel):
    takes = "ids"
    gives = ("sorted", "tile_expert", "sorted_total")
    tile = 64

    def prepare(self, p):
        align = self.function(p)

        def launch():
            places, experts, total = align()
            return {"sorted": places, "tile_expert": experts, "sorted_total": total}
        return launch


class AlignBlockSize(Align):
    name = "moe_align_block_size"
    about = ("its wrapper with pad_expert_ids, which takes the JIT kernels at every size: "
             "kernels/jit/csrc/moe/moe_align_kernel.cu")

    def refuses(self, router, rows):
        return "at most 8191 experts" if router.experts > 8191 else None

    def function(self, p):
        align, r = of(WRAPPER).moe_align_block_size, p.router
        return lambda: align(p.ids, self.tile, r.experts, pad_expert_ids=True)


class AlignSmall(Align):
    name = "moe_align_small_numel"
    about = ("its wrapper as called by default, which takes the Triton kernel up to 64 positions and from "
             "64 experts on: kernels/ops/moe/moe_align_small_numel.py")

    def refuses(self, router, rows):
        if rows * router.top_k > 64 or router.experts < 64:
            return "goes to sglang_kernel's compiled library: see aot_moe_align_block_size"

    def function(self, p):
        align, r = of(WRAPPER).moe_align_block_size, p.router
        return lambda: align(p.ids, self.tile, r.experts)


class AlignSingle(Align):
    name = "moe_align_single_token"
    about = "one warp for one row: kernels/jit/csrc/moe/align_single_token.cuh"

    def refuses(self, router, rows):
        if rows != 1:
            return "serves one row"
        return "top_k is at most 32" if router.top_k > 32 else None

    def function(self, p):
        align = of("kernels.ops.moe.moe_align_single_token").moe_align_single_token
        if p.ids.dtype.itemsize != 4:
            raise Unsupported("takes int32 ids")
        return lambda: align(p.ids, self.tile)


def kernels():
    return [AlignBlockSize(), AlignSmall(), AlignSingle()]
