"""From a session's rows to files: KERNEL.mROWS.safetensors with ids and weights; beside it, in files of
their own since they have fewer rows, .logits.safetensors (the first rows of logits that the kernel
gave) and .sorted.safetensors (sorted positions of the first launch). A kernel that gives logits and no
ids has its logits in the main file."""
import torch

import observed

ENDING = {"ids": "topk_ids", "weights": "topk_weights", "logits": "gate.logits"}


def entry(tensor):
    return (observed.SAFETENSORS[str(tensor.dtype)], tuple(tensor.shape),
            tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes())


def gather(session, names, most):
    """{tensor name: entry} of all layers."""
    out = {}
    for (phase, layer), got in session.rows.items():
        at = f"{phase}.model.layers.{layer}.mlp."
        there = [n for n in names if n in got.parts]
        for n in there:
            part = got.parts[n][:most]
            out[at + ENDING[n]] = entry(observed.narrow_ids(part) if n == "ids" else part)
        if there:
            index = got.token_index[:most]
            out[at + "gate.token_index"] = ("I64", index.shape, index.tobytes())
    return out


def write(session, folder, name, rows, metadata, logits_rows):
    """Names of the files written, by what they hold."""
    gives, files = session.kernel.gives, {}
    begin = f"{name}.m{rows}"
    logits = gather(session, ["logits"], logits_rows) \
        if "logits" in gives and session.kernel.takes != "logits" and logits_rows else {}
    kinds = {"file": (".safetensors", gather(session, ["ids", "weights"], None))}
    kinds["file" if "ids" not in gives else "logits_file"] = (
        ".safetensors" if "ids" not in gives else ".logits.safetensors", logits)
    if session.sorted:
        phase, layer = next(iter(session.rows))
        at = f"{phase}.model.layers.{layer}.mlp."
        ends = {"sorted": "sorted_ids", "tile_expert": "tile_expert", "sorted_total": "sorted_total",
                "ids": "topk_ids"}
        kinds["sorted_file"] = (".sorted.safetensors",
                                {at + ends[k]: entry(v) for k, v in session.sorted.items()})
    for kind, (ending, tensors) in kinds.items():
        if tensors:
            observed.write(folder / (begin + ending), tensors, metadata)
            files[kind] = begin + ending
    return files
