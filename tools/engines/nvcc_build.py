"""Compiles an engine's own CUDA sources into one shared library, once.

The library lies in a cache folder ($MOEREF_ENGINE_CACHE, else ~/.cache/moeref) under a name that holds
a hash of all sources and headers named, of the flags and of torch's version; so another source, another
flag or another torch is another library.
"""
import concurrent.futures
import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess
import sysconfig
import tempfile

from engine import Unsupported


def cache_folder():
    folder = os.environ.get("MOEREF_ENGINE_CACHE") or pathlib.Path.home() / ".cache" / "moeref"
    return pathlib.Path(folder)


def nvcc():
    """The compiler's path, or None."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    path = pathlib.Path(home) / "bin" / "nvcc"
    return str(path) if path.is_file() else shutil.which("nvcc")


def library(name, sources, headers, flags):
    """Where the library of that hash lies, built or not."""
    import torch
    digest = hashlib.sha256()
    for part in [torch.__version__, *flags]:
        digest.update(part.encode() + b"\0")
    for path in [*sources, *headers]:
        data = pathlib.Path(path).read_bytes()
        digest.update(f"{pathlib.Path(path).name} {len(data)}\0".encode() + data)
    return cache_folder() / f"{name}-{digest.hexdigest()[:16]}.so"


def build(name, sources, headers, flags, include):
    """Path of the library; compiles it if it is not there. Raises Unsupported, with the first line
    that the compiler calls an error."""
    target = library(name, sources, headers, flags)
    if target.is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several children may want it at once
        if not target.is_file():
            _compile(target, sources, flags, include)
    return target


def _compile(target, sources, flags, include):
    import torch
    compiler = nvcc()
    if not compiler:
        raise Unsupported(f"{target.stem} is not in {target.parent}, and there is no nvcc to build it")
    root = pathlib.Path(torch.__file__).parent
    system = [root / "include", root / "include/torch/csrc/api/include",
              sysconfig.get_paths()["include"]]
    common = [*flags, "-Xcompiler", "-fPIC"]
    common += [word for path in include for word in ("-I", str(path))]
    common += [word for path in system for word in ("-isystem", str(path))]
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        objects = [f"{folder}/{i}.o" for i in range(len(sources))]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(lambda pair: _run([compiler, *common, "-c", str(pair[0]), "-o", pair[1]]),
                          zip(sources, objects)))
        made = f"{folder}/made.so"
        _run([compiler, "-shared", "-cudart", "shared", *objects, "-o", made,
              "-L", str(root / "lib"), "-lc10", "-ltorch", "-ltorch_cpu", "-lc10_cuda",
              "-ltorch_cuda", "-lcudart"])
        os.replace(made, target)


def _run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        lines = (done.stderr + done.stdout).splitlines()
        first = next((line for line in lines if "error" in line.lower()), "no message")
        raise Unsupported(f"{pathlib.Path(command[0]).name}: {first.strip()[:200]}")
