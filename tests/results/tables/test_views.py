"""What tables and sentences show of results."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

import chestfed
from chestfed.app.commands.study.summary import _list_missing
from chestfed.core.diseases import DISEASES
from chestfed.core.provenance import Origin
from chestfed.reports.pages.page import make_report
from chestfed.results.evaluation.estimates import Estimate
from chestfed.results.evaluation.intervals.interval import Interval
from chestfed.results.evaluation.labeled import Scored
from chestfed.results.tables import settings
from chestfed.results.tables.answer import answer_study
from chestfed.results.tables.collect import load_results
from chestfed.results.tables.frames import Results, Row, list_estimates, make_differences, make_estimates
from chestfed.results.tables.grid import Cell
from chestfed.results.tables.presentations.held_out import (
    Fold,
    _average_seen,
    _list_undefined,
    collect_folds,
    list_fold_metrics,
    write_folds,
)
from chestfed.results.tables.run_folder import RunFolder
from chestfed.results.tables.sentences import describe_chance, describe_origins
from chestfed.results.tables.views import (
    describe_hospitals,
    list_out_of_hospitals,
    list_out_of_mean,
    make_auc_grid,
    make_difference_grid,
    make_disease_grid,
    render_tables,
)
from tests.results.tables.finished_runs import NAMES, labels_and_patients, seal_run, write_run


def print_results(results: Results) -> str:
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(render_tables(results))
    return console.export_text()


def make_row(edema: float, mass: float | None, low: float = 0.4, high: float = 0.9) -> Row:
    mean = edema if mass is None else (edema + mass) / 2
    aucs = (
        Estimate("edema", edema, Interval(low, high), 3, 5, 0),
        Estimate("mass", mass, None, 2 if mass else 0, 6, 1, "" if mass is not None else "no positive image"),
        Estimate("mean", mean, Interval(0.45, 0.85)),
    )
    return Row(1, ("b", "c"), aucs)


def test_hospital_without_a_mean_has_its_reason() -> None:
    """Of a hospital of few patients the disease that comes nearest to counting, of one of one class why."""
    head = {"view": "hospitals", "model": "K=2", "k": 2, "takes_part": True, "images": 24, "patients": 24}

    def at(hospital: str, disease: str, auc: float | None, sick: int | None = None, reason: str = "") -> dict[str, Any]:
        counts = {"positive_patients": sick, "negative_patients": None if sick is None else 24 - sick}
        more = {"hospital": hospital, "disease": disease, "auc": auc, "reason": reason, "in_mean": False}
        return head | counts | more

    rows = [at("a", "edema", 0.6, 3), at("a", "mass", 0.7, 8), at("a", "mean", None)]
    rows += [at("b", "edema", None, 24, "no negative image"), at("b", "mean", None)]
    rows += [at("c", "edema", 0.6, 12), at("c", "mean", 0.6)]
    rows += [at("d", "edema", 0.6, 1), at("d", "mean", None)]
    about = {"batch_norm": None, "untested": {"hospitals": [], "alternatives": []}, "seeds": [1], "methods": []}
    results = Results("t", Origin.REAL, about, make_estimates(rows), make_differences([]))  # type: ignore[arg-type]
    caption = describe_hospitals(results, "hospitals")
    assert "a, at best Mass (8 patients with it); b, Edema: no negative image; d, at best Edema (1 p" in caption
    assert caption.count("test more patients") == 1
    assert "c, " not in caption
    grid = make_disease_grid(results)
    assert grid is not None
    assert grid.lines[1].cells[0] == Cell("-", ("no negative image",))


def test_what_is_left_out_at_hospitals_is_what_the_mean_lacks() -> None:
    """The note and the mean are of the same row; a comparison of methods names no mean that it does not show."""
    rng = np.random.default_rng(0)
    labels = (np.arange(160)[:, None] % [2, 3] == 0).astype(float)
    labels[80:, 0] = np.arange(80) < 2  # at b two patients have an edema, and nothing says who has an atelectasis
    labels[80:, 1] = np.nan
    hospitals = np.repeat(["a", "b"], 80)
    scored = Scored(rng.random(labels.shape), labels, np.arange(160), NAMES, hospitals)
    row = Row.from_scores(2, ["a", "b"], scored, 20)
    at_a = Row.from_scores(2, ["a"], replace(scored.where(hospitals == "a"), hospitals=None), 20)
    assert row.mean.value == pytest.approx(at_a.mean.value)
    rows = [estimate for head in ("x", "y") for estimate in list_estimates([row], view="study", method=head, k=2)]
    rows += list_estimates([at_a], view="hospitals", hospital="c", k=2)
    rows[-3] |= {"in_mean": False}
    about: Any = {"target": "a", "seeds": [1]}
    results = Results("t", Origin.REAL, about, make_estimates(rows), make_differences([]))
    said = "b, Edema (2 patients with it), Atelectasis (not labeled)"
    assert list_out_of_mean(results) == [(said, True)]
    assert _list_missing(results).startswith(f"Left out of the mean: {said}. 10 test patients")


def test_means_over_seeds_leave_out_what_the_study_does() -> None:
    def row(view: str, disease: str, auc: float, seed: int | None = None) -> dict[str, Any]:
        return {"view": view, "disease": disease, "auc": auc, "seed": seed, "in_mean": disease != "edema", "k": 1}

    rows = [row("study", name, 0.7) for name in (*NAMES, "mean")]
    rows += [row("seeds", name, auc, seed) for seed in (1, 2) for name, auc in zip(NAMES, (0.2, 0.8), strict=True)]
    results = Results("t", Origin.REAL, {"seeds": [1, 2]}, make_estimates(rows), make_differences([]))
    assert results.view_counted("seeds")["auc"].tolist() == [0.8, 0.8]


def test_mean_over_sites_trained_on_leaves_out_few_patients() -> None:
    def row(site: str, disease: str, auc: float, in_mean: bool, sick: int | None = None) -> dict[str, Any]:
        about = {"view": "held_out", "model": "x", "site_out": "x", "design": "held_out", "hospital": site}
        about |= {"takes_part": site != "x", "positive_patients": sick, "negative_patients": 50}
        return about | {"disease": disease, "auc": auc, "in_mean": in_mean}

    rows = [row("x", "edema", 0.6, True, 20), row("x", "mass", 0.9, False, 3), row("x", "mean", 0.6, True)]
    rows += [row("a", "edema", 0.7, True, 20), row("a", "mass", 0.2, False, 9), row("a", "mean", 0.7, True)]
    rows += [row("b", "edema", 0.1, False, 4), row("b", "mass", 0.4, False, 9), row("b", "mean", 0.7, True)]
    results = Results("t", Origin.REAL, {}, make_estimates(rows), make_differences([]))  # type: ignore[typeddict-item]
    averages = _average_seen(results.list_estimates("held_out"))
    assert averages == pytest.approx([0.7, 0.3, 0.7])
    texts = " ".join(_list_undefined(results))
    assert all(f"{name} (" in texts for name in ("x, Mass", "at b, Edema")), texts


def test_rare_disease_has_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the page and in the terminal's tables, as on the first screen; the differences' mean counts without it."""
    monkeypatch.setattr("chestfed.results.evaluation.labeled.LEAST_PATIENTS", 10)
    labels, patients = labels_and_patients()
    sick = patients[np.nan_to_num(labels[:, 0]) == 1]
    labels[~np.isin(patients, np.unique(sick)[:4]) & ~np.isnan(labels[:, 0]), 0] = 0
    folder = write_run(tmp_path / "run", labels=labels)
    results = load_results(RunFolder(folder))
    reason = "Edema (4 patients with it)"
    assert reason in print_results(results)
    assert "test more patients, unless the hospital has too few" in " ".join(print_results(results).split())
    assert "It takes more test patients" in answer_study(results).sentence
    assert reason in make_report(RunFolder(folder)).html
    grid = make_difference_grid(results.gains("study"))
    assert grid.columns[-1] == Cell("mean", ("over 1",))


