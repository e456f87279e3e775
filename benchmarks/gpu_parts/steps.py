"""Steps on tensors of the device: rates by precision and batch, launches, compiling, streams, memory by K."""

from __future__ import annotations

import re
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.gpu_parts import ways
from benchmarks.gpu_parts.bench import Bench, Step, set_precision
from chestfed.learning.algorithms.codasca import Codasca
from chestfed.learning.engines.fleet import LocalFleet
from chestfed.learning.engines.host import Host
from chestfed.learning.engines.server import ServerEngine

PRECISIONS: Final = ("bf16", "tf32", "fp32")
#: Kinds of kernels: the first expression that a name contains.
KINDS: Final = (
    ("copy or fill by the driver", "^Mem(cpy|set)"),
    ("layout of images", "nchw|nhwc"),
    ("batch normalization", "batch_?norm|bn_|BatchNorm"),
    ("pooling", "pool"),
    ("convolution", "conv|wgrad|dgrad|fprop|xmma|cutlass|implicit"),
    ("product of matrices", "gemm|gemv|cublas"),
    ("concatenation", "CatArray"),
    ("many tensors at once", "multi_tensor|foreach"),
    ("copy or conversion", "copy"),
    ("ReLU", "relu|threshold|clamp"),
    ("sum or reduction", "add|reduce"),
)


def measure_ceilings(bench: Bench) -> None:
    """What the device reaches in copies and in products of matrices, and what a launch costs."""
    side, size = (8192, 1 << 30) if bench.is_gpu else (256, 1 << 20)
    source = torch.empty(size, dtype=torch.uint8, device=bench.device)
    target = torch.empty_like(source)
    bench.report("GB/s copied, read and written", bench.rate(lambda: target.copy_(source), 2 * size) / 1e9)
    for name in PRECISIONS:
        set_precision(name)
        kind = torch.bfloat16 if name == "bf16" else torch.float32
        one, other = torch.rand(2, side, side, device=bench.device).to(kind)
        product = bench.rate(lambda one=one, other=other: torch.mm(one, other), 2 * side**3)  # type: ignore[misc]
        bench.report(f"TFLOP/s of a product, {name}", product / 1e12)
    number = torch.zeros(1, device=bench.device)
    bench.report("microseconds of a launch", round(1e6 / bench.rate(lambda: number.add_(1), 1), 2))


def measure_steps(bench: Bench) -> None:
    """A row per precision and batch: the bare network, CODASCA, one graph, LibAUC's way, and their ratios to the bare.

    A way that does not fit into memory is noted.
    """
    for name in PRECISIONS:
        for images in bench.batches:
            autocast = set_precision(name)
            still = ways.Still(bench, images)
            cases: dict[str, Callable[[], Step]] = {
                "bare": lambda n=images, a=autocast: ways.bare(bench, n, autocast=a),  # type: ignore[misc]
                "CODASCA": lambda n=images, a=autocast, s=still: ways.codasca(bench, s, n, autocast=a),  # type: ignore[misc]
                "one graph": lambda n=images, a=autocast: ways.graph(bench, n, autocast=a),  # type: ignore[misc]
                "LibAUC-like": lambda n=images, a=autocast: ways.libauc_like(bench, n, autocast=a),  # type: ignore[misc]
            }
            row: dict[str, Any] = {}
            for way, make in cases.items():
                bench.free()
                try:
                    row[way] = bench.rate(*make())
                    row[f"{way}, MiB"] = bench.peak()
                except torch.cuda.OutOfMemoryError:
                    row[way] = "does not fit"
                if way != "bare" and isinstance(row[way], float) and isinstance(row["bare"], float):
                    row[f"{way} / bare"] = round(row[way] / row["bare"], 3)
                bench.report(f"{name}, batch {images}", row)


def measure_launches(bench: Bench) -> None:
    """Of one step under the profiler: operators, kernels by kind, waits, and the share of time that the GPU idles."""
    images = bench.batches[0]
    for name in PRECISIONS[:2]:
        autocast = set_precision(name)
        still = ways.Still(bench, images)
        cases: dict[str, tuple[Step, int]] = {
            "bare": (ways.bare(bench, images, autocast=autocast), 1),
            "CODASCA": (ways.codasca(bench, still, images, autocast=autocast, window=2), 2),
        }
        for way, ((step, _), steps) in cases.items():
            bench.report(f"{name}, {way}", _profile(bench, step, steps))
    if bench.is_gpu:
        bench.report("lines that wait for the GPU in a round", _find_waits(bench))


