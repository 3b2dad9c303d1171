"""Records PyTorch's and Triton's scalar functions and softmax on a GPU, for data/cuda-h200.

    python3 tests/oracle/cuda_torch.py OUT [OUT/sweep.safetensors]

Needs torch, triton, safetensors and a GPU; no test runs it. The checksum is that of
ref/arith/cuda.h, the rows are those of gpu/sweep/rows.h. Given the checksums of gpu/sweep, it
prints which library function each torch function equals on all 2^32 inputs.
OUT/torch.safetensors: checksums. OUT/torch_raw.npz: some outputs, to see why one
differs."""
import sys
import time

import numpy as np
import torch
import triton
import triton.language as tl
from safetensors import safe_open
from safetensors.torch import save_file

K1, K2, M32 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0xFFFFFFFF


def signed(x):
    return x - (1 << 64) if x >> 63 else x


def shift(z, n):
    return (z >> n) & ((1 << (64 - n)) - 1)


def checksum(words):
    """words: int64 tensor [blocks, n] of values below 2^32; one checksum a block."""
    z = torch.arange(words.shape[1], device=words.device, dtype=torch.int64) << 32
    z = (z + words) * signed(K1)
    z = (z ^ shift(z, 32)) * signed(K2)
    return (z ^ shift(z, 29)).sum(1)


def words_of(y):
    wide = {4: torch.int32, 2: torch.int16}[y.element_size()]
    return y.view(wide).to(torch.int64) & (M32 if wide == torch.int32 else 0xFFFF)


@triton.jit
def triton_sigmoid(x, y, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.sigmoid(tl.load(x + i)))


@triton.jit
def triton_softplus(x, y, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i)
    tl.store(y + i, tl.where(v > 20.0, v, tl.log(1.0 + tl.exp(v))))


@triton.jit
def triton_root(x, y, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i)
    tl.store(y + i, tl.sqrt(tl.where(v > 20.0, v, tl.log(1.0 + tl.exp(v)))))


@triton.jit
def triton_exp(x, y, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.exp(tl.load(x + i)))


@triton.jit
def triton_log(x, y, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.log(tl.load(x + i)))


