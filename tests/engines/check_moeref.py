"""Our kernels by way of run.py and by way of moeref-gpu give the same bits, token by token; on the CPU,
where the kernels are host code (gpu/kernels/simt.h). First `make gpu-so build/tests/moeref-gpu`.

    python3 tests/engines/check_moeref.py [BUILD [CASES]]

Both go over one layer of each case's decode phase at the same row counts and write observed files; a
token's row is found by gate.token_index. Kernels here are batch-invariant, so that it does not matter
that the two put tokens at different places. Exit status 1 if a bit differs, or nothing was compared.
"""
import os
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tools", "engines"))
from case import Safetensors, binary

KERNELS = ("single", "fused_topk", "routing_stage")
ROWS = (6, 16)
WHAT = ("topk_ids", "topk_weights", "gate.logits")


def run(*command):
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode:
        print(f"{' '.join(command)}: status {ran.returncode}\n{ran.stdout[-2000:]}{ran.stderr[-2000:]}")
    return ran.returncode


def rows_of(path):
    """{(layer, what, token): bytes}, of a token's first row."""
    if not os.path.exists(path):
        return {}
    f, out = Safetensors(path), {}
    for name in f.header:
        layer, what = name.split(".mlp.")
        if what not in WHAT:
            continue
        tensor = f.tensor(name).contiguous()
        tokens = f.tensor(f"{layer}.mlp.gate.token_index").tolist()
        for token, row in zip(tokens, tensor):
            out.setdefault((layer, what, token), row.numpy().tobytes())
    return out


def compare(case, kernel, rows, ours, theirs):
    """Tokens compared, tokens that differ; a line for the first."""
    both = sorted(set(ours) & set(theirs))
    bad = [k for k in both if ours[k] != theirs[k]]
    if bad:
        print(f"DIFFERS {case} {kernel} {rows} rows: {len(bad)} of {len(both)}, first {bad[0]}")
    return len(both), len(bad)


def export(case, folder):
    """One layer, and its exact logits as fp32; the path of the first."""
    name = os.path.splitext(os.path.basename(case))[0]
    for more in ([], ["--logits", "fp32"]):
        if run(binary(), "export", case, *more, "--layers", "1", "--phase", "decode", "-o", folder):
            return None, name
    return os.path.join(folder, f"{name}.json"), name


def check(build, case, folder):
    case, name = export(case, folder)
    if case is None:
        return 0, 1
    rows, total, bad = ",".join(map(str, ROWS)), 0, 0
    bad += run(sys.executable, os.path.join(ROOT, "tools", "engines", "run.py"), "--engine", "moeref",
               "--kernel", ",".join(KERNELS), "--case", case, "--rows", rows, "--device", "cpu",
               "--max-tokens", "48", "--out", os.path.join(folder, "py")) != 0
    for kernel in KERNELS:
        bad += run(os.path.join(build, "tests", "moeref-gpu"), "run", case, "--plugin",
                   os.path.join(build, "libmoeref-kernels-cpu.so"), "--kernel", kernel, "--rows", rows,
                   "--threads", "1", "-q", "--out", os.path.join(folder, "c")) != 0
        for m in ROWS:
            theirs = rows_of(os.path.join(folder, "c", f"{kernel}.m{m}.safetensors"))
            ours = {}
            for kind in ("", ".logits"):
                for of in (name, f"{name}.fp32-logits"):
                    ours.update(rows_of(os.path.join(folder, "py", of,
                                                     f"moeref.{kernel}.m{m}{kind}.safetensors")))
            n, wrong = compare(name, kernel, m, ours, theirs)
            total, bad = total + n, bad + wrong
            if not n and len(theirs) + len(ours):
                print(f"NOTHING {name} {kernel} {m} rows: {len(ours)} here, {len(theirs)} of moeref-gpu")
                bad += 1
    return total, bad


def main(argv):
    build = argv[0] if argv else os.path.join(ROOT, "build")
    cases = argv[1:] or [os.path.join(ROOT, "cases", f"{c}.json") for c in
                         ("glm4moe-tiny", "qwen3moe-tiny")]
    total = bad = 0
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            n, wrong = check(build, case, folder)
        total, bad = total + n, bad + wrong
    print(f"moeref: {total} rows of tokens compared, {bad} wrong")
    return int(bool(bad or not total))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