def _profile(bench: Bench, step: Callable[[], object], steps: int) -> dict[str, Any]:
    for _ in range(3):
        step()
    bench.wait()
    begin = time.perf_counter()
    step()
    launched = time.perf_counter() - begin
    bench.wait()
    whole = time.perf_counter() - begin
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if bench.is_gpu else [])]
    with profile(activities=activities) as profiled:
        step()
        bench.wait()
    events = profiled.events()
    kernels = [event for event in events if str(event.device_type).endswith("CUDA")]
    host = Counter(event.name for event in events if not str(event.device_type).endswith("CUDA"))
    busy = _measure_busy([(event.time_range.start, event.time_range.end) for event in kernels])
    kinds = Counter[str]()
    for event in kernels:
        kinds[_name_kind(event.name)] += event.time_range.elapsed_us() / 1000 / steps
    return {
        "operators": round(sum(count for name, count in host.items() if name.startswith("aten::")) / steps),
        **{name: round(host[f"aten::{name}"] / steps, 1) for name in ("add_", "copy_", "_to_copy", "_foreach_copy_")},
        "kernels": round(len(kernels) / steps, 1),
        "ms of the step": round(1000 * whole / steps, 3),
        "ms until the last launch": round(1000 * launched / steps, 3),
        "ms that the GPU is busy": round(busy / 1000 / steps, 3),
        "ms by kind of kernel": {kind: round(time, 3) for kind, time in kinds.most_common()},
    }


def _name_kind(kernel: str) -> str:
    return next((kind for kind, words in KINDS if re.search(words, kernel)), "other")


def _measure_busy(spans: list[tuple[float, float]]) -> float:
    """Microseconds in which at least one of these spans runs."""
    busy, end = 0.0, float("-inf")
    for start, stop in sorted(spans):
        busy += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return busy


def _find_waits(bench: Bench) -> list[str]:
    """Lines of a round, its first and last aside, that wait for the GPU."""
    images = bench.batches[0]
    step, _ = ways.codasca(bench, ways.Still(bench, images), images, autocast=set_precision("bf16"), window=4)
    step()
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return sorted({f"{Path(note.filename).name}:{note.lineno}" for note in caught if "synchron" in str(note.message)})


def measure_memory(bench: Bench) -> None:
    """Peak memory and seconds of a round by the number of clients that one process trains, one after the other."""
    images, autocast = 8 if bench.is_gpu else 4, set_precision("bf16")
    rule = Codasca(2, ways.LR, ways.LR, prox=ways.PROX)
    for k in (1, 5, 16):
        bench.free()
        first, network, point = ways.make_client(bench, ways.Still(bench, images), autocast=autocast)
        others = [
            ways.make_client(bench, ways.Still(bench, images), autocast=autocast, network=network)[0]
            for _ in range(k - 1)
        ]
        fleet = LocalFleet([Host(client, lambda *_, **__: rule) for client in (first, *others)])
        engine = ServerEngine(rule, fleet, [1 / k] * k)
        state = engine.start_stage(point, network.buffers())
        state, _ = engine.run_round(state)
        bench.wait()
        begin = time.perf_counter()
        engine.run_round(state)
        bench.wait()
        bench.report(f"K={k}", {"seconds": round(time.perf_counter() - begin, 3), "peak, MiB": bench.peak()})


def measure_streams(bench: Bench) -> None:
    """Two clients' graphs one after the other and on two streams: what training two at a time would gain."""
    autocast = set_precision("bf16")
    for images in (16, 32) if bench.is_gpu else (4,):
        (one, _), (other, _) = (ways.graph(bench, images, autocast=autocast) for _ in range(2))

        def in_turn(one: Callable[[], object] = one, other: Callable[[], object] = other) -> None:
            one()
            other()

        bench.report(f"batch {images}, in turn", bench.rate(in_turn, 2 * images))
        if bench.is_gpu:
            streams = torch.cuda.Stream(), torch.cuda.Stream()

            def together(steps: tuple[Callable[[], object], ...] = (one, other), streams: Any = streams) -> None:
                for step, stream in zip(steps, streams, strict=True):
                    with torch.cuda.stream(stream):
                        step()

            bench.report(f"batch {images}, on two streams", bench.rate(together, 2 * images))


def measure_compiled(bench: Bench) -> None:
    """`runtime.compile` for CODASCA, twice, as for the next K; and torch.compile for the bare network."""
    autocast, images = set_precision("bf16"), bench.batches[0]
    still = ways.Still(bench, images)
    mode = "reduce-overhead" if bench.is_gpu else None
    cases: dict[str, Callable[[], Step]] = {
        "CODASCA": lambda: ways.codasca(bench, still, images, autocast=autocast, compiled=True),
        "CODASCA, the next K": lambda: ways.codasca(bench, still, images, autocast=autocast, compiled=True),
        "bare": lambda: ways.bare(
            bench, images, autocast=autocast, call=lambda module: torch.compile(module, dynamic=False, mode=mode)
        ),
    }
    for name, make in cases.items():
        bench.free()
        begin = time.perf_counter()
        step, count = make()
        step()
        bench.wait()
        bench.report(f"{name}, seconds until the first step", round(time.perf_counter() - begin, 1))
        bench.report(name, bench.rate(step, count))


def measure_heuristics(bench: Bench) -> None:
    """The bare network with and without `torch.backends.cudnn.benchmark`, which chestfed leaves off."""
    for name in PRECISIONS[:2]:
        autocast = set_precision(name)
        for tried in (False, True):
            torch.backends.cudnn.benchmark = tried
            bench.free()
            rate = bench.rate(*ways.bare(bench, bench.batches[0], autocast=autocast))
            bench.report(f"{name}, {'kernels tried' if tried else 'kernels chosen by heuristics'}", rate)
