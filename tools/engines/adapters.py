"""Finds the adapters: for_ENGINE.py beside this file, and files named by --adapter. A file that has no
NAME is a part of another."""
import importlib.util
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def paths(extra=()):
    own = [p for p in sorted(HERE.glob("for_*.py")) if re.search(r"^NAME\b", p.read_text(), re.M)]
    return [*own, *map(Path, extra)]


def load(path):
    """The module of one adapter; it may import what lies beside it."""
    path = Path(path).resolve()
    for folder in (str(path.parent), str(HERE)):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def describe(path):
    """What an adapter says of itself, as plain values. Runs in a child: it may die."""
    adapter = load(path)
    found = adapter.find()
    told = {"name": adapter.NAME, "versions": list(adapter.VERSIONS), "version": found.version,
            "reason": found.reason, "where": str(found.where), "kernels": []}
    if found.version is None:
        return told
    for k in adapter.kernels(found):
        told["kernels"].append({"name": k.name, "about": k.about, "takes": k.takes,
                                "logits_types": list(k.logits_types),
                                "hidden_types": list(k.hidden_types), "gives": list(k.gives),
                                "profile": k.profile, "devices": list(k.devices),
                                "compiles": k.compiles})
    return told


def known(version, versions):
    """Whether the source of this version was read; a local part (+cu130) is of the build."""
    return version.split("+")[0] in {v.split("+")[0] for v in versions}