def by_triton(kernel):
    def run(x):
        y = torch.empty_like(x)
        compiled = kernel[(x.numel() // 1024,)](x, y, BLOCK=1024)
        run.ptx = compiled.asm.get("ptx", "")
        run.cubin = compiled.asm.get("cubin", b"")
        return y

    return run


FUNCTIONS = {
    "torch.sigmoid": (torch.sigmoid, ["sigmoid.expf"]),
    "torch.exp": (torch.exp, ["expf"]),
    "torch.log": (torch.log, ["logf"]),
    "torch.log1p": (torch.log1p, ["log1pf"]),
    "torch.log2": (torch.log2, ["log2f"]),
    "torch.exp2": (torch.exp2, ["ex2.approx"]),
    "torch.tanh": (torch.tanh, ["tanhf"]),
    "torch.softplus": (torch.nn.functional.softplus, ["softplus.torch"]),
    "torch.softplus.sqrt": (
        lambda x: torch.nn.functional.softplus(x).sqrt(), ["sqrt-softplus.torch"]),
    "triton.sigmoid": (by_triton(triton_sigmoid), ["sigmoid.triton"]),
    "triton.exp": (by_triton(triton_exp), ["__expf", "__expf.ftz"]),
    "triton.log": (by_triton(triton_log), ["logf", "logf.ftz", "__logf"]),
    "softplus.triton": (by_triton(triton_softplus), ["softplus.__logf", "softplus.logf"]),
    "sqrt-softplus.triton": (by_triton(triton_root), ["sqrt-softplus.__logf"]),
}
CHUNK = 1 << 27


def sweep(f):
    sums = []
    for first in range(0, 1 << 32, CHUNK):
        x = torch.arange(first, first + CHUNK, device="cuda", dtype=torch.int64)
        x = x.to(torch.int32).view(torch.float32)
        y = f(x)
        sums.append(checksum(words_of(y).view(-1, 1 << 20)))
    return torch.cat(sums)


def mix(z):
    z = z + np.uint64(K1)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(K2)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


ROWS = 2048


def rows(kind, columns):
    row = np.arange(ROWS, dtype=np.uint64)[:, None]
    column = np.arange(columns, dtype=np.uint64)[None, :]
    w = mix(np.uint64((1 << 50) + (kind << 40)) + (row << np.uint64(16)) + column)
    part = np.uint64(0xFFFF)
    s = sum(((w >> np.uint64(16 * i)) & part).astype(np.int64) for i in range(4)) - 131070
    if kind == 1:
        return ((s >> 14) * 0.5).astype(np.float32)
    if kind == 2:
        return (s * 2.0**-9).astype(np.float32)
    x = (s * 2.0**-14).astype(np.float32)
    if kind == 3:
        x[(row > 3) & ((w & np.uint64(7)) == 0)] = -np.inf
        x[0] = -np.inf
        x[1, 3], x[2, 5], x[3] = np.nan, np.inf, 0
    return x


def main():
    out = sys.argv[1]
    start = time.time()
    torch.set_grad_enabled(False)
    known = {}
    if len(sys.argv) > 2:
        with safe_open(sys.argv[2], "pt") as file:
            known = {k: file.get_tensor(k).view(torch.int64) for k in file.keys()}
    saved, raw = {}, {}
    for name, (f, equals) in FUNCTIONS.items():
        try:
            sums = sweep(f).cpu()
        except Exception as error:
            print(name, "failed:", error)
            continue
        # All 4096 only of what has no twin in gpu/sweep; of the others their sum.
        saved[name] = sums if name.endswith("softplus.triton") else sums.sum().view(1)
        for label in equals:
            if label in known:
                differ = (sums != known[label]).nonzero().flatten()
                print(f"{name} and {label}: {len(differ)} blocks differ", differ[:8].tolist())
        if hasattr(f, "ptx"):
            open(f"{out}/triton.txt", "a").write(f"== {name}\n{f.ptx}\n")
        x = torch.linspace(-110, 110, 40001, device="cuda")
        raw["x"], raw[name] = x.cpu().numpy(), f(torch.nn.functional.pad(x, (0, 1024 - x.numel() % 1024)))[: x.numel()].cpu().numpy()
        print(f"{name}: {time.time() - start:.1f} s", flush=True)
    small = torch.arange(65536, dtype=torch.int32).to(torch.int16).cuda()
    for dtype in (torch.bfloat16, torch.float16):
        y = torch.sigmoid(small.view(dtype))
        key = f"torch.sigmoid.{str(dtype)[6:]}"
        saved[key] = checksum(words_of(y).view(64, 1024)).cpu()
        raw[key] = y.view(torch.int16).cpu().numpy()
    for columns in (8, 64, 128, 256, 288, 384, 512):
        for kind in range(4):
            x = torch.from_numpy(rows(kind, columns)).cuda()
            for dtype in (torch.float32, torch.bfloat16, torch.float16):
                y = torch.softmax(x.to(dtype), -1)
                key = f"torch.softmax.{columns}.{kind}.{str(dtype)[6:]}"
                saved[key] = checksum(words_of(y).view(1, -1)).cpu()
                if kind in (0, 3):
                    raw[key] = words_of(y[:24]).cpu().numpy().astype(np.uint32)
            # bf16 logits, fp32 result: another kernel
            y = torch.softmax(x.to(torch.bfloat16), -1, dtype=torch.float32)
            saved[f"torch.softmax.{columns}.{kind}.bfloat16.float32"] = checksum(words_of(y).view(1, -1)).cpu()
    raw["rows"] = rows(3, 8).view(np.uint32)
    np.savez_compressed(f"{out}/torch_raw.npz", **raw)
    save_file(
        {k: v.view(torch.uint64) for k, v in saved.items()}, f"{out}/torch.safetensors",
        metadata={"gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
                  "triton": triton.__version__, "cuda": torch.version.cuda,
                  "program": "tests/oracle/cuda_torch.py"})
    print(f"torch: {time.time() - start:.1f} s")


if __name__ == "__main__":
    main()
