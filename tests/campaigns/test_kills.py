"""Studies that are killed at random moments, and commands at the same time in one folder."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from chestfed.core.bundled import bundled
from tests.campaigns.children import STUDY, Campaign, Child, list_differences, rerun, start, wait

pytestmark = pytest.mark.campaign
#: Studies, and kills of each before it is left to end.
STUDIES, KILLS = 25, 4
SITE = str(bundled("site_configs") / "synthetic" / "chexpert.yaml")
CHECK = ("site", "check", SITE, "--data", "synthetic_hospitals")
TOGETHER = ("--out", "together", "--cache", "new-cache")


@pytest.mark.parametrize("number", range(STUDIES))
def test_a_killed_study_resumes(campaign: Campaign, number: int) -> None:
    """The first kill falls into the making of MLflow's store, the others anywhere."""
    chance, words = random.Random(number), (*STUDY, "--out", "killed")
    start_study = partial(start, words, campaign.home)
    kill_making_store(start_study, campaign.home / "killed", chance)
    for _ in range(KILLS - 1):
        wait(start_study(), kill_after=chance.uniform(0, 6))
    rerun(campaign, words)
    assert read_statuses(campaign.home / "killed") == ["FINISHED"] * 3
    shutil.rmtree(campaign.home / "killed")


def kill_making_store(starting: Callable[[], Child], out: Path, chance: random.Random) -> None:
    """Kill a process that makes MLflow's store in a folder while it does, whenever that is."""
    for most in (1.0, 0.5, 0.25, *[0.1] * 20):
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        part = out / ".mlflow.db.part"
        wait(starting(), kill_after=chance.uniform(0, most), counted_from=part.exists)
        if part.exists():
            return
    raise RuntimeError("MLflow's store is made faster than it can be interrupted")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (STUDY, STUDY),
        (STUDY, (*STUDY, "--seed", "2")),
        ((*STUDY, "--methods", "coda_plus"), (*STUDY, "--methods", "fedavg")),
        (CHECK, CHECK),
    ],
    ids=["same study", "two seeds", "two algorithms", "two checks"],
)
def test_commands_run_at_the_same_time(campaign: Campaign, first: tuple[str, ...], second: tuple[str, ...]) -> None:
    children = [start((*words, *(TOGETHER if words != CHECK else ())), campaign.home) for words in (first, second)]
    results = [wait(child) for child in children]
    for result in results:
        result.check(0, 1, 2)
        assert "tracking stopped" not in result.text
    assert any(result.code == 0 for result in results)
    if first == second == STUDY:
        assert list_differences(campaign.home / "together", campaign.sound) == []
    for name in ("together", "new-cache"):
        shutil.rmtree(campaign.home / name, ignore_errors=True)


def read_statuses(out: Path) -> list[str]:
    """Of the runs in MLflow's store: of a study and its two K."""
    with closing(sqlite3.connect(out / "mlflow.db")) as store:
        return sorted(status for (status,) in store.execute("SELECT status FROM runs"))
