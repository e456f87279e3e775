"""`chestfed.Study` on finished run folders."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import matplotlib as mpl
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

import chestfed
from chestfed.errors import ChestfedError, ConfigError
from chestfed.study.significance import of_study, write
from tests.study.finished_runs import write_run

mpl.use("Agg")


@pytest.fixture
def study(tmp_path: Path) -> chestfed.Study:
    return chestfed.Study.load(write_run(tmp_path / "run"))


def test_the_table_and_its_numbers(study: chestfed.Study) -> None:
    assert study.ks == (1, 2)
    assert study.diseases == ("edema", "atelectasis")
    assert len(study.table()) == 6
    frame = study.predictions(2).dropna()
    assert study.auc(2, "edema") == pytest.approx(roc_auc_score(frame["label_edema"], frame["score_edema"]))
    assert study.auc(1) == study.table().query("k == 1 and disease == 'mean'")["auc"].item()
    assert "SYNTHETIC" in repr(study)
    with pytest.raises(ConfigError, match="no AUC of K=7"):
        study.auc(7, "edema")


def test_the_rounds_have_a_column_per_disease(study: chestfed.Study) -> None:
    rounds = study.rounds(1)
    assert rounds["round"].tolist() == [1, 2]
    assert rounds["auc_edema"].isna().tolist() == [True, False]


def test_the_plots_are_axes_that_say_synthetic_and_how_many(study: chestfed.Study) -> None:
    roc = study.plot_roc("edema")
    assert len(roc.get_lines()) == 3  # two K and the diagonal
    assert "SYNTHETIC" in roc.get_title()
    frame = study.predictions(1)
    assert f"{int((frame['label_edema'] == 1).sum())}+" in roc.get_title()
    assert len(study.plot_roc("edema", k=1).get_lines()) == 2
    assert len(study.plot_rounds().get_lines()) == 2
    with pytest.raises(ConfigError, match="no disease 'hernia'"):
        study.plot_roc("hernia")


def test_significance_is_read_where_it_was_written(study: chestfed.Study) -> None:
    with pytest.raises(ChestfedError, match=r"no significance\.csv"):
        study.significance()
    found = of_study(study.folder, study.ks, 20)
    assert found is not None
    write(found, study.folder, "significance")
    assert isinstance(study.significance(), pd.DataFrame)


def test_another_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not the run folder"):
        chestfed.Study.load(tmp_path)


def test_importing_chestfed_imports_neither_pandas_nor_torch() -> None:
    program = "import sys, chestfed; print([n for n in ('pandas', 'torch', 'numpy') if n in sys.modules])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
