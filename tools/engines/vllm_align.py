"""vLLM's moe_align_block_size: positions sorted by expert, each expert's filled up to whole tiles."""
import vllm_routers
import vllm_tree
from engine import Kernel


class Align(Kernel):
    takes = "ids"
    gives = ("sorted", "tile_expert", "sorted_total")

    def __init__(self, tile):
        self.tile = tile
        self.name = f"moe_align_block_size_{tile}"
        self.about = f"vLLM csrc/moe/moe_align_sum_kernels.cu: moe_align_block_size, tiles of {tile}"

    def refuses(self, router, rows):
        # The operator checks experts, rounded up to warps, < 1024.
        return "at most 991 experts" if (router.experts + 31) // 32 * 32 >= 1024 else None

    def prepare(self, problem):
        import torch
        vllm_routers.load("vllm._custom_ops")
        op, n, e = vllm_tree.operators("_moe_C").moe_align_block_size, problem.ids.numel(), \
            problem.router.experts
        # As fused_moe/moe_align_block_size.py: room for every expert's last tile; few positions
        # cannot take more than a tile each.
        room = min(n + e * (self.tile - 1), n * self.tile) if n < e else n + e * (self.tile - 1)
        tiles = -(-room // self.tile)

        def launch():
            place = problem.empty((room,), torch.int32)
            owner = problem.empty((tiles,), torch.int32)
            total = problem.empty((1,), torch.int32)
            op(problem.ids, e, self.tile, place, owner, total, None, None)
            return {"sorted": place, "tile_expert": owner, "sorted_total": total}
        return launch


def kernels():
    return [Align(16), Align(128)]