def test_disease_of_one_class_has_its_reason(tmp_path: Path) -> None:
    labels, _ = labels_and_patients()
    labels[:, 0] = 0
    results = load_results(RunFolder(write_run(tmp_path / "run", labels=labels)))
    edema, atelectasis, mean = results.view("study", k=1).to_dict("records")
    assert np.isnan([edema["auc"], edema["low"]]).all()
    assert edema["reason"] == "no positive image"
    assert mean["auc"] == atelectasis["auc"]
    assert "Edema: no positive image" in print_results(results)
    assert pd.read_csv(tmp_path / "run" / "table.csv")["auc"].isna().tolist() == [True, False, False] * 2


def test_main_table_has_a_column_per_disease(tmp_path: Path) -> None:
    results = load_results(RunFolder(write_run(tmp_path / "run")))
    grid = make_auc_grid(results)
    assert [column.text for column in grid.columns] == ["K", "added", "Edema", "Atelectasis", "mean"]
    labels, _ = labels_and_patients()
    counts = [(int((labels[:, j] == 1).sum()), int((labels[:, j] == 0).sum())) for j in (0, 1)]
    assert [column.below for column in grid.columns[2:4]] == [(f"n+ {ill}", f"n− {well}") for ill, well in counts]
    assert [(line.head, line.cells[0].text) for line in grid.lines] == [("K=1", "site0"), ("K=2", "site1")]
    for k, line in zip((1, 2), grid.lines, strict=True):
        rows = results.view("study", k=k)
        assert [cell.text for cell in line.cells[1:]] == [f"{auc:.3f}" for auc in rows["auc"]]
        ends = [f"[{low:.3f}, {high:.3f}]" for low, high in zip(rows["low"], rows["high"], strict=True)]
        assert [cell.below for cell in line.cells[1:]] == [(text,) for text in ends]


