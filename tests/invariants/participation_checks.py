"""Which clients take part in a round, as functions of the module that chooses them."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import numpy as np

from chestfed.studies.experiment.stage_2 import Federated
from tests.learning.engines.test_cyclic import make_settings


def list_turns(module: ModuleType, settings: Federated, clients: int, seed: int = 1) -> list[list[int]]:
    """The participants of two stages of three rounds each, two a round."""
    samplers = [module.make_participant_sampler(settings, seed, stage, clients) for stage in (0, 1)]
    return [list(sampler(number)) for sampler in samplers for number in range(3)]


def check_groups_take_turns_over_all_stages(module: ModuleType) -> None:
    assert list_turns(module, make_settings(6), 6) == [[0, 1], [2, 3], [4, 5]] * 2
    assert list_turns(module, make_settings(4), 4) == [[0, 1], [2, 3]] * 3


def check_drawn_clients_are_other_ones_each_time(module: ModuleType) -> None:
    seeds, settings = range(200), make_settings(6).model_copy(update={"participation": "drawn"})
    turns = np.array([list_turns(module, settings, 6, seed) for seed in seeds])  # [seeds, rounds, 2]
    assert (turns[..., 0] < turns[..., 1]).all()
    shares = np.array([np.bincount(turns[:, round].ravel(), minlength=6) for round in range(6)]) / (2 * len(seeds))
    assert abs(shares - 1 / 6).max() < 0.06  # three standard deviations
    for first, second in ((0, 1), (0, 3)):  # of another round, of another stage
        alike = (turns[:, first] == turns[:, second]).all(-1).mean()
        assert alike < 0.2  # 1 / 15


CHECKS: list[Callable[[ModuleType], None]] = [
    check_groups_take_turns_over_all_stages,
    check_drawn_clients_are_other_ones_each_time,
]

MUTANTS: dict[str, tuple[str, str]] = {
    "groups begin again with each stage": ("(before + number) * count", "number * count"),
    "groups overlap": ("(before + number) * count % clients", "(before + number) % (clients - 1)"),
    "the first group takes every turn": ("(before + number) * count % clients + place", "place"),
    "rounds of the next stage count": ("settings.schedule[:stage]", "settings.schedule[: stage + 1]"),
    "a client is drawn twice": ("replace=False", "replace=True"),
    "every stage draws the same": ('"participants", stage, number', '"participants", 0, number'),
    "every round draws the same": ('"participants", stage, number', '"participants", stage, 0'),
    "the last clients are never drawn": (".choice(clients, count", ".choice(clients - 1, count"),
    "the seed is not used": ('numpy_stream(seed, "participants"', 'numpy_stream(1, "participants"'),
}
