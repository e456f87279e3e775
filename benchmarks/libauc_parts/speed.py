"""Part 6: milliseconds of forward and backward, float32, in alternation."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.libauc_parts.library import libauc_loss
from benchmarks.libauc_parts.losses import ROWS, draw
from benchmarks.speed_parts.pairs import paired
from chestfed.learning.objectives.auc_margin import AucMargin

#: LibAUC's loss and the number of diseases.
TIMED = (("AUCMLoss", 1), ("MultiLabelAUCMLoss", 1), ("MultiLabelAUCMLoss", 5))


def time_losses() -> dict[str, Any]:
    """Both losses at 32 and 4096 images."""
    return {
        f"{name}, n = {n}, J = {diseases}": _time(name, n, diseases) for name, diseases in TIMED for n in (32, 4096)
    }


def _time(name: str, n: int, diseases: int) -> Any:
    batch = draw(0, "usual", 0.5, diseases, torch.float32)
    rows = torch.arange(n) % ROWS
    labels, inputs = batch.labels[rows].clone(), batch.scores[rows].clone().requires_grad_()
    ratios = [float(p) for p in batch.p]
    single = name == "AUCMLoss"
    libauc = libauc_loss(name, **({"imratio": ratios[0]} if single else {"imratio": ratios, "num_labels": diseases}))
    ours = AucMargin(batch.p)
    extra, dual = torch.cat([batch.a, batch.b]).requires_grad_(), batch.alpha.clone().requires_grad_()
    cases = {
        "chestfed": lambda: ours.loss_of_scores(inputs, labels, extra, dual).backward(),
        "LibAUC": lambda: libauc(inputs, labels, auto=False).sum().backward(),
    }
    return paired(cases, repeats=300)
