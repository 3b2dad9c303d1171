"""Which arithmetic made a kernel's logits: all recordings of a layer as one case for `moeref identify`,
as cases/cublas-h200.json presents its own. Logits that are the same bits are asked about once."""
import hashlib
import json
from pathlib import Path

from table_files import Bad, Safetensors, bits

ROWS = (1, 6, 16, 96, 1024)  # row counts asked about where they are there
# Rows of logits: 4 x 128 of fp32 leave one sum or few; of 16 bits many more are needed.
MOST = {"F32": 4, "BF16": 64, "F16": 64}


def write_safetensors(path, tensors, metadata=None):
    """tensors: {name: (dtype, shape, bytes)}"""
    header, at = {"__metadata__": metadata} if metadata else {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for _, _, data in tensors.values():
            f.write(data)


class Layer:
    """One layer of one exported case and the logits that kernels gave for it."""

    def __init__(self, path, document, phase, layer):
        self.document, self.phase, self.layer = document, phase, layer
        names = {*document["capture"], *document.get("checkpoint", [])}
        self.files = [Safetensors(path.parent / n) for n in sorted(names)]
        self.asked = {}    # digest -> name of the phase
        self.tensors = {}
        self.paths = [str((path.parent / n).resolve()) for n in document.get("checkpoint", [])]
        name = f"{phase}.model.layers.{layer}.mlp.gate.input"
        found = [f for f in self.files if name in f.header]
        if not found:
            raise Bad(f"{path}: no {name}")
        self.hidden, self.dtype = found[0].tensor(name), found[0].header[name]["dtype"]

    def ask(self, recording, at, most):
        """Adds a recording; the phase under which its answer will be found."""
        name = recording.layers[at]["gate.logits"]
        dtype = recording.header[name]["dtype"]
        logits = recording.tensor(name)[:most.get(dtype, 0)]
        token = recording.tokens(at)[:len(logits)]
        data, hidden = bits(logits).tobytes(), bits(self.hidden[token]).tobytes()
        digest = hashlib.sha256(dtype.encode() + token.tobytes() + data).hexdigest()
        if digest not in self.asked:
            asked = self.asked[digest] = f"r{len(self.asked)}"
            self.tensors["logits." + asked] = (dtype, logits.shape, data)
            self.tensors["hidden." + asked] = (self.dtype, (len(token), self.hidden.shape[1]), hidden)
        return self.asked[digest]

    def case(self, folder):
        """Writes the case; its path."""
        at = f"model.layers.{self.layer}.mlp.gate."
        write_safetensors(folder / "asked.safetensors", self.tensors)
        # No bias, no groups: only the logits are asked about.
        router = {**self.document["router"], "bias": False, "n_group": 1, "topk_group": 1}
        document = {"moeref_case": 1, "name": "asked", "input": "hidden", "router": router,
                    "checkpoint": self.paths, "capture": ["asked.safetensors"],
                    "names": {"hidden": "hidden.{phase}", "logits": "logits.{phase}",
                              "gate": at + "weight", "gate_bias": at + "bias"},
                    "phases": list(self.asked.values())}
        path = folder / "asked.json"
        path.write_text(json.dumps(document))
        return path


def short(answer):
    """Of one recording's answer, what the table says."""
    sums = answer["sums"]
    return {"identified": answer["identified"], "line": sums[0] if sums else None,
            "sums": sums[:16], "sums_in_all": len(sums), "lines_in_all": len(answer["lines"]),
            "nearest": answer["nearest"], "mismatches": answer["mismatches"],
            "checked": answer["checked"], "everything": answer["everything"]}


def identify(moeref, recordings, rows, most=MOST, every=False):
    """{path of a recording: [answer of `moeref identify`]}, of those with logits of a case that starts
    from hidden states: of their first layer, or of every."""
    asked, layers, case = {}, {}, {}
    for r in recordings:
        places = [at for at, t in r.layers.items() if "gate.logits" in t]
        if r.rows not in rows or not places:
            continue
        key = (r.case, r.metadata.get("seed"))
        if key not in case:
            path = moeref.exported(*key)
            case[key] = path, json.loads(path.read_text())
        path, document = case[key]
        if document["input"] != "hidden":
            continue
        for at in places if every else places[:1]:
            if (key, at) not in layers:
                layers[key, at] = Layer(path, document, *at)
            asked.setdefault(r.path, []).append(((key, at), layers[key, at].ask(r, at, most)))
    answers = {}
    for key, layer in layers.items():
        folder = Path(moeref.work.name) / f"identify-{next(moeref.number)}"
        folder.mkdir()
        document = json.loads(moeref.call("identify", layer.case(folder), "--json", "-"))
        answers[key] = {a["phase"]: a for a in document["recordings"]}
    return {path: [answers[key][phase] for key, phase in all_of] for path, all_of in asked.items()}
