"""The same recorder inside a server: SGLang's --forward-hooks, vLLM's --worker-extension-cls.

README.md has the command lines. An engine's own modules are used by shape (attributes, argument
order), none of its code is here. A fault in here never stops the server: it says so on stderr once
and records no more. The routers' weights come from the checkpoint's folder, not from the server:
what the checkpoint means is the truth that the server is held against.

Rows are on disk as soon as they come. The capture is finished when every layer has max_rows of each
phase wanted (at the next forward), when vLLM shuts its worker down, or by `capture.py --salvage`."""
import functools
import json
import os
import sys

import torch

import recorder
from layout import CaptureError, routers_of_checkpoint, write_json, write_safetensors
from spool import CONFIG, ROUTER, Spool


def log(text):
    print(f"moeref capture: {text}", file=sys.stderr, flush=True)


def guarded(method):
    """For what runs inside a forward."""
    @functools.wraps(method)
    def run(self, *args, **kwargs):
        if self.off or torch.compiler.is_compiling() or \
                (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()):
            return
        try:
            method(self, *args, **kwargs)
        except Exception as e:
            self.off = True
            log(f"{type(e).__name__}: {e}; records no more, capture.py --salvage keeps the rows "
                "so far")
    return run


class ServerCapture:
    """config: out, model (folder of the checkpoint), max_rows (512), layers (all), phases that end
    the capture when full (prefill, decode), force."""

    def __init__(self, engine, config):
        known = {"out", "model", "max_rows", "layers", "phases", "force"}
        for key in set(config) - known:
            raise CaptureError(f"{key!r} is not known: {', '.join(sorted(known))} are")
        for key in ("out", "model"):
            if not isinstance(config.get(key), str):
                raise CaptureError(f"\"{key}\" is missing")
        self.engine, self.model, self.off = engine, config["model"], False
        self.layers = set(config["layers"]) if config.get("layers") is not None else None
        self.phases = [recorder.check_phase(p) for p in config.get("phases", ["prefill", "decode"])]
        # Only one rank writes; its rows are all ranks' rows unless data are parallel.
        if torch.distributed.is_available() and torch.distributed.is_initialized() and \
                torch.distributed.get_rank() != 0:
            self.off = True
            return
        self.phase, self.last, self.described = "all", -1, False
        tensors = routers_of_checkpoint(self.model)
        with open(os.path.join(self.model, CONFIG)) as f:
            text = json.load(f)
        self.spool = Spool(config["out"], bool(config.get("force")))
        try:
            self.recorder = recorder.Recorder(self.spool, config.get("max_rows", 512))
            write_json(self.spool.path(CONFIG), text)
            write_safetensors(self.spool.path(ROUTER), tensors,
                              {"format": "pt", "origin": self.model})
        except BaseException:
            self.spool.discard()
            raise
        log(f"rows of every router go to {self.spool.part}")

    def describe(self, kernel, scale):
        """At the first row: scale is what the router itself multiplies its weights by, whatever the
        model does later."""
        out = self.spool.out
        origin = f"{self.engine}, {kernel}, torch {torch.__version__}, checkpoint {self.model}"
        device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
        self.spool.describe({
            "name": os.path.basename(out), "about": f"Captured from {origin}.",
            "metadata": {"origin": origin, "engine": self.engine, "device": device,
                         "kernel": f"{self.engine.split()[0]}.{kernel}"},
            "case": {"config": CONFIG, "router": {"routed_scaling_factor": float(scale)}}})
        self.described = True

    def add(self, phase, layer, hidden, logits, ids, weights, kernel, scale):
        if not self.described:
            self.describe(kernel, scale)
        if layer <= self.last and self.full():
            self.finish()
            return
        self.last = layer
        if self.layers is None or layer in self.layers:
            self.recorder.add(phase, layer, hidden, logits, ids, weights)

    def full(self):
        layers = {layer for _, layer in self.spool.rows}
        return self.recorder.max_rows is not None and layers and \
            all(self.recorder.left(p, layer) <= 0 for p in self.phases for layer in layers)

    def finish(self):
        if self.off:
            return
        self.off = True
        if self.spool.rows:
            log(f"finished: moeref verify {self.spool.finish()}")
        else:
            self.spool.discard()
            log("no row came: routers ran in CUDA graphs or compiled code, or inside an expert "
                "kernel that routes itself")


