"""What a GPU does with DenseNet121 at 320x320:

    python -m benchmarks.gpu training --save gpu.json      (at most eight minutes)
    python -m benchmarks.gpu study --save gpu_study.json   (ten minutes: both stages at the paper's size)
    python -m benchmarks.gpu training --smoke              (a small network on the CPU: only that it runs)

`training`: per precision and batch, images a second of training steps on tensors that are on the device already; the
same with chestfed's own input from a cache on disk; the share of the rate that is lost to it, an upper bound of the
device's waiting; TFLOP a second, and their share of what a large product of matrices reaches; peak memory; and beside
them a loop as LibAUC's scripts have it, with a DataLoader of OpenCV and 32-bit images to the device. A batch that does
not fit is noted. No file of real patients is read.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.__main__ import machine
from benchmarks.gpu_study import measure_study
from benchmarks.speed_parts.training import SIZE, Films, batches, cached
from chestfed.data.images.augment import Augment
from chestfed.data.images.cache import CachedImages
from chestfed.learning.engines.client import NetworkClient
from chestfed.learning.models import FlatModule, build_model, network_options
from chestfed.learning.objectives.cross_entropy import CrossEntropy

LIMIT = 8 * 60  # seconds, of which the last measurements keep to what is left
PRECISIONS = ("float32", "tf32", "bf16")


def main(arguments: list[str] | None = None) -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["training", "study"])
    parser.add_argument("--smoke", action="store_true", help="a small network, two steps each, on the CPU")
    parser.add_argument("--workers", type=int, default=8, help="threads that read, and processes of the DataLoader")
    parser.add_argument("--minutes", type=float, default=10.0, help="of the study")
    parser.add_argument("--save", type=Path)
    options = parser.parse_args(arguments)
    if not options.smoke and not torch.cuda.is_available():
        parser.error("torch sees no CUDA device; --smoke runs on the CPU")
    name = "CPU, smoke test: the figures mean nothing" if options.smoke else torch.cuda.get_device_name()
    if options.part == "study":
        measured = measure_study(0.0 if options.smoke else 60 * options.minutes, smoke=options.smoke)
    else:
        measured = {"rows": list(measure_training(options))}
    report = {"device": name, "machine": machine(), **measured}
    print(json.dumps(report, indent=1))
    if options.save:
        options.save.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def measure_training(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A row per batch and precision, while there is time."""
    device, begin = torch.device("cpu" if options.smoke else "cuda"), time.monotonic()
    with cached(16 if options.smoke else 4096) as images:
        for batch, precision in product((4,) if options.smoke else (32, 64, 128, 256), PRECISIONS):
            if time.monotonic() - begin > LIMIT - 60:
                return
            row: dict[str, Any] = {"precision": precision, "batch": batch}
            try:
                yield row | measure(images, precision, batch, device, options)
            except torch.cuda.OutOfMemoryError:
                yield row | {"does not fit": True}


def measure(
    images: CachedImages, precision: str, batch: int, device: torch.device, options: argparse.Namespace
) -> dict[str, Any]:
    """One row of the table."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    if device.type == "cuda":
        torch.cuda.empty_cache()  # of the row before, which may not have fitted
        torch.cuda.reset_peak_memory_stats(device)
    model = network_options("small", pool=8, blocks=[1]) if options.smoke else network_options("densenet121")
    network = FlatModule(build_model(model, 5, 1), device, channels_last=True)
    weights, nothing = network.parameters(), torch.zeros(0, device=device)
    input_ = batches(images, Augment(), batch, options.workers, device)
    client = NetworkClient(
        "a", input_, network, CrossEntropy(torch.ones(5, device=device)), device=device, autocast=precision == "bf16"
    )
    random = torch.rand(batch, 3, SIZE, SIZE, device=device)

    def on_random() -> None:
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
            network.module(random).float().square().mean().backward()
        weights.sub_(network.grad, alpha=1e-4)
        network.grad.zero_()

    def whole() -> None:
        weights.sub_(client(weights, nothing)[0], alpha=1e-4)

    seconds = 0.0 if options.smoke else 8.0
    with client.training(network.buffers()), FlopCounterMode(display=False) as counter:
        on_random()
    flops = counter.get_total_flops()
    try:
        with client.training(network.buffers()):
            alone = rate(on_random, batch, seconds, device)
            with_input = rate(whole, batch, seconds, device)
            peak = 0 if options.smoke else torch.cuda.max_memory_allocated(device)
            loop = rate(published(images, batch, network, device, options), batch, seconds, device)
    finally:
        client.close()
    tera = alone * flops / batch / 1e12
    product_rate = matrix_rate(precision, device, 256 if options.smoke else 8192)
    return {
        "images a second on tensors of the device": round(alone, 1),
        "images a second with input": round(with_input, 1),
        "share of the rate lost to input": round(max(0.0, 1 - with_input / alone), 3),
        "TFLOP a second": round(tera, 3),
        "share of a product of matrices": round(tera / product_rate, 3),
        "a DataLoader loop, images a second": round(loop, 1),
        "ratio to that loop": round(with_input / loop, 2),
        "peak memory, MiB": peak >> 20,
    }


def published(
    images: CachedImages, batch: int, network: FlatModule, device: torch.device, options: argparse.Namespace
) -> Callable[[], None]:
    """A step of a loop in the manner of LibAUC's scripts, in float32."""
    films = Films(images.read(range(len(images.records))))
    loader = DataLoader(films, batch, num_workers=0 if options.smoke else options.workers, drop_last=True)
    parameters, given = [part for part in network.module.parameters() if part.requires_grad], iter(loader)

    def step() -> None:
        nonlocal given
        pixels = next(given, None)
        if pixels is None:
            given = iter(loader)
            pixels = next(given)
        network.grad.zero_()
        network.module(pixels.to(device)).square().mean().backward()
        with torch.no_grad():
            for part in parameters:
                part.copy_(part - 1e-4 * (part.grad + 1e-5 * part))  # type: ignore[operator]

    return step


def matrix_rate(precision: str, device: torch.device, side: int) -> float:
    """TFLOP a second of a product of two square matrices: what the device reaches, beside what its maker states."""
    kind = torch.bfloat16 if precision == "bf16" else torch.float32
    one, other = torch.rand(2, side, side, device=device).to(kind)
    return rate(lambda: torch.mm(one, other), 2 * side**3, 0.0 if device.type == "cpu" else 1.0, device) / 1e12


def rate(step: Callable[[], object], batch: int, seconds: float, device: torch.device) -> float:
    """Images a second over at least two steps and so many seconds, after three that are not counted.

    The device is waited for before the clock starts and before it stops, not between steps.
    """
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    for _ in range(3):
        step()
    wait()
    begin, count = time.perf_counter(), 0
    while count < 2 or time.perf_counter() - begin < seconds:
        step()
        count += 1
    wait()
    return batch * count / (time.perf_counter() - begin)


if __name__ == "__main__":
    main()
