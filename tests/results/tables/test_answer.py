"""The answer of a study: its sentence, what it means, and where it is shown."""

from __future__ import annotations

import io
import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

import chestfed
from chestfed.app.commands.study.show import _repeat
from chestfed.app.commands.study.summary import _explain_intervals, render_summary
from chestfed.core.provenance import Origin
from chestfed.reports.pages.page import make_report
from chestfed.results.evaluation.joining.calibrated import compare_calibration
from chestfed.results.evaluation.joining.recognized import count_recognized
from chestfed.results.evaluation.labeled import Column
from chestfed.results.evaluation.metrics import sensitivity_at_specificity
from chestfed.results.tables.answer import Answer, _list_sides, answer_study, state_gains, summarize_seeds
from chestfed.results.tables.collect import collect, load_results
from chestfed.results.tables.frames import Results, make_differences, make_estimates
from chestfed.results.tables.run_folder import RunFolder
from chestfed.results.tables.settings import state_settings
from chestfed.results.tables.views import make_hospital_grid
from tests.results.tables.finished_runs import write_run

ABOUT = {"images": 202, "patients": 200, "adds_hospitals": True, "target": "a", "batch_norm": None}


def make_results(low: float, high: float, *, seeds: int = 1, p: float | None = None, **about: Any) -> Results:
    """A study whose mean AUC goes from 0.7 to 0.7 plus the middle of this interval."""
    change = (low + high) / 2
    head = {"view": "study", "seeds": seeds}
    rows = [
        {**head, "model": f"K={k}", "k": k, "disease": name, "auc": auc}
        for k, auc in ((1, 0.7), (5, 0.7 + change))
        for name in ("edema", "mean")
    ]
    gain = {"view": "study", "model": "K=5", "reference": "K=1", "disease": "mean", "difference": change, "reason": ""}
    each = "{" + ", ".join(f'"{seed}": {change}' for seed in range(seeds)) + "}" if seeds > 1 else ""
    gain |= {"low": low, "high": high, "p": p, "of_seeds": each, "auc_reference": 0.7, "detectable": 0.03}
    plain = ABOUT | {"seeds": list(range(seeds))} | about
    return Results("t", Origin.REAL, plain, make_estimates(rows), make_differences([gain]))


@pytest.mark.parametrize(
    ("low", "high", "seeds", "p", "word"),
    [
        (0.01, 0.05, 1, None, "Probably:"),
        (-0.05, -0.01, 1, None, "Probably not:"),
        (-0.01, 0.05, 1, None, "No significant difference:"),
        (0.01, 0.05, 5, 0.01, "Yes:"),
        (-0.05, -0.01, 5, 0.01, "No, it harms:"),
        (-0.01, 0.05, 5, 0.2, "No significant difference:"),
    ],
)
def test_verdict_follows_interval_and_seeds(low: float, high: float, seeds: int, p: float | None, word: str) -> None:
    answer = answer_study(make_results(low, high, seeds=seeds, p=p))
    assert answer.question == "Does adding hospitals help at a?"
    assert answer.sentence.startswith(f"{word} trained with four other hospitals")
    assert "202 images of 200 patients" in answer.sentence
    assert f"{0.7 + (low + high) / 2:.3f}" in answer.sentence


def test_answer_without_interval_is_unknown() -> None:
    results = make_results(0.01, 0.05)
    bare = replace(results, differences=make_differences([]))
    assert answer_study(bare).sentence.startswith("Unknown: ")
    alone = replace(bare, estimates=bare.estimates[bare.estimates["k"] == 1])
    assert answer_study(alone).sentence.startswith("Not tested: ")


def test_tiny_samples_say_how_to_get_aucs() -> None:
    for size, shown in (("tiny", True), ("default", False)):
        results = make_results(0.01, 0.05, samples_size=size)
        sentence = answer_study(replace(results, estimates=results.estimates.assign(auc=np.nan))).sentence
        assert sentence.startswith("Unknown: ")
        assert ("samples.size=default" in sentence) is shown


def test_collection_clients_have_no_target() -> None:
    answer = answer_study(make_results(0.01, 0.05, adds_hospitals=False, target=""))
    assert answer.question == "Does adding clients help?"
    assert "four other clients" in answer.sentence


def test_gain_and_loss_are_named() -> None:
    rows = [("a", 0.01, 0.05), ("b", -0.05, -0.01), ("c", -0.01, 0.02)]

    def collect_view(view: str, **head: object) -> Results:
        head |= {"view": view, "disease": "mean", "model": "K=5", "kind": "common"}
        gains = [
            {**head, "hospital": name, "difference": low + 0.001, "low": low, "high": high} for name, low, high in rows
        ]
        at = [{**head, "hospital": name, "auc": 0.8} for name, _, _ in rows]
        return Results("t", Origin.REAL, {"seeds": [1]}, make_estimates(at), make_differences(gains))

    before_and_after = collect_view("hospitals", reference="K=1", reference_kind="common")
    assert state_gains(before_and_after) == (
        "AUC before and after (K=1, K=5), without a reference: it rises at a; it falls at b; inconclusive at c."
    )
    with_own_data = collect_view("alternatives", reference="own data alone", reference_kind="own_data")
    assert state_gains(with_own_data) == "Who gains over its own data: a gains; b loses; inconclusive at c."


