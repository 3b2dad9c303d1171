#!/usr/bin/env python3
"""Saves what enters and leaves every router of a running transformers model, as a moeref case.

    with capture(model, "DIR", max_rows=1024):          # a folder DIR that moeref reads
        model.generate(...)

    capture.py --model PATH_OR_ID --text FILE --out DIR [--max-rows N] [--layers 1,3-5]
               [--dtype bf16] [--device cuda] [--length 256] [--decode 32] [--bytes] [--force]
    capture.py --salvage DIR                            # what a killed run left

then `moeref verify DIR/NAME.json`. README.md says what is captured, and how servers are."""
import argparse
import contextlib
import json
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from layout import CaptureError, write_json, write_safetensors
from spool import CONFIG, ROUTER, Spool, salvage


class Capture:
    """The hooks while they are on. path: the case file, once the block has ended."""

    def __init__(self, model, out, max_rows=None, layers=None, name=None, force=False):
        import recorder
        import routers
        self.check_phase, self.outputs = recorder.check_phase, routers.outputs
        self.model, self.named, self.current, self.path = model, None, "all", None
        self.routers = routers.find(model, None if layers is None else set(layers))
        name = name or os.path.basename(os.path.abspath(out))
        if not re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*$", name) or name in ("config", "plan"):
            raise CaptureError(f"{name!r}: cannot be a case's name: --name gives another")
        tensors, case = describe(model, self.routers)
        self.spool = Spool(out, force)
        try:
            self.recorder = recorder.Recorder(self.spool, max_rows)
            write_config(model.config, self.spool.path(CONFIG))
            metadata = origin(model, self.routers[0])
            write_safetensors(self.spool.path(ROUTER), tensors, {"format": "pt", **metadata})
            self.spool.describe({
                "name": name, "metadata": metadata, "case": case, "words": words(self.routers[0]),
                "about": f"Captured from {metadata['origin']}."})
        except BaseException:
            self.spool.discard()
            raise
        self.handles = [model.register_forward_pre_hook(self._begin, with_kwargs=True)]
        for r in self.routers:
            self.handles.append(r.module.register_forward_hook(self._hook(r), with_kwargs=True))

    @contextlib.contextmanager
    def phase(self, name):
        """Rows inside belong to this phase, whatever their length."""
        before, self.named = self.named, self.check_phase(name)
        try:
            yield
        finally:
            self.named = before

    def _begin(self, model, args, kwargs):
        given = [kwargs.get("input_ids"), kwargs.get("inputs_embeds"), *args[:1]]
        x = next((t for t in given if t is not None), None)
        self.current = "prefill"
        if x is not None and x.dim() >= 2 and x.shape[1] == 1:
            cache = kwargs.get("past_key_values")
            if cache is not None and int(cache.get_seq_length()) > 0:
                self.current = "decode"

    def _hook(self, router):
        def hook(module, args, kwargs, given):
            phase = self.named or self.current
            left = self.recorder.left(phase, router.layer)
            if left is not None and left <= 0:
                return
            hidden = args[0] if args else kwargs["hidden_states"]
            logits, ids, weights = self.outputs(router, given)
            self.recorder.add(phase, router.layer, hidden, logits, ids, weights)
        return hook

    def remove(self):
        for h in self.handles:
            h.remove()
        self.handles = []


@contextlib.contextmanager
def capture(model, out, max_rows=None, layers=None, name=None, force=False):
    """Yields the Capture. out becomes a folder when the block ends well; when it ends with an
    exception the rows so far stay in out.part, which --salvage finishes."""
    c = Capture(model, out, max_rows, layers, name, force)
    try:
        yield c
    except BaseException:
        c.remove()
        if c.spool.rows:
            c.spool.close()
            print(f"capture: stopped early: capture.py --salvage {out} keeps the rows so far",
                  file=sys.stderr)
        else:
            c.spool.discard()
        raise
    c.remove()
    try:
        c.path = c.spool.finish()
    except BaseException:
        if not c.spool.rows:
            c.spool.discard()
        raise


def words(router):
    """What the class rounds before it widens again."""
    import torch
    narrow = {torch.bfloat16: "bf16", torch.float16: "fp16"}
    import routers
    dtype = routers.tensor(router, router.family.weight).dtype
    return [f"{narrow[dtype]}-{what}" for what in router.family.words if dtype in narrow]


def describe(model, found):
    """The routers' tensors, and what the case file says of them."""
    import routers
    from recorder import stored
    state, patterns = {}, {}
    for r in found:
        for what, path in (("gate", r.family.weight), ("bias", r.family.bias),
                           ("gate_bias", r.family.gate_bias)):
            if path:
                state[routers.tensor_name(r, path)] = (what, r.layer, routers.tensor(r, path))
    saved = checkpoint_names(model, {name: t for name, (_, _, t) in state.items()})
    tensors = []
    for name, (what, layer, t) in state.items():
        tensors.append((saved[name], *stored(t, what)))
        pattern = re.sub(rf"(^|\.){layer}(?=\.)", r"\g<1>{layer}", saved[name], count=1)
        if patterns.setdefault(what, pattern) != pattern:
            raise CaptureError(f"{saved[name]}: layers name their {what} differently")
    case = {"names": patterns}
    text = getattr(model.config, "text_config", None) or model.config
    if text.model_type in routers.READ_BY_MOEREF:
        case["config"] = CONFIG
        if found[0].family.outside:
            case["router"] = {found[0].family.outside: 1.0}
    else:
        case["router"] = found[0].figures
    return tensors, case


def checkpoint_names(model, tensors):
    """Names as transformers would save them: modules are called otherwise in some models."""
    try:
        from transformers.core_model_loading import revert_weight_conversion
    except ImportError:
        return {name: name for name in tensors}
    names = {}
    for name, t in tensors.items():
        back = list(revert_weight_conversion(model, {name: t}))
        names[name] = back[0] if len(back) == 1 else name
    return names


def write_config(config, path):
    value = config.to_dict()
    try:
        text = json.dumps(value)
    except TypeError:
        text = config.to_json_string(use_diff=False)
    write_json(path, json.loads(text))


def origin(model, router):
    import torch
    import transformers
    t = next(router.module.parameters())
    where = torch.cuda.get_device_name(t.device) if t.is_cuda else str(t.device)
    of = (f"{type(model).__name__} ({type(router.module).__name__}) in transformers "
          f"{transformers.__version__}, torch {torch.__version__}, {t.dtype} on {where}")
    return {"origin": of, "engine": f"transformers {transformers.__version__}",
            "kernel": f"transformers.{type(router.module).__name__}", "device": where,
            "float32_matmul_precision": torch.get_float32_matmul_precision()}


def numbers(text):
    """1,3-5 -> {1, 3, 4, 5}"""
    out = set()
    for part in text.split(","):
        m = re.match(r"(\d{1,5})(?:-(\d{1,5}))?$", part)
        if not m or (m[2] and int(m[2]) < int(m[1])):
            raise CaptureError(f"--layers {text}: expected numbers and ranges, as 1,3-5")
        out.update(range(int(m[1]), int(m[2] or m[1]) + 1))
    return out


def main():
    import command
    p = argparse.ArgumentParser(description=__doc__, allow_abbrev=False,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    command.arguments(p)
    args = p.parse_args()
    try:
        if args.salvage:
            print(salvage(args.salvage, args.force))
        else:
            print(command.run(args, p))
    except CaptureError as e:
        print(f"capture: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
