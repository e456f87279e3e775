"""Partitions of a site's patients, against what each key says of them; 400 patients, half of them ill."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import numpy as np

from chestfed.data.sites.table import SiteTable
from tests.data.sites.test_partition import make_table

CLIENTS = 4


def deal(
    module: ModuleType, repeats: int = 1, seed: int = 1, least: int = 1, **how: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The client of each of 400 patients with so many images each, and per client how many there are, and are ill."""
    table, patients = make_patients(repeats)
    keys = {"dirichlet": None, "shards": None, "quantity": None} | how
    rows, _ = module.deal_patients(table, CLIENTS, seed, **keys, least=least)
    owner = rows[np.unique(patients, return_index=True)[1]]
    assert (rows == owner[patients]).all()  # whole patients
    ill = np.arange(len(owner)) < len(owner) // 2
    return owner, np.bincount(owner, minlength=CLIENTS), np.bincount(owner[ill], minlength=CLIENTS)


def make_patients(repeats: int) -> tuple[SiteTable, np.ndarray]:
    patients = np.repeat(np.arange(400), repeats)
    table = make_table(patients.tolist(), (patients[:, None] < 200) * np.array([1.0, 0, 0, 0, 0]))
    frame = table.frame.assign(patient=[f"p{patient:03}" for patient in patients])
    youngest = 20 + patients % 60
    return table.with_frame(
        frame.assign(age=(youngest + np.arange(len(patients)) % repeats).astype(np.float32))
    ), patients


def check_a_large_alpha_is_even(module: ModuleType) -> None:
    _, sizes, ill = deal(module, repeats=3, dirichlet=1000.0)
    assert abs(sizes - 100).max() < 15
    assert abs(ill - 50).max() < 10


def check_a_small_alpha_leaves_one_class(module: ModuleType) -> None:
    shares = []
    for seed in range(8):
        _, sizes, ill = deal(module, seed=seed, dirichlet=0.05)
        shares += (np.minimum(ill, sizes - ill) / np.maximum(sizes, 1)).tolist()
    assert np.mean(np.array(shares) < 0.05) > 0.6


def check_shards_are_runs_of_one_class(module: ModuleType) -> None:
    for shards in (1, 3):
        owner, sizes, _ = deal(module, shards=shards)
        assert sizes.tolist() == [100] * CLIENTS
        assert owner.tolist() != deal(module, seed=2, shards=shards)[0].tolist()
    assert sorted(deal(module, shards=1)[2].tolist()) == [0, 0, 100, 100]


def check_quantities_leave_classes_even(module: ModuleType) -> None:
    for seed in range(4):
        _, sizes, ill = deal(module, seed=seed, quantity=0.5)
        assert sizes.max() > 2 * sizes.min()
        assert abs(ill - sizes / 2).max() <= 1
    _, sizes, _ = deal(module, quantity=1000.0)
    assert abs(sizes - 100).max() < 15


def check_a_draw_that_leaves_too_few_is_repeated(module: ModuleType) -> None:
    for seed in range(8):
        assert deal(module, seed=seed, least=40, quantity=1.0)[1].min() >= 40


def check_ages_are_of_the_youngest_image(module: ModuleType) -> None:
    table, patients = make_patients(3)
    owner = module.deal_by_age(table, [40, 60], 1)
    youngest = 20 + patients % 60
    assert (owner == (youngest >= 40).astype(int) + (youngest >= 60)).all()


CHECKS: list[Callable[[ModuleType], None]] = [
    check_a_large_alpha_is_even,
    check_a_small_alpha_leaves_one_class,
    check_shards_are_runs_of_one_class,
    check_quantities_leave_classes_even,
    check_a_draw_that_leaves_too_few_is_repeated,
    check_ages_are_of_the_youngest_image,
]

MUTANTS: dict[str, tuple[str, str]] = {
    "alpha of the label skew is one": ("np.full(clients, dirichlet)", "np.full(clients, 1.0)"),
    "alpha of the quantity skew is one": ("np.full(clients, quantity or 1.0)", "np.ones(clients)"),
    "the quantity skew is a label skew": (
        "of_class = shares if dirichlet is None else draw.dirichlet(np.full(clients, dirichlet))",
        "of_class = draw.dirichlet(np.full(clients, dirichlet or quantity))",
    ),
    "one draw for all classes": (
        "of_class = shares if dirichlet is None else draw.dirichlet(np.full(clients, dirichlet))",
        "of_class = shares",
    ),
    "shards of patients in any order": (
        "order = np.lexsort((draw.permutation(len(turn)), turn))",
        "order = draw.permutation(len(turn))",
    ),
    "shards are dealt in their order": (
        "owners = draw.permutation(np.repeat(np.arange(clients), shards))",
        "owners = np.repeat(np.arange(clients), shards)",
    ),
    "the first draw is taken": ("if sizes.min() >= least:\n            return", "if True:\n            return"),
    "the seed is not used": ('numpy_stream(seed, table.name, "partition"', 'numpy_stream(0, table.name, "partition"'),
    "images are dealt, not patients": (
        "if sizes.min() >= least:\n            return part[of_row]",
        "if sizes.min() >= least:\n            return draw.permutation(part[of_row])",
    ),
    "the oldest image decides": ("groupby(of_row).min()", "groupby(of_row).max()"),
    "an age itself is in the part below": ("np.digitize(youngest, ages)", "np.digitize(youngest, ages, right=True)"),
}