def test_comparison_says_what_its_interval_covers() -> None:
    """Patients of the models at hand, or also training seeds and splits."""
    row = {"view": "study", "method": "a", "k": 5, "disease": "mean"}
    models = make_estimates([{**row, "model": name, "auc": 0.7} for name in ("a", "b")])
    change = {**row, "model": "b", "reference": "a", "difference": 0.0, "low": -0.1, "high": 0.1}
    for more, words in (
        ({}, "over test patients, for these trained models."),
        ({"of_seeds": "{}"}, "over test patients and training seeds."),
        ({"of_seeds": "{}", "splits": 2}, "over test patients, training seeds and splits of the patients."),
    ):
        gains = make_differences([change | more])
        text = _explain_intervals(Results("t", Origin.REAL, {}, models, gains))
        assert text.startswith("change: mean AUC minus that of a; ")
        assert text.endswith(words)
    bare = make_differences([change | {"low": None, "high": None}])
    assert _explain_intervals(Results("t", Origin.REAL, {}, models, bare)) == "change: mean AUC minus that of a."


def test_methods_are_ranked_by_mean_auc() -> None:
    rows = [
        {"view": "study", "model": name, "method": name, "k": 5, "disease": "mean", "auc": auc}
        for name, auc in (("codasca", 0.7), ("fedavg", 0.8))
    ]
    results = Results("t", Origin.REAL, ABOUT | {"seeds": [1]}, make_estimates(rows), make_differences([]))
    answer = answer_study(results)
    assert answer.question == "Which method has the highest mean AUC?"
    assert answer.sentence.startswith("None clearly: fedavg 0.800, codasca 0.700")
    assert list(_list_sides({"a": 0.1, "b": -0.2, "c": -0.1}, "fedavg")) == [
        "higher than fedavg: a",
        "lower than fedavg: b and c",
    ]
    assert list(_list_sides({"b": -0.2}, "fedavg")) == ["lower than fedavg: b"]
    gain = {"view": "study", "disease": "mean", "reference": "codasca", "model": "fedavg", "difference": 0.1}
    clear = replace(results, differences=make_differences([gain | {"p": 0.001, "low": 0.05, "high": 0.15}]))
    assert answer_study(clear).sentence.startswith("fedavg, 0.800; codasca 0.700")


@pytest.mark.parametrize(
    ("seeds", "words"),
    [
        ([1], "one training run each; no test: it takes several training seeds"),
        ([1, 2], "two training runs each; no test)"),
    ],
)
def test_one_method_counts_its_runs(seeds: list[int], words: str) -> None:
    head = {"view": "study", "k": 5, "disease": "mean"}
    rows = [head | {"model": name, "method": name, "auc": auc} for name, auc in (("fedavg", 0.8), ("sgd", 0.7))]
    results = Results("t", Origin.REAL, ABOUT | {"seeds": seeds}, make_estimates(rows), make_differences([]))
    assert words in answer_study(results).sentence


def test_many_methods_are_lines_and_a_range() -> None:
    names = [f"m{number}" for number in range(9)]
    places = [("study", ""), ("hospitals", "a"), ("hospitals", "b")]
    rows = [
        {"view": view, "hospital": place, "model": name, "method": name, "k": 2, "disease": "mean"}
        | {"auc": 0.9 - number / 100}
        | {"takes_part": True, "images": 9, "patients": 9, "seeds": 1}
        for view, place in places
        for number, name in enumerate(names)
    ]
    results = Results(
        "t", Origin.REAL, ABOUT | {"seeds": [1], "methods": []}, make_estimates(rows), make_differences([])
    )
    assert "m5 0.850, 3 others 0.820 to 0.840" in answer_study(results).sentence
    grid = make_hospital_grid(results, "hospitals")
    assert [line.head for line in grid.lines] == names
    assert [cell.text for cell in grid.lines[1].cells] == ["0.890", "0.890"]


