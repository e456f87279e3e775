"""`chestfed.Study` on finished run folders."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import yaml
from sklearn.metrics import average_precision_score, roc_auc_score

import chestfed
from chestfed.core.errors import ChestfedError, ConfigError
from chestfed.core.manifest import MisplacedError
from chestfed.reports.pages.page import write_report
from chestfed.results.tables.collect import collect, write_comparison
from chestfed.results.tables.run_folder import RunFolder
from tests.cases import assert_refused
from tests.results.tables.finished_runs import write_run

mpl.use("Agg")


@pytest.fixture
def study(tmp_path: Path) -> chestfed.Study:
    return chestfed.Study.load(write_run(tmp_path / "run"))


def test_the_table_and_its_numbers(study: chestfed.Study) -> None:
    assert study.ks == (1, 2)
    assert study.diseases == ("edema", "atelectasis")
    assert len(study.table()) == 6
    assert list(study.table().columns) == list(pd.read_csv(study.folder / "table.csv").columns)
    assert study.table()["positives"].dtype == "Int64"  # whole also beside the mean, which has none
    frame = study.predictions(2).dropna()
    assert study.auc(2, "edema") == pytest.approx(roc_auc_score(frame["label_edema"], frame["score_edema"]))
    assert study.auc(1) == study.table().query("k == 1 and disease == 'mean'")["auc"].item()
    assert "SYNTHETIC" in repr(study)
    with assert_refused(ConfigError, "no such K", k=7):
        study.auc(7, "edema")


def test_wide_table_has_a_row_per_k(study: chestfed.Study) -> None:
    wide = study.table(wide=True)
    assert list(wide.columns) == ["edema", "atelectasis", "mean"]
    assert list(wide.index) == [1, 2]
    assert wide.loc[2, "edema"] == study.auc(2, "edema")


def test_unknown_k_is_refused(study: chestfed.Study) -> None:
    for k in ("2", 2.0):
        with assert_refused(ConfigError, "not a number of clients"):
            study.auc(k)  # type: ignore[arg-type]
    with assert_refused(ConfigError, "no such K", k=9):
        study.plot_differences(9)
    assert study.auc(np.int64(2)) == study.auc(2)  # type: ignore[arg-type]


def test_an_interval_is_that_of_the_table(study: chestfed.Study) -> None:
    row = study.table().query("k == 2 and disease == 'mean'").iloc[0]
    assert study.interval(2) == (row["low"], row["high"])


def test_folder_of_studies_lists_their_names(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "one")
    assert chestfed.Study.load(tmp_path / "runs").folder.name == "one"
    write_run(tmp_path / "runs" / "two", seed=2)
    with assert_refused(ConfigError, "several studies", studies=("one", "two")):
        chestfed.Study.load(tmp_path / "runs")


def test_study_without_hospitals_is_refused(study: chestfed.Study) -> None:
    with assert_refused(ChestfedError, "no such table", view="hospitals"):
        study.hospitals()


def test_studies_are_compared_as_by_command(study: chestfed.Study, tmp_path: Path) -> None:
    other = chestfed.Study.load(write_run(tmp_path / "other", seed=2, lr=0.5))
    table = study.compare(other, k=1, resamples=20).set_index("disease")
    assert table.loc["edema", "difference"] == pytest.approx(other.auc(1, "edema") - study.auc(1, "edema"))
    assert list(table.index) == ["edema", "atelectasis", "mean"]
    with assert_refused(ConfigError, "other images"):
        study.compare(chestfed.Study.load(write_run(tmp_path / "others", images=5)), resamples=20)


def test_rounds_have_a_column_per_disease(study: chestfed.Study) -> None:
    rounds = study.rounds(1)
    assert rounds["round"].tolist() == [1, 2]
    assert rounds["auc_edema"].isna().tolist() == [True, False]


def test_plots_are_tagged_axes_with_counts(study: chestfed.Study) -> None:
    roc = study.plot_roc("edema")
    assert len(roc.get_lines()) == 3  # two K and the diagonal
    assert "SYNTHETIC" in roc.get_title()
    frame = study.predictions(1)
    assert f"{int((frame['label_edema'] == 1).sum())}+" in roc.get_title()
    assert len(study.plot_roc("edema", k=1).get_lines()) == 2
    assert len(study.plot_rounds().get_lines()) == 2
    for plot in (study.plot_roc, study.plot_precision_recall, study.plot_calibration, study.plot_auc):
        with assert_refused(ConfigError, "no such disease", disease="hernia"):
            plot("hernia")


def test_plots_draw_scikit_learn_and_bins(study: chestfed.Study) -> None:
    frame = study.predictions(2).dropna(subset=["label_edema"])
    axes = study.plot_precision_recall("edema", k=2)
    average = average_precision_score(frame["label_edema"], frame["score_edema"])
    assert f"{average:.3f}" in axes.get_legend().get_texts()[0].get_text()
    (curve,) = (line for line in study.plot_calibration("edema", k=2, bins=4).get_lines() if line.get_label() == "K=2")
    lowest = frame.nsmallest(len(frame) // 4 + 1, "score_edema")
    assert curve.get_xdata()[0] == pytest.approx(lowest["score_edema"].mean(), abs=0.02)
    assert len(curve.get_xdata()) == 4


def test_k_has_the_same_color_alone(study: chestfed.Study) -> None:
    (alone,) = (line for line in study.plot_roc("edema", k=2).get_lines() if line.get_label().startswith("K=2"))
    (among,) = (line for line in study.plot_roc("edema").get_lines() if line.get_label().startswith("K=2"))
    assert alone.get_color() == among.get_color()
    assert alone.get_color() != study.plot_roc("edema").get_lines()[1].get_color()


def test_differences_drawn_with_intervals(study: chestfed.Study) -> None:
    axes = study.plot_differences()
    drawn = [line.get_xdata()[0] for line in axes.get_lines()[1:]]
    assert drawn == pytest.approx(study.significance()["difference"].tolist())
    assert [label.get_text() for label in axes.get_yticklabels()][-1] == "mean"
    with assert_refused(ConfigError, "not compared", k=1):
        study.plot_differences(k=1)
    (line,) = study.plot_auc().get_lines()
    assert list(line.get_ydata()) == [study.auc(1), study.auc(2)]


@pytest.mark.slow
def test_significance_is_that_of_the_study(study: chestfed.Study, tmp_path: Path) -> None:
    written = pd.read_csv(study.folder / "significance.csv")
    assert list(study.significance().columns) == list(written.columns)
    for column in ("difference", "low", "high"):
        assert study.significance()[column].tolist() == written[column].tolist()
    assert study.significance()["p"].isna().all()  # one training seed
    assert study.significance()["n"].dtype == "Int64"
    other = chestfed.Study.load(write_run(tmp_path / "other", compared=False))
    with assert_refused(ChestfedError, "no such table", view="differences"):
        other.significance()


@pytest.mark.usefixtures("unchecked")
def test_damaged_predictions_are_named(study: chestfed.Study) -> None:
    (study.folder / "k2" / "predictions.parquet").write_bytes(b"cut off")
    with assert_refused(ConfigError, "cannot be read", file=study.folder / "k2" / "predictions.parquet"):
        study.predictions(2)


def test_another_folder_is_refused(tmp_path: Path) -> None:
    with assert_refused(ConfigError, "not a run folder"):
        chestfed.Study.load(tmp_path)


def test_comparison_page_has_configurations(tmp_path: Path) -> None:
    runs = [RunFolder(write_run(tmp_path / f"run-{seed}", seed=seed, digest=f"{seed:012d}")) for seed in (1, 2)]
    together = write_comparison(collect(runs), tmp_path)
    page = write_report(together, tmp_path / "page.html").html
    (text,) = re.findall(r'base64,([^"]*)" download', page)
    saved = yaml.safe_load(base64.b64decode(text))
    assert saved.keys() == runs[0].pipeline_file.keys()
    assert (saved["seed"], saved["methods"]) == (1, runs[0].pipeline_file["methods"])
    assert all(digest in page for digest in (*runs[0].about["inputs"].values(), runs[0].digest))


def test_exchanged_run_folders_are_refused(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / f"run-{seed}", seed=seed, digest=f"{seed:012d}") for seed in (1, 2)]
    together = write_comparison(collect([RunFolder(run) for run in runs]), tmp_path)
    studies = chestfed.Study.load(together)
    assert studies.study(1).configuration["seed"] == 1
    runs[0].rename(tmp_path / "aside")
    runs[1].rename(runs[0])
    with pytest.raises(MisplacedError):
        studies.study(1)
