"""Cuts by patient: disjoint, complete, reproducible, and fair to rare positives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chestfed.core.diseases import DISEASES
from chestfed.core.errors import ConfigError
from chestfed.data.sites.config import SPLITS, VIEWS
from chestfed.data.sites.label_files.source import Source
from chestfed.data.sites.partition import (
    assign_splits,
    cut_into_clients,
    deal_evenly,
    deal_patients,
    hold_out,
    join_splits,
    split_patients,
    splits_text,
)
from chestfed.data.sites.table import SiteTable
from tests.cases import assert_refused, each
from tests.data.sites.own_tables import config


def make_table(patients: list[int], labels: np.ndarray) -> SiteTable:
    count = len(patients)
    frame = pd.DataFrame(
        {
            "image": [f"{number}.png" for number in range(count)],
            "patient": [f"p{patient}" for patient in patients],
            "study": "s",
            "view": pd.Categorical(["pa"] * count, categories=VIEWS),
            "split": pd.Categorical(["train"] * count, categories=SPLITS),
            "row": np.arange(count) + 2,
            **{disease: labels[:, place].astype(np.float32) for place, disease in enumerate(DISEASES)},
            "repeats": np.full(count, 2, dtype=np.int64),
        }
    )
    return SiteTable("site", "Site", Path(), False, DISEASES, frame)


@st.composite
def tables(draw: st.DrawFn) -> SiteTable:
    patients = draw(st.lists(st.integers(0, 30), min_size=8, max_size=80).filter(lambda ids: len(set(ids)) >= 8))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    labels = rng.choice([0.0, 1.0, np.nan], p=[0.7, 0.2, 0.1], size=(len(patients), len(DISEASES)))
    return make_table(patients, labels)


NO_SKEW: dict[str, float | None] = {"dirichlet": None, "shards": None, "quantity": None}


@given(tables(), st.integers(2, 4), st.integers(0, 9), st.sampled_from(sorted(NO_SKEW)))
def test_partition_keeps_patients_whole(table: SiteTable, clients: int, seed: int, key: str) -> None:
    how: dict[str, Any] = NO_SKEW | {key: 1}
    owner, _ = deal_patients(table, clients, seed, **how)
    assert set(owner) == set(range(clients))
    frame = table.frame.assign(owner=owner)
    assert (frame.groupby("patient")["owner"].nunique() == 1).all()
    order = np.random.default_rng(seed).permutation(len(frame))
    mixed, _ = deal_patients(table.with_frame(table.frame.iloc[order].reset_index(drop=True)), clients, seed, **how)
    assert (mixed == owner[order]).all()  # from the patients, not from the order of rows


def test_partitions_differ_as_they_say() -> None:
    patients, labels = list(range(400)), np.zeros((400, len(DISEASES)))
    labels[:200, 0] = 1

    def count(**how: Any) -> tuple[np.ndarray, np.ndarray]:
        owner, _ = deal_patients(make_table(patients, labels), 4, 1, **(NO_SKEW | how))
        return np.bincount(owner, minlength=4), np.bincount(owner, labels[:, 0], minlength=4)

    sizes, positives = count(dirichlet=1000.0)
    assert abs(sizes - 100).max() < 15
    assert abs(positives - 50).max() < 10
    sizes, positives = count(dirichlet=0.05)
    assert (np.minimum(positives, sizes - positives) < 0.05 * sizes).sum() >= 2  # clients of one class
    sizes, positives = count(shards=1)
    assert sizes.tolist() == [100] * 4
    assert sorted(positives.tolist()) == [0, 0, 100, 100]
    sizes, positives = count(quantity=0.3)
    assert sizes.max() > 2 * sizes.min()
    assert abs(positives / sizes - 0.5).max() < 0.1
    first, other = (deal_patients(make_table(patients, labels), 4, s, **(NO_SKEW | {"dirichlet": 0.5})) for s in (1, 2))
    assert (other[0] != first[0]).any()
    even = deal_evenly(make_table(patients, labels), 4, 1)
    assert np.bincount(even, labels[:, 0]).tolist() == [50] * 4


def test_discarded_draws_are_counted() -> None:
    table = make_table(list(range(100)), np.zeros((100, len(DISEASES))))
    how: dict[str, Any] = NO_SKEW | {"dirichlet": 0.3}
    counts = []
    for seed in range(6):
        owner, discarded = deal_patients(table, 4, seed, **how, least=12)
        first, none = deal_patients(table, 4, seed, **how, least=0)
        assert none == 0
        assert (owner == first).all() == (discarded == 0)
        counts.append(discarded)
    assert max(counts) > 0


def test_partition_without_a_patient_is_refused() -> None:
    table = make_table(list(range(5)), np.zeros((5, len(DISEASES))))
    with assert_refused(ConfigError, "too few patients", site="site"):
        deal_patients(table, 6, 1, dirichlet=None, shards=1, quantity=None)
    with assert_refused(ConfigError, "too few patients", site="site"):
        deal_patients(table, 2, 1, dirichlet=1.0, shards=None, quantity=None, least=4)


@given(tables(), st.integers(1, 8), st.integers(0, 9), st.sampled_from(["alike", "unlike"]))
def test_no_patient_goes_to_two_clients(table: SiteTable, clients: int, seed: int, cut: str) -> None:
    parts = cut_into_clients(table, clients, seed, cut)
    assert len(parts) == clients
    assert sorted(row for part in parts for row in part.frame["row"]) == sorted(table.frame["row"])
    patients = [set(part.frame["patient"]) for part in parts]
    assert sum(len(group) for group in patients) == len(set.union(*patients))
    assert all(group for group in patients)
    assert max(map(len, patients)) - min(map(len, patients)) <= len(DISEASES) + 1


@given(tables(), st.floats(0.1, 0.6), st.integers(0, 9))
def test_no_held_out_patient_trains(table: SiteTable, fraction: float, seed: int) -> None:
    train, test = hold_out(table, fraction, seed)
    assert not set(train.frame["patient"]) & set(test.frame["patient"])
    assert sorted([*train.frame["row"], *test.frame["row"]]) == sorted(table.frame["row"])
    assert set(test.frame["split"]) == {"test"}
    assert set(test.frame["repeats"]) == {1}
    assert set(train.frame["split"]) == {"train"}


@given(tables(), st.integers(0, 9), st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(table: SiteTable, seed: int, shuffle: object) -> None:
    order = list(range(len(table.frame)))
    shuffle.shuffle(order)  # type: ignore[attr-defined]
    shuffled = table.with_frame(table.frame.iloc[order].reset_index(drop=True))
    for client, other in zip(cut_into_clients(table, 3, seed), cut_into_clients(shuffled, 3, seed), strict=True):
        assert set(client.frame["row"]) == set(other.frame["row"])


@each("cut", ["alike", "unlike"])
def test_spellings_of_one_patient_stay_whole(cut: str) -> None:
    labels = (np.arange(40) % 3 == 0).astype(float)[:, None].repeat(len(DISEASES), axis=1)
    table = make_table(list(range(40)), labels)
    names = [f"{('HC-', 'hc 0')[row % 2]}{row // 2}" for row in range(40)]
    table = table.with_frame(table.frame.assign(patient=names))
    parts = [*cut_into_clients(table, 3, 1, cut), *hold_out(table, 0.3, 1)]
    people = [{row // 2 for row in part.frame["row"] - 2} for part in parts]
    assert [2 * len(group) for group in people] == [len(part.frame) for part in parts]


def rare_table() -> SiteTable:
    rng = np.random.default_rng(5)
    labels = (rng.random((2000, len(DISEASES))) < [0.01, 0.05, 0.005, 0.1, 0.1]).astype(float)
    return make_table(list(range(2000)), labels)


@each("seed", range(5))
def test_rare_positives_are_spread(seed: int) -> None:
    table = rare_table()
    positives = np.stack([np.nansum(part.labels(), axis=0) for part in cut_into_clients(table, 4, seed)])
    assert (positives.max(axis=0) - positives.min(axis=0) <= 0.2 * positives.sum(axis=0) / 4 + 2).all()
    assert (positives >= 1).all()


@each(("carriers", "held"), [(40, 2), (3, 1)])
def test_carriers_are_held_out_by_share(carriers: int, held: int) -> None:
    labels = (np.arange(100) < carriers).astype(float)[:, None] * [1, 0, 0, 0, 0]
    for seed in range(3):
        _, test = hold_out(make_table(list(range(100)), labels), 0.05, seed)
        assert test.labels().sum() == held


def test_unlike_clients_differ_in_diseases() -> None:
    rng = np.random.default_rng(1)
    labels = (rng.random((800, len(DISEASES))) < [0.02, 0.05, 0.1, 0.15, 0.2]).astype(float)
    table = make_table(list(range(800)), labels)

    def spread(cut: str) -> np.ndarray:
        """The coefficient of variation of each disease's prevalence over the clients."""
        shares = np.array([(part.labels() == 1).mean(axis=0) for part in cut_into_clients(table, 8, 1, cut)])
        return shares.std(axis=0) / shares.mean(axis=0)

    assert (spread("unlike") > 0.5).all()
    assert (spread("alike") < 0.25).all()
    sizes = [len(part.frame) for part in cut_into_clients(table, 8, 1, "unlike")]
    assert max(sizes) - min(sizes) <= 1
    first, again, other = (cut_into_clients(table, 8, seed, "unlike")[0].frame["row"].tolist() for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize("fraction", [0.1, 0.2, 0.5])
def test_a_held_out_part_has_its_share(fraction: float) -> None:
    table = rare_table()
    held = split_patients(table.frame, DISEASES, fraction, 1, "x")
    assert held.sum() == pytest.approx(fraction * len(held), abs=2)
    total, positives = np.nansum(table.labels(), axis=0), np.nansum(table.labels()[held], axis=0)
    assert positives == pytest.approx(fraction * total, abs=float(2 + 0.05 * total.max()))
    assert (positives >= 1).all()


@each("fraction", [0.0145, 0.05, 0.1, 0.15, 0.3])
@each("carriers", [0, 120])
def test_a_part_has_its_whole_number(carriers: int, fraction: float) -> None:
    labels = np.zeros((120, len(DISEASES)))
    labels[:carriers, 1] = 1
    held = split_patients(make_table(list(range(120)), labels).frame, DISEASES, fraction, 1, "x")
    assert held.sum() == int(120 * fraction + 1e-9)


@each("carriers", [1, 2])
def test_few_carriers_are_shared_if_they_can(carriers: int) -> None:
    labels = np.zeros((20, len(DISEASES)))
    labels[:carriers, 0] = 1
    held = split_patients(make_table(list(range(20)), labels).frame, DISEASES, 0.1, 1, "x")
    assert (held[:carriers].sum(), held.sum()) == (carriers - 1, 2)


def test_a_carrier_of_two_counts_for_both() -> None:
    labels = np.zeros((8, len(DISEASES)))
    labels[:2, 0] = labels[:4, 1] = 1
    for seed in range(10):
        for part in cut_into_clients(make_table(list(range(8)), labels), 2, seed):
            assert part.frame[list(DISEASES[:2])].sum().tolist() == [1, 2]
            assert len(part.frame) == 4


def test_given_splits_are_joined_by_patient(tmp_path: Path) -> None:
    raw = pd.DataFrame({"patient": ["b", "a", None, "b", "c", "d"], "file": "x.csv", "row": range(2, 8)})
    path = tmp_path / "splits.csv"
    path.write_text("patient,split\na,train\nb,test\nc,valid\nc,test\nd,exam\n", encoding="utf-8")
    source = Source(config(tmp_path, {}), tmp_path)
    splits = join_splits(raw, path, source)["split"].fillna("").tolist()
    assert splits == ["test", "train", "", "test", "valid", ""]
    places = [(problem.kind, problem.file, problem.row) for problem in source.problems]
    expected = [("unknown split", "splits.csv", 6), ("duplicate patient", "splits.csv", 5)]
    assert places == [*expected, ("patient without a split", "x.csv", 7)]
    assert join_splits(raw, tmp_path / "no.csv", source) is raw


def test_shares_come_from_training_patients() -> None:
    frame = make_table(list(range(100)), np.zeros((100, len(DISEASES)))).frame
    frame.loc[:19, "split"] = "test"
    splits = assign_splits(frame, DISEASES, {"valid": 0.25, "test": 0.5}, 0, "site")
    assert (splits[:20] == "test").all()
    assert (frame["split"][20:] == "train").all()
    assert [int((splits[20:] == name).sum()) for name in ("train", "valid", "test")] == [20, 20, 40]


def test_no_share_gets_no_carrier() -> None:
    labels = np.zeros((20, len(DISEASES)))
    labels[:2, 0] = 1
    splits = assign_splits(make_table(list(range(20)), labels).frame, DISEASES, {"valid": 0, "test": 0.5}, 0, "site")
    assert (splits == "valid").sum() == 0


def test_parts_have_the_columns_of_the_table() -> None:
    table = make_table([0, 1, 2], np.zeros((3, len(DISEASES))))
    for part in (*cut_into_clients(table, 3, 1), *hold_out(table, 0.4, 1)):
        assert list(part.frame) == list(table.frame)
        assert list(part.frame.index) == list(range(len(part.frame)))


def test_splits_are_written_by_patient() -> None:
    assert splits_text({"p2": "test", "p1": "train"}) == "patient,split\np2,test\np1,train\n"


def test_seed_and_name_change_the_cut() -> None:
    frame = rare_table().frame
    cut = split_patients(frame, DISEASES, 0.5, 1, "x")
    assert (cut == split_patients(frame, DISEASES, 0.5, 1, "x")).all()
    assert (cut != split_patients(frame, DISEASES, 0.5, 2, "x")).any()
    assert (cut != split_patients(frame, DISEASES, 0.5, 1, "y")).any()


def test_two_carriers_go_to_two_clients() -> None:
    labels = np.zeros((20, len(DISEASES)))
    labels[3, 2] = labels[11, 2] = labels[3, 0] = 1
    for seed in range(10):
        first, second = cut_into_clients(make_table(list(range(20)), labels), 2, seed)
        assert first.frame["consolidation"].sum() == second.frame["consolidation"].sum() == 1


def test_too_few_patients_are_refused() -> None:
    table = make_table([1, 1, 2], np.zeros((3, len(DISEASES))))
    with assert_refused(ConfigError, "too few patients", patients=2):
        cut_into_clients(table, 3, 1)
    alone = make_table([1, 1], np.zeros((2, len(DISEASES))))
    with assert_refused(ConfigError, "too few patients", patients=1):
        hold_out(alone, 0.2, 1)