def make_columns(noise: float, seed: int) -> list[Column]:
    rng = np.random.default_rng(seed)
    positive = np.arange(300) % 3 == 0
    score = positive + noise * rng.normal(size=300)
    return [Column("edema", score, positive, np.arange(300) // 2, 0)]


def test_recognized_findings_use_sensitivity() -> None:
    reference, model = make_columns(1.0, 1), make_columns(0.3, 2)
    counts = count_recognized([reference], [model], 400)
    assert counts is not None
    shares = [sensitivity_at_specificity(columns[0]) for columns in (reference, model)]
    assert [counts["reference"], counts["model"]] == pytest.approx(
        [1000 / 3 * share.sensitivity for share in shares if share]
    )
    assert counts["findings"] == pytest.approx(1000 / 3)
    assert counts["low"] is not None
    assert counts["high"] is not None
    assert counts["low"] > 0  # the model has less noise
    same = count_recognized([reference], [reference], 50)
    assert same is not None
    assert (same["low"], same["high"]) == (0, 0)
    assert count_recognized([model], [model], 0)["low"] is None  # type: ignore[index]


def test_one_class_has_no_findings() -> None:
    (column,) = make_columns(1.0, 1)
    sick = replace(column, positive=np.ones(300, bool))
    assert count_recognized([[sick]], [[sick]]) is None


@pytest.mark.parametrize(
    ("needed", "times", "seeds", "words"),
    [
        (12, None, 12, "is seen with 12 training seeds"),
        (115, None, None, "is seen with 115 training seeds"),
        (20, 3.0, None, "it takes 600 patients in place of 200, and 20 seeds"),
        (None, math.inf, None, "No number of training seeds shows"),
    ],
)
def test_advice_is_from_the_power(needed: int | None, times: float | None, seeds: int | None, words: str) -> None:
    results = make_results(-0.01, 0.05)
    frame = results.differences.assign(patients=200)
    frame["seeds_needed"], frame["times_needed"] = pd.array([needed], "Int64"), pd.array([times], "Float64")
    answer = answer_study(replace(results, differences=frame))
    assert words in answer.advice
    assert answer.seeds == seeds
    about = results.about | {"has_patients": False}
    unknown = answer_study(replace(results, differences=frame.assign(images=200), about=about))
    assert words.replace("patients", "images") in unknown.advice
    assert "patient" not in unknown.advice
    assert "--seeds" not in answer.sentence


def test_confirmation_has_new_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    results, answer = make_results(-0.01, 0.05, seeds=3), Answer("", "", seeds=7)
    words = ["study", "my study", "--k", "1,2", "--seeds", "3", "--set", "samples.size=tiny", "--out", "there"]
    monkeypatch.setattr(sys, "argv", ["/somewhere/bin/chestfed", *words])
    typed = "chestfed study 'my study' --k 1,2 --set samples.size=tiny --out there"
    assert _repeat(results, answer).endswith(f": {typed} --seeds 3-9")
    monkeypatch.setattr(sys, "argv", ["chestfed", "study", "--seed=5"])
    alone = make_results(-0.01, 0.05)
    assert _repeat(alone, answer).endswith(": chestfed study --set seed=5 --seeds 1-7")
    assert not _repeat(alone, replace(answer, seeds=None))


def test_broken_seeds_and_median_are_said() -> None:
    """NIH at K=1 by seed, as it was measured: two seeds of three look alike, the third broke down."""
    rows = [
        {"view": "seeds", "model": name, "method": name, "k": 1, "disease": "edema", "seed": seed, "auc": auc}
        for name, aucs in (("codasca", (0.87, 0.6, 0.87)), ("fedavg", (0.8, 0.81, 0.79)))
        for seed, auc in enumerate(aucs)
    ]
    means = [row | {"view": "study", "disease": "mean"} for row in rows if row["seed"] == 0]
    results = Results(
        "t", Origin.REAL, ABOUT | {"seeds": [0, 1, 2]}, make_estimates(rows + means), make_differences([])
    )
    each = summarize_seeds(results)
    assert each["median"].to_dict() == {"codasca": 0.87, "fedavg": 0.8}
    assert each["broken"].to_dict() == {"codasca": 1, "fedavg": 0}
    assert "codasca in 1 of 3" in answer_study(results).sentence


@pytest.mark.parametrize("aucs", [[0.478], [0.478, 0.528], [0.49, 0.55, 0.56], [0.6, 0.87]])
def test_chance_alone_is_no_breakdown(aucs: list[float]) -> None:
    """Few steps leave an AUC near 0.5 too: only seeds that learned more show that one broke down."""
    head = {"view": "seeds", "model": "fedavg", "method": "fedavg", "k": 5, "disease": "edema"}
    rows = [head | {"seed": seed, "auc": auc} for seed, auc in enumerate(aucs)]
    about = ABOUT | {"seeds": list(range(len(aucs)))}
    results = Results("t", Origin.REAL, about, make_estimates(rows), make_differences([]))
    assert summarize_seeds(results)["broken"].to_list() == [0]


def test_advice_names_the_best_of_several() -> None:
    """The decisive pair is that of the best method, or of the second best if the reference is the best."""
    head = {"view": "study", "k": 5, "disease": "mean"}
    aucs = {"adam": 0.52, "codasca": 0.64, "fedavg": 0.5}
    rows = [head | {"model": name, "method": name, "auc": auc} for name, auc in aucs.items()]
    changes = [
        head
        | {"model": name, "reference": "adam", "auc_reference": 0.52, "auc_model": aucs[name], "p": 0.6}
        | {"difference": aucs[name] - 0.52, "low": -0.3, "high": 0.4, "of_seeds": '{"1": 0.1, "2": 0.2}'}
        | {"detectable": detectable, "seeds_needed": needed}
        for name, detectable, needed in (("codasca", 0.3, 12), ("fedavg", 0.084, 5))
    ]
    about = ABOUT | {"seeds": [1, 2]}
    results = Results("t", Origin.REAL, about, make_estimates(rows), make_differences(changes))
    answer = answer_study(results)
    assert "between codasca and adam below 0.300" in answer.resolution
    assert "that of codasca and adam, 0.120, is seen with 12" in answer.advice
    lower = [change | {"auc_model": 0.4 if change["model"] == "codasca" else 0.5} for change in changes]
    assert "fedavg and adam" in answer_study(replace(results, differences=make_differences(lower))).resolution


def test_choices_name_their_methods() -> None:
    facts = {"objective": "auc", "settings": {}, "options": {}}
    methods: Any = [facts | {"method": name, "chosen": how} for name, how in (("a", "x"), ("b", "y"), ("c", "x"))]
    assert "chosen x (a, c); y (b)." in state_settings(methods)
    assert "chosen x." in state_settings([methods[0], methods[2]])


def test_worse_probabilities_are_in_the_answer() -> None:
    (good,), rng = make_columns(0.1, 1), np.random.default_rng(0)
    first = replace(good, score=np.where(good.positive, 0.9, 0.1))
    last = replace(good, score=np.where(good.positive, 0.6, 0.4) + 0.01 * rng.random(300))
    brier, ece = compare_calibration([[first]], [[last]], 200)
    assert (brier["reference"], brier["model"]) == pytest.approx(
        [((column.score - column.positive) ** 2).mean() for column in (first, last)]
    )
    assert ece["reference"] == pytest.approx(0.1)
    assert ece["low"] is not None
    results = make_results(0.01, 0.05, calibration=[brier, ece])
    assert "calibration error rises from 0.100 to " in answer_study(results).calibration
    same = make_results(0.01, 0.05, calibration=compare_calibration([[first]], [[first]], 200))
    assert answer_study(same).calibration == ""


def test_same_sentence_everywhere(tmp_path: Path, undrawn: None) -> None:
    folder = write_run(tmp_path / "run")
    results = load_results(RunFolder(folder))
    answer = answer_study(results)
    study = chestfed.Study.load(folder)
    assert study.verdict == str(answer)
    assert str(answer) in study.summary
    assert f"**{answer.question}** {answer.sentence}" in study._repr_markdown_()
    html = make_report(RunFolder.open(folder)).html
    assert f"<h1>{answer.question}</h1>" in html
    assert answer.sentence.partition("`")[0] in html
    assert answer.meaning in html


@pytest.mark.slow
def test_first_screen_fits_a_terminal(tmp_path: Path) -> None:
    results = load_results(RunFolder(write_run(tmp_path / "run")))
    answer = answer_study(results)
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(render_summary(results, answer))
    lines = console.export_text().splitlines()
    assert len(lines) <= 20
    assert max(map(len, lines)) <= 80
    assert "".join(lines).count("\u2212") == 0


def test_gate_without_a_comparison_says_why(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    place = folder / "k2" / "alternatives" / "gate" / "site1"
    place.mkdir(parents=True)
    choice = {"name": "own_data", "mixed": False, "candidates": [], "reason": "nobody is healthy", "price": None}
    (place / "choice.json").write_text(json.dumps(choice))
    results = collect([RunFolder(folder)])
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(render_summary(results, answer_study(results)))
    assert "nobody is healthy (1 of 1)" in " ".join(console.export_text().split())


@pytest.mark.slow
def test_seeds_are_counted_in_the_answer(tmp_path: Path) -> None:
    runs = [RunFolder(write_run(tmp_path / f"a{seed}", seed=seed)) for seed in (1, 2, 3)]
    answer = answer_study(collect(runs))
    assert isinstance(answer, Answer)
    assert "three training runs, higher in " in answer.sentence
    assert pd.notna(collect(runs).about["recognized"]["low"])


def test_seeds_of_one_k_compare_no_methods(tmp_path: Path) -> None:
    runs = [RunFolder(write_run(tmp_path / f"run-{seed}", seed=seed, ks=(2,))) for seed in (1, 2)]
    results = collect(runs)
    assert results.by_k
    assert list(results.view("study")["model"].unique()) == ["K=2"]
