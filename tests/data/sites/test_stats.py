"""The dataset table."""

from __future__ import annotations

import io
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from chestfed.data.sites.opening import open_all_views, survey_site
from chestfed.data.sites.stats import advise_splits, advise_test_patients, dataset_table, describe_test_split, render
from tests.data.sites.releases.test_chestxray8 import HEADER, THREE, A, B, C, row
from tests.data.sites.releases.test_chexpert import HEADER as CHEXPERT_HEADER
from tests.data.sites.releases.test_chexpert import P1, P2, T1, V1
from tests.data.sites.releases.test_chexpert import row as chexpert_row
from tests.data.sites.small_sites import load_bundled, open_files, write_files

LISTS = {"train_val_list.txt": f"{A}\n{B}\n", "test_list.txt": f"{C}\n"}


@pytest.fixture
def nih(tmp_path: Path) -> pd.DataFrame:
    return dataset_table([open_files(tmp_path, "chestxray8", {"Data_Entry_2017.csv": HEADER + THREE, **LISTS})])


def test_a_row_per_split_and_the_papers(nih: pd.DataFrame) -> None:
    assert nih["part"].tolist() == ["train", "test", "all", "paper"]
    assert nih["images"].tolist() == [2, 1, 3, 112120]
    assert nih["cardiomegaly"].tolist() == [0.5, 0.0, pytest.approx(1 / 3), 0.025]
    assert nih["views"].tolist()[:3] == ["pa 2", "ap 1", "pa 2, ap 1"]


def test_one_split_has_no_row_for_all(tmp_path: Path) -> None:
    table = open_files(tmp_path, "chestxray8", {"Data_Entry_2017.csv": HEADER + THREE})
    assert dataset_table([table])["part"].tolist() == ["train", "paper"]
    test = open_files(tmp_path / "test", "chexpert", {"test_labels.csv": CHEXPERT_HEADER + chexpert_row(T1)})
    assert dataset_table([test])["part"].tolist() == ["test"]


def test_ratios_count_images_once(tmp_path: Path) -> None:
    positive = {"Consolidation": "1.0"}
    train = CHEXPERT_HEADER + chexpert_row(P1, labels=positive) + chexpert_row(P2)
    valid = CHEXPERT_HEADER + chexpert_row(V1, labels=positive)
    frame = dataset_table([open_files(tmp_path, "chexpert", {"train.csv": train, "valid.csv": valid})])
    assert frame["part"].tolist() == ["train", "valid", "all", "train, oversampled", "paper"]
    assert frame["rows"].tolist()[:4] == [3, 1, 4, 3]
    assert frame["consolidation"].tolist()[:4] == pytest.approx([1 / 2, 1.0, 2 / 3, 2 / 3])
    assert frame["patients"].tolist()[:4] == [2, 1, 3, 2]


def test_left_out_views_have_their_row(tmp_path: Path) -> None:
    train = CHEXPERT_HEADER + chexpert_row(P1) + chexpert_row(P2.replace("frontal", "lateral"), "Lateral,")
    write_files(tmp_path, {"train.csv": train})
    for override, parts in (
        ("views=[pa, ap, frontal]", ["train", "all views", "paper"]),
        ("views=all", ["train", "paper"]),
    ):
        config = load_bundled("chexpert", override)
        survey = survey_site(config, tmp_path)
        frame = dataset_table([survey.table], [open_all_views(survey, config)])
        assert frame["part"].tolist() == parts
        assert frame["images"].tolist()[:-1] == [1, 2][-len(parts) + 1 :]


def test_the_papers_row_is_beside_training(tmp_path: Path) -> None:
    table = open_files(tmp_path, "chestxray8", {"Data_Entry_2017.csv": HEADER + THREE, **LISTS}).select("test")
    assert dataset_table([table])["part"].tolist() == ["test"]


def test_missing_labels_are_counted(tmp_path: Path) -> None:
    text = HEADER + THREE.replace(",No Finding,", ",,")
    frame = dataset_table([open_files(tmp_path, "chestxray8", {"Data_Entry_2017.csv": text})])
    assert frame["edema_missing"].tolist() == [1, pd.NA]
    assert frame["edema"].tolist()[0] == 0.5


def test_the_printed_table_has_3_decimals(tmp_path: Path) -> None:
    table = open_files(tmp_path, "chestxray8", {"Data_Entry_2017.csv": HEADER + THREE}, "synthetic=true")
    console = Console(width=220, file=io.StringIO())
    console.print(render(dataset_table([table])))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "SYNTHETIC" in text
    assert "0.333" in text
    assert "112,120" in text


def test_the_csv_has_no_names(nih: pd.DataFrame) -> None:
    text = nih.to_csv(index=False, float_format="%.4f")
    assert "00000" not in text
    assert ".png" not in text


def test_few_test_patients_are_named(tmp_path: Path) -> None:
    table = open_files(tmp_path, "chestxray8", {"Data_Entry_2017.csv": HEADER + THREE, **LISTS})
    config = load_bundled("chestxray8")
    (sentence,) = describe_test_split(table, config, least=10)
    assert "Cardiomegaly 0 positive and 1 negative" in sentence
    assert "The hospital has too few patients for Cardiomegaly (" in sentence
    advice = advise_test_patients({"edema": 20, "mass": 19}, 10, advise_splits(None, "test"))
    assert advice.startswith("Raise splits.test_fraction in the site's YAML to test more patients with Edema. ")
    assert advice.endswith("The hospital has too few patients for Mass (19 in all).")
    assert describe_test_split(table.select("train"), config, least=10) == []


def test_no_folder_of_a_splits_file_in_the_notes(tmp_path: Path) -> None:
    people = "".join(
        row(f"{number:08d}_000.png", ("Edema", "No Finding")[number % 2], str(number)) for number in range(1, 61)
    )
    training = "".join(f"{number:08d}_000.png\n" for number in range(2, 61))
    lists = {"test_list.txt": "00000001_000.png\n", "train_val_list.txt": training}
    table = open_files(tmp_path, "chestxray8", {"Data_Entry_2017.csv": HEADER + people, **lists})
    config = load_bundled("chestxray8")
    config = config.model_copy(
        update={"splits": config.splits.model_copy(update={"file": "/data/ward 7/x.splits.csv"})}
    )
    (sentence, *_) = describe_test_split(table, config, least=10)
    assert "Move training patients to test in x.splits.csv, before" in sentence
    assert "ward 7" not in sentence
    drawn = config.model_copy(update={"splits": config.splits.model_copy(update={"test_fraction": 0.2})})
    assert (
        "the site's name (chestxray8) and all its patients and labels" in describe_test_split(table, drawn, least=0)[0]
    )


def test_patient_of_many_images_is_counted(tmp_path: Path) -> None:
    table = open_files(tmp_path, "chestxray8", {"Data_Entry_2017.csv": HEADER + THREE, **LISTS})
    many = table.with_frame(pd.concat([table.select("train").frame.iloc[[0]]] * 7, ignore_index=True))
    (sentence,) = describe_test_split(many, load_bundled("chestxray8"), least=10)
    assert "7 of the 7 train images" in sentence
    assert str(many.frame["patient"].iloc[0]) not in sentence.replace("7", "")