class SGLang(ServerCapture):
    """Hooks on TopK (which is called with hidden states and logits, and returns weights and ids)
    and on attention, whose fourth argument knows whether the forward is a prefill."""

    MODES = {"EXTEND": "prefill", "DECODE": "decode"}

    @guarded
    def hook(self, module, args, given):
        batch = next((a for a in args if hasattr(a, "forward_mode")), None)
        if batch is not None:
            name = batch.forward_mode.name
            self.phase = self.MODES.get(name, name.lower())
        elif hasattr(module, "topk_config"):
            self.route(module, args, given)

    def route(self, module, args, given):
        if not hasattr(given, "topk_ids") or not hasattr(given, "topk_weights"):
            raise CaptureError(f"{type(given).__name__}: the experts' kernel routes itself; choose "
                               "another --moe-runner-backend (triton)")
        if len(args) < 2:
            raise CaptureError("TopK without its two positional arguments")
        if self.phase == "idle" or args[0].shape[0] == 0:
            return
        config = module.topk_config
        routed = config.top_k - getattr(config, "num_shared_topk_slots", 0)
        ids, weights = given.topk_ids[:, :routed], given.topk_weights[:, :routed]
        scale = 1.0
        if config.apply_routed_scaling_factor_on_output and config.routed_scaling_factor is not None:
            scale = config.routed_scaling_factor
        self.add(self.phase, module.layer_id, args[0], args[1], ids, weights, "TopK", scale)


def sglang(config):
    """The hook_factory of --forward-hooks."""
    try:
        c = SGLang("sglang " + _version("sglang"), config)
    except (CaptureError, OSError, ValueError) as e:
        log(f"{e}; the server goes on without")
        return None
    # A hook must return nothing: what it returns would replace the output.
    return None if c.off else lambda module, args, given: c.hook(module, args, given)


class VLLM(ServerCapture):
    """Around FusedMoERouter.select_experts, which every router that is not inside an expert kernel
    goes through."""

    def __init__(self, config, worker, context):
        super().__init__("vllm " + _version("vllm"), config)
        self.worker, self.context, self.numbers = worker, context, None
        self.seen, self.rows_of = None, None

    @guarded
    def select(self, router, hidden, logits, weights, ids):
        context = self.context()
        if context is None or not context.attn_metadata:
            return  # a profile run: no request is in it
        if getattr(router, "eplb_state", None) is not None:
            raise CaptureError("EPLB is on: ids are of copies of experts")
        if self.numbers is None:
            self.numbers = {id(m.router): m.layer_id for m in self.worker.model_runner.model.modules()
                            if hasattr(m, "router") and hasattr(m, "layer_id")}
        layer = self.numbers.get(id(router))
        if layer is None:
            return  # a draft model's
        k = router.top_k
        for phase, rows in self.phases_of(context.attn_metadata, hidden.shape[0]):
            self.add(phase, layer, hidden[rows], logits[rows, :router.global_num_experts],
                     ids[rows, :k], weights[rows, :k], type(router).__name__,
                     getattr(router, "routed_scaling_factor", 1.0))

    def phases_of(self, metadata, rows):
        """A batch may mix: a request with one new token decodes, one with more is prefilled. Rows
        behind the last request are padding."""
        if self.seen is metadata and self.rows_of[0] == rows:
            return self.rows_of[1]
        each = metadata[0] if isinstance(metadata, list) else metadata
        starts = next((m.query_start_loc for m in each.values()
                       if getattr(m, "query_start_loc", None) is not None), None)
        found = [("all", slice(None))]
        if starts is not None and not isinstance(metadata, list):
            starts = starts.tolist()
            if starts[-1] <= rows:
                found = _split(starts)
        self.seen, self.rows_of = metadata, (rows, found)
        return found


def _split(starts):
    kinds = {"prefill": [], "decode": []}
    for a, b in zip(starts, starts[1:]):
        kinds["decode" if b - a == 1 else "prefill"] += range(a, b)
    return [(phase, rows) for phase, rows in kinds.items() if rows]


def wrap(router_class, capture):
    """capture: VLLM. Returns what undoes it."""
    original = router_class.select_experts

    @functools.wraps(original)
    def select_experts(self, hidden_states, router_logits, *args, **kwargs):
        # Hidden states may be written over by the experts: they are saved at once.
        weights, ids = original(self, hidden_states, router_logits, *args, **kwargs)
        capture.select(self, hidden_states, router_logits, weights, ids)
        return weights, ids
    router_class.select_experts = select_experts

    def undo():
        router_class.select_experts = original
    return undo


class Worker:
    """--worker-extension-cls hooks.Worker, with MOEREF_CAPTURE='{"out": ..., "model": ...}' in the
    environment. vLLM calls the first method before it loads the model, the second at its end."""

    def init_worker_extension(self):
        try:
            text = os.environ.get("MOEREF_CAPTURE")
            if not text:
                raise CaptureError("MOEREF_CAPTURE is not set")
            from vllm.forward_context import get_forward_context, is_forward_context_available
            from vllm.model_executor.layers.fused_moe.router.fused_moe_router import FusedMoERouter
            c = VLLM(json.loads(text), self, lambda: get_forward_context()
                     if is_forward_context_available() else None)
        except (CaptureError, ImportError, OSError, ValueError) as e:
            log(f"{e}; the server goes on without")
            return
        if not c.off:
            self.moeref_capture = c
            wrap(FusedMoERouter, c)

    def destroy_worker_extension(self):
        c = getattr(self, "moeref_capture", None)
        if c is not None:
            try:
                c.finish()
            except (CaptureError, OSError) as e:
                log(str(e))


def _version(package):
    import importlib.metadata
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "(version unknown)"
