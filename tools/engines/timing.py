"""Times what a kernel enqueues, by the spans that gpu/timing_cuda.c times ours by (DESIGN section 8).

A sample is one replay of a CUDA graph of one launch, from the start of its first kernel, copy or
memset to the end of its last, as CUPTI's records have them; torch's profiler hands them out in ns.
Kernels that overlap (programmatic dependent launch, several streams) count once. Cold: a kernel
before it in the stream reads 2.5 times the L2. The replay is a launch of its own, so that the edge
between them is an ordinary one, whatever attribute its first kernel has. Warm: replays follow each
other.

What cannot be captured is timed on the stream, and `how` says why. There a kernel that only spins
stands before each launch, for three times as long as the host needs to enqueue it, and longer. A
sample counts if the host was done within that time from before the spin was enqueued: then it was
done before the spin ended, and a busy host is no part of the span. Where fewer than 21 are, all count,
and `how` says that the host was late: it is slow, or waits for the device.

Medians by events around the replay stand beside it. They hold the launch of the graph, too, and what
a busy host leaves idle; they are the figures where the profiler gave no records, or none that are
clear, and `how` says so. Spans by records of a graph do not depend on the host: it hands the whole
graph over at once.
"""
import time

import torch

import gpu_code
import spans
from engine import Unsupported

WARM_UP, PIECE, FEWEST = 5, 32, 21
SPIN_MORE, SPIN_STEP = 100_000, 10_000  # ns; steps of the device's clock, a doorbell on its way
_rigs = {}


class _Rig:
    """What all measurements of a device share."""

    def __init__(self, device, flush_bytes):
        self.stream = torch.cuda.Stream(device)
        # Kept: it holds the memory that a replay of its graph reads.
        read, self.flush_bytes = self.read, _ = gpu_code.flush(device, flush_bytes)
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
    microseconds by events, and the ns that the host took for each."""
    out, host = [], []
    while len(out) < count:
        piece = min(PIECE, count - len(out))
        for i in range(piece):
            begin = time.perf_counter_ns()
            lead()
            rig.before[i].record()
            work()
            host.append(time.perf_counter_ns() - begin)
            rig.after[i].record()
        torch.cuda.current_stream().synchronize()
        out += [1e3 * rig.before[i].elapsed_time(rig.after[i]) for i in range(piece)]
    return out[WARM_UP:], host[WARM_UP:]


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
    Returns records, and of the two what _sample gives."""
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
    return _records(p), cold, warm


def _split(records, repeats, lead, on_stream):
    """The stretch of the one launch, cold samples, warm samples. Raises Unclear."""
    parts = spans.sections(records, gpu_code.MARK)
    if len(parts) != 3:
        raise spans.Unclear("the profiler gave no records" if not records else
                            f"only {len(parts)} of 3 stretches have records")
    alone, cold, warm = parts
    cold = spans.led(cold, lead, (gpu_code.FLUSH,))
    if on_stream:
        warm = spans.led(warm, lead)
        # What the host took is known sample by sample: none may be missing among them.
        if {len(cold), len(warm)} != {repeats + WARM_UP}:
            raise spans.Unclear(f"{len(cold)} and {len(warm)} samples of {repeats + WARM_UP} were recorded")
        cold = spans.last(cold, repeats)
    else:
        cold = spans.last(cold, repeats)
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
    """Figures and, where records are not clear or the host was late, what is to be said of it."""
    ns = None
    if graph:
        work, lead, leads = graph.replay, gpu_code.FLUSH, (rig.flush, lambda: None)
    else:
        ns = min(int(3e9 * cost) + SPIN_MORE, gpu_code.LONGEST)
        spin = gpu_code.spin(rig.stream.device, ns)
        work, lead, leads = launch, gpu_code.SPIN, (lambda: (rig.flush(), spin()), spin)
    records, (events_cold, host_cold), (events_warm, host_warm) = _record(rig, launch, work, leads,
                                                                          repeats + WARM_UP)
    why, late, ran = None, None, []
    try:
        cold, warm = _split(records, repeats, lead, graph is None)
        ran = spans.names(cold[-1])
        if ns is not None:
            cold, late_cold = spans.in_time(cold, host_cold, ns - SPIN_STEP, FEWEST)
            warm, late_warm = spans.in_time(warm, host_warm, ns - SPIN_STEP, FEWEST)
            if repeats - max(late_cold, late_warm) < FEWEST:
                late = f"host late in {late_cold} and {late_warm} of {repeats}"
        out = _figures(spans.microseconds(cold), spans.microseconds(warm))
    except spans.Unclear as e:
        why = str(e)
        out = _figures(sorted(events_cold), sorted(events_warm))
    out.update(us_events_cold=spans.quantile(sorted(events_cold), 0.5),
               us_events_warm=spans.quantile(sorted(events_warm), 0.5), kernels=ran,
               launches=len(ran), flush_bytes=rig.flush_bytes)
    return out, why, late


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
    flush_bytes, and how: "graph", or "stream (why no graph)", with ", host late in N and M of K" (cold
    and warm) where it may be part of the span, and ", by events (why)" where the profiler's records are
    of no use."""
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
            out, unclear, late = _time(rig, launch, graph, repeats, cost)
            if graph and unclear and unclear.startswith("the graph lacks"):
                graph, why = None, unclear
                out, unclear, late = _time(rig, launch, None, repeats, cost)
        torch.cuda.synchronize()
    out["how"] = ("graph" if graph else f"stream ({why})") + (
        f", {late}" if late else "") + (
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
