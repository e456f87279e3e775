"""Statements about the search behind the tables of methods, against its stored trials."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

from chestfed.core.bundled import bundled
from chestfed.studies.experiment.loading import load_pipeline

ROOT = Path(__file__).parents[2]
NAMES = ("films", "phantoms", "digits")
#: The words of benchmarks/results/methods.md, with its numbers as groups.
SENTENCE = re.compile(
    r"eight settings, chosen by the mean validation AUC of two training seeds.*"
    r"Step sizes begin between (?P<low>[\d.]+) and (?P<high>[\d.]+);.*"
    r"so that (?P<outside>\d+) of the (?P<all>\d+) settings are outside "
    r"\((?P<least>[\d.]+) to (?P<most>[\d.]+), once (?P<once>[\d,]+)\), two of them chosen "
    r"\(on the phantoms: (?P<scgdam>[\d.]+) of `local_scgdam`, (?P<centralized>[\d.]+) of `centralized_auc`\)\. "
    r"For `coda_plus` there nothing was tried between (?P<below>[\d.]+), which was chosen, and (?P<above>[\d.]+).*"
    r"`ditto`'s best setting there \(step (?P<ditto>[\d.]+), validation AUC (?P<best>[\d.]+)\) diverged with the "
    r"first of the ten seeds, and the table has its second best \((?P<second>[\d.]+)\)\."
)


@pytest.fixture(scope="module")
def said() -> dict[str, float]:
    text = " ".join((ROOT / "benchmarks/results/methods.md").read_text(encoding="utf-8").split())
    found = SENTENCE.search(text)
    assert found is not None
    return {name: float(value.replace(",", "")) for name, value in found.groupdict().items()}


def read_trials(name: str) -> pd.DataFrame:
    """One row per trial of a search."""
    table = pd.read_csv(ROOT / f"benchmarks/results/{name}_methods_tuning.csv")
    assert set(table["seed"]) == {1001, 1002}
    return table.drop_duplicates(["algorithm", "trial"])


@pytest.fixture(scope="module")
def trials() -> dict[str, pd.DataFrame]:
    return {name: read_trials(name) for name in NAMES}


def test_said_range_of_steps_was_searched(said: dict[str, float], trials: dict[str, pd.DataFrame]) -> None:
    ranges = [load_pipeline(bundled("pipelines") / f"{name}_methods.yaml").search["local_lr"] for name in NAMES]
    assert ranges == [[said["low"], said["high"], "log"]] * 3
    every = pd.concat(trials.values())
    assert set(every.groupby(["data", "algorithm"])["trial"].nunique()) <= {8, 16}  # films and digits are both real
    steps = every["local_lr"]
    outside = steps[(steps < said["low"]) | (steps > said["high"])].sort_values()
    assert (len(outside), len(steps)) == (said["outside"], said["all"])
    assert outside.iloc[0] == pytest.approx(said["least"], rel=0.1)
    assert (outside.iloc[-1], round(outside.iloc[-2])) == (said["once"], said["most"])


def test_said_steps_outside_were_chosen(said: dict[str, float], trials: dict[str, pd.DataFrame]) -> None:
    best = {name: table[table["best_so_far"]].set_index("algorithm")["local_lr"] for name, table in trials.items()}
    outside = {
        (name, algorithm): step
        for name, steps in best.items()
        for algorithm, step in steps.items()
        if not said["low"] <= step <= said["high"]
    }
    chosen = {"local_scgdam": said["scgdam"], "centralized_auc": said["centralized"]}
    assert outside == pytest.approx({("phantoms", name): step for name, step in chosen.items()}, abs=0.05)
    for name in NAMES:
        tuned = load_pipeline(bundled("pipelines") / f"{name}_methods_tuned.yaml")
        tested = {method.name: method.local_lr for method in tuned.methods}
        others = {method for method, step in tested.items() if step != best[name][method]}
        assert others == ({"ditto"} if name == "phantoms" else set())


def test_said_second_best_was_tested(said: dict[str, float]) -> None:
    table = pd.read_csv(ROOT / "benchmarks/results/phantoms_methods_tuning.csv").query("algorithm == 'ditto'")
    means = table.groupby("local_lr")["validation_auc"].mean().sort_values(ascending=False)
    tuned = load_pipeline(bundled("pipelines") / "phantoms_methods_tuned.yaml")
    assert list(means.index[:2]) == [said["ditto"], tuned.resolve("ditto").federated.local_lr]
    assert list(means.iloc[:2]) == pytest.approx([said["best"], said["second"]], abs=5.1e-4)


def test_said_gap_in_steps_is_there(said: dict[str, float], trials: dict[str, pd.DataFrame]) -> None:
    tried = trials["phantoms"].query("algorithm == 'coda_plus'")
    assert tried[tried["best_so_far"]]["local_lr"].item() == pytest.approx(said["below"], abs=0.0051)
    assert tried["local_lr"][tried["local_lr"] > said["below"] + 0.01].min() == pytest.approx(said["above"], abs=0.05)
