"""Times what a kernel enqueues, by the spans that gpu/timing_cuda.c times ours by (DESIGN section 8).

A sample is one replay of a CUDA graph of one launch, from the start of its first kernel, copy or
memset to the end of its last, as CUPTI's records have them; torch's profiler hands them out in ns.
Kernels that overlap (programmatic dependent launch, several streams) count once. Cold: a kernel
before it in the stream reads 2.5 times the L2. The replay is a launch of its own, so that the edge
between them is an ordinary one, whatever attribute its first kernel has. Warm: replays follow each
other.

What cannot be captured is timed on the stream, and `how` says why. There a kernel that only spins
stands before each launch, for three times as long as the host needs to enqueue it: gaps that the
host leaves by waiting for the device are part of the span, others are not.

Medians by events around the replay stand beside it. They hold the launch of the graph, too, and are
the figures where the profiler gave no records, or none that are clear.
"""
import time

import torch

import gpu_code
import spans
from engine import Unsupported

WARM_UP, PIECE, FEWEST = 5, 32, 21
_rigs = {}


class _Rig:
    """What all measurements of a device share."""

    def __init__(self, device, flush_bytes):
        self.stream = torch.cuda.Stream(device)
        read, self.flush_bytes = gpu_code.flush(device, flush_bytes)
        self.mark = gpu_code.mark(device)
        self.before, self.after = (
            [torch.cuda.Event(enable_timing=True) for _ in range(PIECE)] for _ in range(2))
        graph, why = capture(read, self.stream)
        # A graph of its own costs the host less than a launch from Python.
        self.flush = graph.replay if graph else read


class _Graph(torch.cuda.CUDAGraph):
    kept = None  # what the launch returned: replays write it


def capture(launch, stream):
    """A graph of one launch, or None and why not."""
    with torch.cuda.stream(stream):
        # Modules are loaded, kernels chosen and memory allocated at the first launch.
        for _ in range(2):
            launch()
    torch.cuda.synchronize()
    graph, why = _Graph(), None
    with torch.cuda.stream(stream):
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            graph.kept = launch()
        except Exception as e:
            why = e
        try:
            graph.capture_end()
        except Exception as e:
            why = why or e
    torch.cuda.synchronize()
    if why is None:
        return graph, None
    lines = str(why).strip().splitlines()
    return None, f"no graph: {type(why).__name__}: {lines[0][:160] if lines else ''}"


def _records(profile):
    """(name, start, end) of all that ran on the device."""
    cuda = torch.autograd.DeviceType.CUDA
    return [(e.name(), e.start_ns(), e.end_ns()) for e in profile.kineto_results.events()
            if e.device_type() == cuda and not e.is_user_annotation() and
            not e.name().endswith((" Sync", "Stream Wait Event"))]


def _sample(rig, lead, work, count):
    """Enqueues `count` samples, piece by piece: the host is ahead of the device within one. Returns
    microseconds by events."""
    out = []
    while len(out) < count:
        piece = min(PIECE, count - len(out))
        for i in range(piece):
            lead()
            rig.before[i].record()
            work()
            rig.after[i].record()
        torch.cuda.current_stream().synchronize()
        out += [1e3 * rig.before[i].elapsed_time(rig.after[i]) for i in range(piece)]
    return out


def _costs(launch):
    """Seconds of one launch: of the host, which may not wait; till the device is done."""
    host, whole = [], []
    for _ in range(3):
        begin = time.perf_counter()
        launch()
        host.append(time.perf_counter() - begin)
        torch.cuda.current_stream().synchronize()
        whole.append(time.perf_counter() - begin)
    return min(host), min(whole)


def _record(rig, launch, work, leads, count):
    """One recording of a launch on the stream, cold samples and warm ones, with marks between them.
    Returns records, and microseconds by events of the two."""
    with torch.autograd.profiler.profile(use_cpu=False, use_device="cuda", use_kineto=True) as p:
        for _ in range(WARM_UP):
            rig.mark()
        torch.cuda.synchronize()
        launch()
        rig.mark()
        cold = _sample(rig, leads[0], work, count)
        rig.mark()
        warm = _sample(rig, leads[1], work, count)
        rig.mark()
        torch.cuda.synchronize()
    return _records(p), cold[WARM_UP:], warm[WARM_UP:]


