"""Part 6: the time of forward and backward."""

from __future__ import annotations

import contextlib
import platform
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch

from chestfed.objectives.auc_margin import AucMargin
from libauc_parts.library import libauc_loss
from libauc_parts.losses import ROWS, draw


@dataclass(frozen=True)
class Speed:
    """Median milliseconds of forward and backward, and the median of the paired ratios."""

    loss: str
    n: int
    diseases: int
    libauc_ms: float
    chestfed_ms: float
    libauc_over_chestfed: float


def speed(loss: str, n: int, diseases: int, repeats: int) -> Speed:
    """Forward and backward of both, float32, one after the other with the first one alternating."""
    batch = draw(0, "usual", 0.5, diseases, torch.float32)
    rows = torch.arange(n) % ROWS
    scores, labels = batch.scores[rows].clone(), batch.labels[rows].clone()
    ratios = [float(p) for p in batch.p]
    if loss == "AUCMLoss":
        theirs = libauc_loss("AUCMLoss", imratio=ratios[0])
    else:
        theirs = libauc_loss("MultiLabelAUCMLoss", imratio=ratios, num_labels=diseases)
    ours = AucMargin(batch.p)
    inputs = scores.clone().requires_grad_()
    extra, dual = torch.cat([batch.a, batch.b]).requires_grad_(), batch.alpha.clone().requires_grad_()

    actions = (
        lambda: theirs(inputs, labels, auto=False).sum().backward(),
        lambda: ours.loss_of_scores(inputs, labels, extra, dual).backward(),
    )
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(-20, repeats):
        for which in (0, 1) if turn % 2 else (1, 0):
            begin = time.perf_counter()
            actions[which]()
            if turn >= 0:
                times[which].append(1000 * (time.perf_counter() - begin))
    ratio = median(left / right for left, right in zip(*times, strict=True))
    return Speed(loss, n, diseases, median(times[0]), median(times[1]), ratio)


def cpu_name() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
