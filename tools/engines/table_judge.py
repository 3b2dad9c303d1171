"""Calls of `moeref`: cases by their names, certified sets, verdicts."""
import itertools
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from table_files import Bad, Safetensors

HERE = Path(__file__).resolve().parents[2]
LOGITS = re.compile(r"(?P<base>.+)\.(?P<type>fp32|bf16|fp16)-logits$")
# Order of ref/route/certify.h; from here on a token has no set that could be flipped from.
CERT_TIE = 3


class Moeref:
    def __init__(self, binary, folders):
        """folders: where cases are looked for, NAME.json; then cases/ of this tree."""
        found = binary or os.environ.get("MOEREF") or str(HERE / "build" / "moeref")
        self.binary = found if os.path.exists(found) else shutil.which(found)
        if not self.binary:
            raise Bad(f"{found}: no program moeref (--moeref, or make)")
        self.work = tempfile.TemporaryDirectory(prefix="moeref-table.")
        self.paths = {}
        for folder in map(Path, folders):
            for path in sorted(folder.rglob("*.json")):
                self.paths.setdefault(path.stem, path)
        for path in sorted((HERE / "cases").glob("*.json")):
            self.paths.setdefault(path.stem, path)
        self.cases, self.number, self.known = {}, itertools.count(), None

    def call(self, *arguments):
        """Standard output, or Bad with the program's own line."""
        ran = subprocess.run([self.binary, *map(str, arguments)], capture_output=True, text=True)
        if ran.returncode > 1:
            lines = ran.stderr.strip().splitlines() or [f"moeref ended with {ran.returncode}"]
            raise Bad(lines[-1].removeprefix("moeref: "))
        return ran.stdout

    def case(self, name, seed):
        """The path of a case. One that starts from logits is made where only its origin is there."""
        key = (name, seed)
        if key not in self.cases:
            self.cases[key] = self.find(name, seed)
        return self.cases[key]

    def find(self, name, seed):
        m = LOGITS.match(name)
        base = self.paths.get(m["base"]) if m else None
        if name in self.paths or not base:
            if name not in self.paths:
                raise Bad(f"no case {name} (--cases DIR)")
            path, options = self.paths[name], []
            generated = "generate" in json.loads(path.read_text())
            if not (generated and seed):
                return path
        else:
            path, options = base, ["--logits", m["type"]]
            generated = "generate" in json.loads(path.read_text())
        folder = Path(self.work.name) / f"seed-{seed or 'none'}"
        if generated and seed:
            options += ["--seed", seed]
        self.call("export", path, "-o", folder, *options)
        return folder / f"{name}.json"

    def exported(self, name, seed):
        """The case as one JSON and one safetensors file."""
        path = self.case(name, seed)
        document = json.loads(path.read_text())
        if not {"config", "generate", "inline", "names"} & document.keys():
            return path
        folder = Path(self.work.name) / "exported"
        self.call("export", path, "-o", folder)
        return folder / f"{name}.json"

    def classes(self):
        """Names of `moeref gen`'s classes."""
        if self.known is None:
            lines = self.call("gen", "--list").splitlines()[1:]
            self.known = {line.split()[0] for line in lines if line.strip()}
        return self.known

    def certified(self, path):
        """{(phase, layer): (sets [tokens, top_k], ascending; certificates; gaps)}"""
        out = Path(self.work.name) / f"certified-{next(self.number)}.safetensors"
        self.call("route", path, "--arith", "fp32", "--tokens", out, "-q", "--threads", 1)
        file, found = Safetensors(out), {}
        for name in file.header:
            m = re.match(r"(.+)\.model\.layers\.(\d+)\.mlp\.topk_ids$", name)
            if m:
                at = name.removesuffix("topk_ids")
                found[m[1], int(m[2])] = (np.sort(file.tensor(name), 1),
                                          file.tensor(at + "certificate"), file.tensor(at + "gap"))
        return found

    def verify(self, path, files, profile):
        """The judge's document on files (of one profile)."""
        arguments = [a for f in files for a in ("--observed", f)]
        if profile:
            arguments += ["--profile", profile]
        return json.loads(self.call("verify", path, "--json", "-", "--threads", 1, *arguments))