def test_a_k_adds_all_clients_since_the_last(tmp_path: Path) -> None:
    for ks, added in (((1, 4), ["site0", "site1, site2, site3"]), ((2, 6), ["site0, site1", "4 clients"])):
        results = load_results(RunFolder(write_run(tmp_path / str(ks), ks=ks)))
        assert results.view("study", disease="mean")["added"].to_list() == added


@pytest.mark.parametrize(
    ("data", "words"), [("real", ""), ("synthetic", "SYNTHETIC hos"), ("mixed", "PARTLY SYNTHETIC")]
)
def test_table_names_its_origin(tmp_path: Path, data: str, words: str) -> None:
    results = replace(load_results(RunFolder(write_run(tmp_path / "run"))), origin=Origin(data))
    text = print_results(results)
    assert words in text
    assert ("SYNTHETIC" in text.splitlines()[0]) == bool(words)


@pytest.mark.usefixtures("unchecked")
def test_mixed_study_lists_its_hospitals(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", ks=(1, 2))
    cards = [{"name": name, "data": data} for name, data in (("a", "synthetic"), ("test images", "real"))]
    for name, more in (("study.json", {}), ("sites.json", {"sites": cards})):
        about = json.loads((folder / name).read_text()) | Origin.MIXED.keys() | more
        (folder / name).write_text(json.dumps(about))
    assert describe_origins(load_results(RunFolder(folder))) == "synthetic: a; real: test images"


@pytest.mark.usefixtures("unchecked")
def test_the_papers_figures_stand_below(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    about = json.loads((folder / "study.json").read_text())
    about["configuration"]["published"] = {"source": "a paper", "auc": {"codasca": {"edema": 0.9, "mean": 0.8123}}}
    about["configuration"]["published"] |= {"largest_window": {}, "tolerance": 0.005}
    (folder / "study.json").write_text(json.dumps(about))
    seal_run(folder)
    results = load_results(RunFolder(folder))
    assert results.view("study", k=2)["paper_auc"].tolist() == pytest.approx([0.9, np.nan, 0.8123], nan_ok=True)
    assert results.view("study", k=1)["paper_auc"].isna().all()
    text = print_results(results)
    assert all(words in text for words in ("0.8123", "paper, K=2", "paper: a paper"))


def test_paper_averages_means_but_for_four() -> None:
    """As published; docs/study.md names the four."""
    otherwise = []
    for model in ("densenet121", "densenet161"):
        rows = settings.read_paper_table(model)
        assert [row["sources"] for row in rows] == [1, 2, 3, 4, 5]
        for row in rows:
            if abs(row["mean"] - np.mean([row[disease] for disease in DISEASES])) > 1.01e-4:
                otherwise.append((model, int(row["sources"])))
    assert otherwise == [("densenet121", 1), ("densenet161", 2), ("densenet161", 3), ("densenet161", 4)]


@pytest.mark.parametrize(("held_out", "shown"), [(None, True), ({"sites": ["vindr"]}, False)])
def test_held_out_study_has_no_paper_table(held_out: object, shown: bool) -> None:
    configuration = {"model": {"name": "densenet121"}, "held_out": held_out}
    run: Any = SimpleNamespace(origin=Origin.REAL, configuration=configuration)
    assert settings._is_paper_table(run, Row(1, ("chexpert",), ())) == shown


def test_a_row_is_read_as_it_was_written() -> None:
    row = make_row(0.1 + 0.2, None)
    assert Row.from_plain(json.loads(json.dumps(row.to_plain(), allow_nan=False))) == row


def make_study(*rows: tuple[str, str, bool, Row]) -> Results:
    """Results at hospitals, of model, hospital, whether it takes part, and row."""
    estimates = [
        entry
        for model, hospital, takes_part, row in rows
        for entry in list_estimates([row], view="hospitals", model=model, hospital=hospital, takes_part=takes_part)
    ]
    return Results("t", Origin.REAL, {"seeds": [1]}, make_estimates(estimates), make_differences([]))


def test_chance_names_low_means_and_diseases() -> None:
    low, unclear, good = make_row(0.2, 0.6, 0.1, 0.4), make_row(0.3, 0.6, 0.2, 0.6), make_row(0.7, 0.8)
    text = describe_chance(make_study(("K=1", "a", True, low), ("K=2", "a", True, unclear), ("K=3", "a", True, good)))
    assert "K=1 at a 0.400 (Edema: 95% interval below 0.5)" in text
    assert "K=2 at a 0.450" in text
    assert text.count("Edema") == 1
    assert "K=3" not in text
    assert describe_chance(make_study(("K=1", "a", True, good), ("K=1", "b", False, low))) == ""  # b trained nothing
    assert "K=1 at a 0.500" in describe_chance(make_study(("K=1", "a", True, make_row(0.5, 0.5, 0.4, 0.6))))


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_reversed_labels_are_named_on_page(tmp_path: Path) -> None:
    for expected in (False, True):
        folder = write_run(tmp_path / str(expected), reversed_labels=expected)
        summary = chestfed.Study.load(folder).summary
        assert "Does adding hospitals help" in summary
        for text in (summary, make_report(RunFolder.open(folder)).html):
            assert ("Labels may be reversed" in text) == expected


def test_held_out_sites_are_beside_seen_ones(tmp_path: Path) -> None:
    seen = {"b": make_row(0.8, 0.6), "c": make_row(0.9, None)}
    fold = Fold("a", 1234, "run-a", make_row(0.7, None).with_reasons({"mass": "a does not label it"}), seen)
    about = {"model": "small DenseNet", "protocol": "frontal-image", "batch_norm": None}
    results = collect_folds([fold], "Held out", Origin.SYNTHETIC, about)
    folder = write_folds(results, [fold], tmp_path)
    assert folder.name.startswith("synthetic-held-out-")
    frame = pd.read_csv(folder / "held_out.csv")
    assert set(frame["data"]) == {"synthetic"}
    assert frame["hospital"].tolist() == ["a"] * 3 + ["b"] * 3 + ["c"] * 3
    assert frame["takes_part"].tolist() == [False] * 3 + [True] * 6
    missing = frame[frame["disease"] == "mass"].set_index("hospital")["reason"]
    assert missing["a"] == "a does not label it"  # not what the labels of the fold look like
    assert missing["c"] == "no positive image"
    assert frame.set_index(["hospital", "disease"]).loc[("b", "mean"), "auc"] == pytest.approx(0.7)
    text = print_results(results)
    for words in ("SYNTHETIC hospitals", "1,234", "0.700", "[0.40, 0.90]", "3+ / 5-", "sites trained on", "0.850"):
        assert words in text
    assert "a, Mass: a does not label it" in text
    assert list_fold_metrics(results) == pytest.approx({"held_out_auc_mean_a": 0.7, "trained_on_auc_mean_a": 0.725})


def test_settings_say_what_differs() -> None:
    facts: settings.MethodFacts = {
        **{"method": "slow", "algorithm": "fedavg", "objective": "auc", "chosen": "by hand"},  # type: ignore[typeddict-item]
        **{"settings": {"local_lr": 0.1, "window": 8, "stage_steps": 1000}, "options": {"algorithm.prox": 0.1}},
        **{"rounds": 2.0, "gradients_per_client": 16.0, "megabytes": 1.0},
    }
    other: settings.MethodFacts = {**facts, "method": "fast", "settings": {**facts["settings"], "local_lr": 1.0}}
    text = settings.state_settings([facts, other])
    assert "local_lr" in text
    assert "window" not in text
    assert "by hand" in text
    assert settings.state_settings([]) == ""
    grid = settings.make_settings_grid([facts, other, {**facts, "steps": [96, 112]}, {**facts, "steps": [96, 96]}])
    assert [line.cells[3].text for line in grid.lines] == ["1000", "1000", "96 to 112", "96"]
    assert {len(line.cells) + 1 for line in grid.lines} == {len(grid.columns)}


def test_partial_mean_of_hospital_is_named() -> None:
    def row(place: str, disease: str, in_mean: bool | None, auc: float | None, positives: int) -> dict[str, Any]:
        patients = {"positive_patients": positives, "negative_patients": 90 if positives else 0}
        patients |= {"positives": patients["positive_patients"], "negatives": patients["negative_patients"]}
        return {"place": place, "model": "K=1", "disease": disease, "in_mean": in_mean, "auc": auc, **patients}

    rows = [
        row("mine", "edema", False, 0.6, 8),
        row("mine", "atelectasis", True, 0.6, 26),
        row("mine", "mean", None, 0.6, 0),
        row("whole", "edema", True, 0.6, 20),
        row("whole", "mean", None, 0.6, 0),
        row("blind", "edema", False, None, 0),
        row("blind", "atelectasis", True, 0.6, 26),
        row("blind", "mean", None, 0.6, 0),
        row("none", "edema", False, 0.6, 3),
        row("none", "mean", None, None, 0),
    ]
    results: Any = SimpleNamespace(list_estimates=lambda view: rows)
    named = {place: tuple(left_out) for place, left_out in list_out_of_hospitals(results).items()}
    assert named == {"mine": ("mine, Edema (8 patients with it)", True), "blind": ("blind, Edema (not labeled)", False)}
