"""`partition` of a site: clients that are hospitals of their own, with patients of their own for every purpose."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from chestfed.core.errors import ConfigError
from chestfed.data.sites import load_site_config, open_site
from chestfed.data.sites.table import SiteTable
from chestfed.studies.experiment.loading import load_pipeline
from chestfed.studies.experiment.resolved import identity
from chestfed.studies.training.data.experiment import load_images
from chestfed.studies.training.data.sites import OWN_TEST, TEST, TRAIN, VALID, client_tables, open_sites
from tests.cases import assert_refused
from tests.studies.training.tiny_studies import FILE, SMALL, read_rows

ONE_SITE = [*SMALL, "sites=[{config: ../site_configs/synthetic/chestxray8.yaml, clients: 3, partition: {quantity: 1}}]"]
ONE_SITE += ["k=[1,3]", "diseases=[pleural_effusion]", "evaluation.split=test"]
FRACTIONS = ["sites.0.test_fraction=0.4", "sites.0.validation_fraction=0.3", "sites.0.clients=2", "k=[1,2]"]
FRACTIONS += ["sites.0.partition={quantity: 9}"]


@pytest.mark.parametrize("more", [[], FRACTIONS], ids=["own splits", "fractions"])
def test_parts_are_hospitals_of_their_own(home: Path, more: list[str]) -> None:
    pipeline = load_pipeline(FILE, [*ONE_SITE, *more]).resolve()
    rows = read_rows(pipeline, FILE, home / "synthetic_hospitals")
    names = [f"chestxray8-{number}" for number in range(1, pipeline.k[-1] + 1)]
    assert [site.name for site in rows.sites] == names == list(rows.joins)
    assert [site.clients for site in rows.sites] == [(name,) for name in names]
    people = [set(site.table.frame["patient"]) for site in rows.sites]
    assert not any(one & other for one, other in combinations(people, 2))
    for site in rows.sites:
        parts = [set(site.select(role).frame["patient"]) for role in (TRAIN, TEST, OWN_TEST, VALID)]
        assert not any(one & other for one, other in combinations(parts, 2))
        assert parts[0]
        assert parts[1] | parts[2]
    opened = open_sites(pipeline, FILE, home / "synthetic_hospitals")
    assert all(bool(len(site.find(VALID))) == bool(more) for site in opened)
    (data,) = load_images([rows], home / "cache")
    assert [client.name for client in data.clients] == names
    assert set(data.hospitals) == set(names)
    assert (home / "synthetic_hospitals" / ".chestfed_cache").exists() or not list((home / "cache").glob("*-1"))
    entry, whole = pipeline.sites[0], rows.sites[0].table
    again = client_tables(_open_whole(home), entry, pipeline.seed, pipeline.split, target=True)
    assert [name for name, _ in again] == names
    trained = [len(site.find(TRAIN)) for site in rows.sites]
    assert [len(part.frame) for _, part in again] == trained
    assert whole.part_of == "chestxray8"


def test_partition_is_in_the_identity_if_set(home: Path) -> None:
    plain = load_pipeline(FILE, [*SMALL, "sites.0.clients=2"]).resolve()
    skewed = load_pipeline(FILE, [*SMALL, "sites.0.clients=2", "sites.0.partition={shards: 1}"]).resolve()
    assert "partition" not in identity(plain)["sites"][0]
    assert identity(skewed)["sites"][0]["partition"]["shards"] == 1


@pytest.mark.parametrize(
    "wrong",
    [
        ["sites.0.partition={dirichlet: 1}"],
        ["sites.0.clients=2", "sites.0.partition={dirichlet: 1, shards: 2}"],
        ["sites.0.clients=2", "sites.0.partition={dirichlet: 0}"],
        ["sites.0.clients=2", "sites.0.cut=unlike", "sites.0.partition={shards: 1}"],
        ["sites.1.clients=2", "sites.1.control=noise", "sites.1.partition={shards: 1}"],
        ["sites.0.clients=2", "sites.0.partition={ages: [40, 60]}"],
        ["sites.0.clients=3", "sites.0.partition={ages: [60, 40]}"],
    ],
)
def test_partition_that_says_nothing_is_refused(wrong: list[str]) -> None:
    with assert_refused(ConfigError, "invalid value"):
        load_pipeline(FILE, [*SMALL, *wrong])


def test_training_is_skewed_and_test_is_not(home: Path) -> None:
    settings = [*ONE_SITE, "sites.0.partition={shards: 1}", "sites.0.clients=2", "k=[1,2]"]
    rows = read_rows(load_pipeline(FILE, settings).resolve(), FILE, home / "synthetic_hospitals")
    tests, others = rows.select_scored()

    def count_carriers(table: SiteTable) -> int:
        frame = table.frame
        return int((frame.groupby("patient")["pleural_effusion"].max() == 1).sum())

    trained = [count_carriers(site.select(TRAIN)) for site in rows.sites]
    tested = [count_carriers(table) for table in others.values()]
    assert min(trained) < max(trained) / 2
    assert abs(np.diff(tested)).max() <= 1
    assert list(tests) == ["chestxray8-1"]


@pytest.mark.parametrize("ages", [(50,), (40, 60)], ids=str)
def test_parts_by_age_hold_these_ages(home: Path, ages: tuple[int, ...]) -> None:
    count = len(ages) + 1
    settings = [*ONE_SITE, f"sites.0.partition={{ages: {[*ages]}}}", f"sites.0.clients={count}", f"k=[1,{count}]"]
    rows = read_rows(load_pipeline(FILE, settings).resolve(), FILE, home / "synthetic_hospitals")
    whole = _open_whole(home).frame
    assert sum(len(site.table.frame) for site in rows.sites) == len(whole)
    youngest = whole.groupby("patient", observed=True)["age"].min()
    for site, low, high in zip(rows.sites, (0, *ages), (*ages, 200), strict=True):
        expected = youngest[(youngest >= low) & (youngest < high)].index
        assert set(site.table.frame["patient"]) == set(expected)
        assert site.find(TRAIN).size
        assert site.find(TEST).size + site.find(OWN_TEST).size


def test_ages_that_nobody_has_are_refused(home: Path) -> None:
    settings = [*ONE_SITE, "sites.0.partition={ages: [3]}", "sites.0.clients=2", "k=[1,2]"]
    with assert_refused(ConfigError, "too few patients", site="chestxray8", patients=0):
        open_sites(load_pipeline(FILE, settings).resolve(), FILE, home / "synthetic_hospitals")


def _open_whole(home: Path) -> SiteTable:
    config = load_site_config(FILE.parent / "../site_configs/synthetic/chestxray8.yaml")
    return open_site(config, home / "synthetic_hospitals")
