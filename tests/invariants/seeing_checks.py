"""What a client shows an objective that sees earlier models, as functions of the client's module."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import torch

from tests.learning.engines.test_seeing import build, feddecorr, load, moon, run_plainly, train


def check_moon_sees_start_and_previous(module: ModuleType) -> None:
    ends, client = train(build(load("moon").MOON, mu=2.0), 3, module.NetworkClient)
    for end, expected in zip(ends, run_plainly(moon, 3), strict=True):
        torch.testing.assert_close(end, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(client.memory[0], ends[-1], rtol=0, atol=0)  # what a checkpoint keeps


def check_feddecorr_sees_its_features(module: ModuleType) -> None:
    ends, client = train(build(load("feddecorr").FEDDECORR, beta=0.7), 2, module.NetworkClient)
    for end, expected in zip(ends, run_plainly(feddecorr, 2), strict=True):
        torch.testing.assert_close(end, expected, rtol=0, atol=1e-12)
    assert not client.memory.numel()


CHECKS: list[Callable[[ModuleType], None]] = [check_moon_sees_start_and_previous, check_feddecorr_sees_its_features]

MUTANTS: dict[str, tuple[str, str]] = {
    "the start moves with the weights": (
        "if self._start is None:\n            self._start =",
        "if True:\n            self._start =",
    ),
    "the first round's start stays": ("self._steps, self._start = 0, None", "self._steps = 0"),
    "the previous model is the start": (
        "previous = self.memory[0] if self.memory.any() else self._start",
        "previous = self._start",
    ),
    "before the first round there is a model of zeros": (
        "previous = self.memory[0] if self.memory.any() else self._start",
        "previous = self.memory[0]",
    ),
    "start and previous are exchanged": (
        '{"start": self._start, "previous": previous}',
        '{"start": previous, "previous": self._start}',
    ),
    "the round's start is kept for the next": (
        "self.memory = self._network.parameters()[None]",
        "self.memory = self._start[None]",
    ),
    "features are those of the last model seen": (
        "Seen(features[0].to(logits), others)",
        "Seen(([o.features for o in others.values()] or [0 * features[0]])[-1].to(logits), others)",
    ),
}
