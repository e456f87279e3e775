"""What LibAUC's losses keep between calls and in a checkpoint."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch

from benchmarks.libauc_parts.library import libauc_loss, libauc_optimizer
from benchmarks.libauc_parts.problem import Fact


def state_facts() -> Iterator[Fact]:
    """For parts 1 and 3."""
    scores, labels = torch.linspace(0, 1, 16).reshape(8, 2), torch.tensor([[1.0, 0.0], [0.0, 1.0]]).repeat(4, 1)
    labels[1, 1] = 0
    one = libauc_loss("AUCMLoss", imratio=0.1)
    one(scores[:, 0], labels[:, 0])
    yield Fact(
        "1",
        "AUCMLoss(imratio=0.1).p after one call with auto=True, used by later calls with auto=False",
        f"{float(one.p):.3f}",
        float(one.p) == 0.5,
    )

    ratios = [0.1, 0.1]
    libauc_loss("MultiLabelAUCMLoss", imratio=ratios, num_labels=2)(scores, labels)
    observed = ", ".join(f"{float(ratio):.3f}" for ratio in ratios)
    yield Fact(
        "3",
        "MultiLabelAUCMLoss v1 with imratio [0.1, 0.1]: the caller's list after one call",
        observed,
        float(ratios[0]) == 0.5,
    )

    for name, settings, kept in (("AUCMLoss", {}, True), ("MultiLabelAUCMLoss", {"num_labels": 2}, False)):
        restored = restored_alpha(name, settings)
        yield Fact(
            "3",
            f"{name}: parameters; alpha of 0.7 after loading the state of loss and PESG",
            f"{len(list(libauc_loss(name, **settings).parameters()))}; {restored:.1f}",
            (abs(restored - 0.7) < 1e-6) == kept,
        )


def restored_alpha(name: str, settings: dict[str, Any]) -> float:
    """The alpha of a fresh loss after loading the saved state of a loss and its optimizer; 0.7 when saved."""
    weights = torch.zeros(1, requires_grad=True)
    saved, fresh = (libauc_loss(name, **settings) for _ in range(2))
    saved.alpha.data.fill_(0.7)
    state = copy.deepcopy((saved.state_dict(), libauc_optimizer("PESG", [weights], saved).state_dict()))
    optimizer = libauc_optimizer("PESG", [weights], fresh)
    fresh.load_state_dict(state[0])
    optimizer.load_state_dict(state[1])
    return float(fresh.alpha.detach()[0])