def _split(records, repeats, lead, on_stream):
    """The stretch of the one launch, cold samples, warm samples. Raises Unclear."""
    parts = spans.sections(records, gpu_code.MARK)
    if len(parts) != 3:
        raise spans.Unclear("the profiler gave no records" if not records else
                            f"only {len(parts)} of 3 stretches have records")
    alone, cold, warm = parts
    cold = spans.last(spans.led(cold, lead, (gpu_code.FLUSH,)), repeats)
    if on_stream:
        warm = spans.led(warm, lead)
    else:
        warm = spans.chunks(warm, len(cold[0]))
        left_out = spans.missing(alone, cold[0])
        if left_out:
            raise spans.Unclear(f"the graph lacks {left_out[:100]}")
    return cold, spans.last(warm, repeats)


def _figures(us_cold, us_warm):
    def spread(us):
        return spans.quantile(us, 0.1), spans.quantile(us, 0.9)
    return {"us_cold": spans.quantile(us_cold, 0.5), "us_warm": spans.quantile(us_warm, 0.5),
            "spread": spread(us_cold), "spread_warm": spread(us_warm), "samples": len(us_cold)}


def _time(rig, launch, graph, repeats, cost):
    """Figures and, where records are not clear, the reason."""
    if graph:
        work, lead, leads = graph.replay, gpu_code.FLUSH, (rig.flush, lambda: None)
    else:
        spin = gpu_code.spin(rig.stream.device, 3e9 * cost + 2e4)
        work, lead, leads = launch, gpu_code.SPIN, (lambda: (rig.flush(), spin()), spin)
    records, events_cold, events_warm = _record(rig, launch, work, leads, repeats + WARM_UP)
    why, ran = None, []
    try:
        cold, warm = _split(records, repeats, lead, graph is None)
        ran = spans.names(cold[-1])
        out = _figures(spans.microseconds(cold), spans.microseconds(warm))
    except spans.Unclear as e:
        why = str(e)
        out = _figures(sorted(events_cold), sorted(events_warm))
    out.update(us_events_cold=spans.quantile(sorted(events_cold), 0.5),
               us_events_warm=spans.quantile(sorted(events_warm), 0.5), kernels=ran,
               launches=len(ran), flush_bytes=rig.flush_bytes)
    return out, why


def _gpu(device):
    device = torch.device(device)
    if device.type != "cuda":
        raise Unsupported(f"only a GPU is timed, not {device}")
    return device


def measure(launch, device, repeats=201, flush_bytes=None, budget=0.5):
    """Times launch(), which enqueues work on torch's current stream and may return tensors. Fewer
    samples are taken, 21 at least, where `repeats` of each kind would take more than `budget`
    seconds. Returns us_cold, us_warm (medians), spread, spread_warm (10th and 90th percentile),
    samples, kernels (names in order of start), launches (how many), us_events_cold, us_events_warm,
    flush_bytes, and how: "graph", or "stream (why no graph)", with ", by events (why)" where the
    profiler's records are of no use."""
    device = _gpu(device)
    with torch.cuda.device(device):
        if (device, flush_bytes) not in _rigs:
            _rigs[device, flush_bytes] = _Rig(device, flush_bytes)
        rig = _rigs[device, flush_bytes]
        torch.cuda.synchronize()  # what inputs wait for may be on another stream
        graph, why = capture(launch, rig.stream)
        with torch.cuda.stream(rig.stream):
            cost, whole = _costs(launch)
            repeats = max(FEWEST, min(repeats, int(budget / (2 * whole + 1e-4))))
            out, unclear = _time(rig, launch, graph, repeats, cost)
            if graph and unclear and unclear.startswith("the graph lacks"):
                graph, why = None, unclear
                out, unclear = _time(rig, launch, None, repeats, cost)
        torch.cuda.synchronize()
    out["how"] = ("graph" if graph else f"stream ({why})") + (
        f", by events ({unclear})" if unclear else "")
    return out


def floors(device, gate=None, **options):
    """What no kernel can beat, as moeref-gpu has it: an empty kernel of 1 and of 288 blocks, and one
    that reads the gate weight and no more: its `bytes`."""
    device = _gpu(device)
    out = {"empty_1": measure(gpu_code.empty(device, 1), device, **options),
           "empty_288": measure(gpu_code.empty(device, 288), device, **options)}
    if gate is not None:
        out["read_gate"] = {**measure(gpu_code.read(device, gate), device, **options),
                            "bytes": gate.numel() * gate.element_size()}
    return out
