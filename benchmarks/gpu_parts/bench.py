"""The device of a benchmark, and rates on it."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

#: A step, and the images that it trains on.
Step = tuple[Callable[[], object], int]

DISEASES = 5


@dataclass(frozen=True)
class Bench:
    """Where and how long is measured: `report(key, value)` keeps a figure, whatever happens afterwards.

    A smoke test takes a small network and two steps of each; `workers` are threads that read images.
    """

    device: torch.device
    report: Callable[[str, Any], None]
    smoke: bool = False
    seconds: float = 1.2
    workers: int = 8
    batches: tuple[int, ...] = (32, 64, 128)

    @property
    def is_gpu(self) -> bool:
        return self.device.type == "cuda"

    @property
    def size(self) -> int:
        """Side of an image in pixels."""
        return 64 if self.smoke else 320

    @property
    def window(self) -> int:
        """Local steps of a round."""
        return 2 if self.smoke else 16

    def wait(self) -> None:
        """Wait until the device has done what was queued."""
        if self.is_gpu:
            torch.cuda.synchronize(self.device)

    def free(self) -> None:
        """Return memory that nothing holds any more; the peak is counted anew."""
        gc.collect()
        if self.is_gpu:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self.device)

    def peak(self) -> int | None:
        """MiB at most since `free`."""
        return torch.cuda.max_memory_allocated(self.device) >> 20 if self.is_gpu else None

    def rate(self, step: Callable[[], object], images: int, seconds: float | None = None) -> float:
        """Images a second: the median of three runs of as many steps, after two that are not counted.

        The number of steps is chosen first, so that the queue of a GPU does not grow while the clock runs.
        """
        for _ in range(2):
            step()
        self.wait()
        once = self._time(step, 1)
        share = (0.0 if self.smoke else self.seconds if seconds is None else seconds) / 3
        count = max(1, min(2000, round(share / max(once, 1e-6))))
        times = sorted(self._time(step, count) for _ in range(3))
        return float(f"{images * count / times[1]:.4g}")

    def _time(self, step: Callable[[], object], count: int) -> float:
        begin = time.perf_counter()
        for _ in range(count):
            step()
        self.wait()
        return time.perf_counter() - begin


def set_precision(name: str) -> bool:
    """Set TF32 of this process: fp32 has it nowhere, tf32 and bf16 everywhere; whether autocast is to be on."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = name != "fp32"
    return name == "bf16"
