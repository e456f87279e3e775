"""`--fix-splits` and exit codes: what is written passes the check, and nothing of the hospital's is changed."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from chestfed.app.cli import app
from chestfed.core.errors import ChestfedError, ConfigError, SiteError
from chestfed.data.sites import load_site_config, open_site
from tests.cases import assert_refused
from tests.data.checks.planted import ROWS, Hospital, get_row
from tests.data.sites.own_tables import config


def site_check(folder: Path, *arguments: str) -> Any:
    command = ["site", "check", str(folder / "site.yaml"), "--data", str(folder), "--cache", str(folder / "cache")]
    return CliRunner().invoke(app, [*command, "--workers", "1", *arguments])


def contents(folder: Path) -> dict[str, str]:
    files = [*(folder / "site").rglob("*"), folder / "site.yaml"]
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files if file.is_file()}


def crossing(folder: Path) -> Hospital:
    hospital = Hospital(folder)
    hospital.rows[20]["MRN"] = hospital.rows[0]["MRN"]  # two images in train, one in test
    ROWS["copy, other split"][0](hospital)  # 18 in test is a duplicate of 0 in train
    hospital.save()
    config(folder, {})
    return hospital


def test_exit_code_is_0_or_1(tmp_path: Path) -> None:
    Hospital(tmp_path / "good").save()
    config(tmp_path / "good", {})
    result = site_check(tmp_path / "good")
    assert (result.exit_code, "passed: 0 errors, 0 warnings" in result.output) == (0, True)
    crossing(tmp_path / "bad")
    result = site_check(tmp_path / "bad")
    assert (result.exit_code, "FAILED: 2 errors" in result.output) == (1, True)
    assert f"labels.csv:{get_row(20)}" in result.output


@pytest.mark.parametrize(
    "arguments",
    [["nothing.yaml", "--data", "."], ["site.yaml"], ["site.yaml", "--data", ".", "--against", "nothing.yaml"]],
)
def test_wrong_calls_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    config(tmp_path, {})
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CHESTFED_DATA", raising=False)
    assert isinstance(CliRunner().invoke(app, ["site", "check", *arguments]).exception, ConfigError)
    assert CliRunner().invoke(app, ["site", "check", *arguments, "--no-such-flag"]).exit_code == 2


def test_missing_root_has_advice(tmp_path: Path) -> None:
    config(tmp_path, {})
    result = site_check(tmp_path)
    assert result.exit_code == 1
    assert "missing root" in result.output


def test_fixed_splits_move_only_what_crosses(tmp_path: Path) -> None:
    hospital = crossing(tmp_path)
    before = contents(tmp_path)
    result = site_check(tmp_path, "--fix-splits", "--out", str(tmp_path / "out"))
    assert result.exit_code == 0, result.output
    assert contents(tmp_path) == before
    table = open_site(load_site_config(tmp_path / "out/site_fixed.yaml"), tmp_path)
    assert (table.frame.groupby("patient")["split"].nunique() == 1).all()
    moved = [
        number
        for number, (old, new) in enumerate(zip(hospital.rows, table.frame["split"], strict=True))
        if old["Set"] != new
    ]
    # The patient of 0, 1 and 20 shows the same picture as that of 18 and 19: of the five images, most are in test.
    assert moved == [0, 1]
    files = {file.name for file in (tmp_path / "out").iterdir()}
    assert files == {"site.splits.csv", "site_fixed.yaml", "check.json", "check.md"}


def test_fixed_splits_are_repeatable(tmp_path: Path) -> None:
    crossing(tmp_path)
    assert site_check(tmp_path, "--fix-splits").exit_code == 0
    first = (tmp_path / "site.splits.csv").read_bytes()
    assert site_check(tmp_path, "--fix-splits").exit_code == 0
    assert (tmp_path / "site.splits.csv").read_bytes() == first
    result = CliRunner().invoke(
        app, ["site", "check", str(tmp_path / "site_fixed.yaml"), "--data", str(tmp_path), "--no-images"]
    )
    assert result.exit_code == 0, result.output


def test_all_in_train_is_split_by_patient(tmp_path: Path) -> None:
    hospital = Hospital(tmp_path)
    for row in hospital.rows:
        row["Set"] = "train"
    hospital.save()
    config(tmp_path, {})
    assert site_check(tmp_path, "--fix-splits").exit_code == 0
    splits = pd.read_csv(tmp_path / "site.splits.csv", dtype=str)
    assert splits["patient"].is_unique
    assert dict(splits["split"].value_counts()) == {"train": 8, "test": 2, "valid": 2}


def test_foreign_file_is_not_overwritten(tmp_path: Path) -> None:
    crossing(tmp_path)
    (tmp_path / "site_fixed.yaml").write_text("site: mine\n")
    result = site_check(tmp_path, "--fix-splits")
    assert result.exit_code == 1
    assert (tmp_path / "site_fixed.yaml").read_text() == "site: mine\n"


def test_patient_without_split_is_reported(tmp_path: Path) -> None:
    hospital = crossing(tmp_path)
    assert site_check(tmp_path, "--fix-splits").exit_code == 0
    hospital.rows[9]["MRN"] = "new"
    hospital.save()
    fixed = [*(tmp_path / "site_fixed.yaml").read_text().splitlines()]
    assert fixed[0].startswith("# Written by")
    result = CliRunner().invoke(
        app, ["site", "check", str(tmp_path / "site_fixed.yaml"), "--data", str(tmp_path), "--no-images"]
    )
    assert result.exit_code == 1
    assert f"labels.csv:{get_row(9)}: this row's patient is not in site.splits.csv" in result.output


def fixed_hospital(folder: Path) -> tuple[Hospital, Path]:
    hospital = crossing(folder)
    assert site_check(folder, "--fix-splits", "--no-images").exit_code == 0
    return hospital, folder / "site.splits.csv"


@pytest.mark.parametrize("splits", [{"file": "site.splits.csv"}, {"test_fraction": 0.2}, {}])
def test_absent_patients_keep_their_split(tmp_path: Path, splits: dict[str, Any]) -> None:
    hospital, file = fixed_hospital(tmp_path)
    earlier, rows = file.read_text(), [*hospital.rows]
    config(tmp_path, {}, **({"splits": splits} if splits else {}))
    gone = {row["MRN"] for row in rows if row["Set"] == "test"} - {rows[0]["MRN"], rows[23]["MRN"]}
    hospital.rows[:] = [row for row in rows if row["MRN"] not in gone]
    hospital.rows[2]["MRN"] = hospital.rows[3]["MRN"] = "new"
    hospital.save()
    result = site_check(tmp_path, "--fix-splits", "--no-images")
    assert result.exit_code == 0, result.output
    assert file.read_text().startswith(earlier)
    assert [line.split(",")[0] for line in file.read_text()[len(earlier) :].splitlines()] == ["new"]
    assert f"also {len(gone) + 1} without a row" in " ".join(result.output.split())
    hospital.rows[:] = rows
    hospital.save()
    kept = file.read_text()
    assert site_check(tmp_path, "--fix-splits", "--no-images").exit_code == 0
    assert file.read_text() == kept


def test_new_patients_are_counted(tmp_path: Path) -> None:
    hospital, _ = fixed_hospital(tmp_path)
    config(tmp_path, {}, splits={"file": "site.splits.csv"})
    hospital.rows[2]["MRN"], hospital.rows[22]["MRN"] = "new", "newer"
    hospital.save()
    shown = " ".join(site_check(tmp_path, "--fix-splits", "--no-images").output.split())
    assert "2 new patients, the last rows of the file: 2 train. None of them is tested" in shown
    assert "Fixed by these files: patient without a split (2)" in shown
    assert "FAILED" not in shown


def test_alike_patient_follows_an_absent_one(tmp_path: Path) -> None:
    hospital, file = fixed_hospital(tmp_path)
    config(tmp_path, {}, splits={"file": "site.splits.csv"})
    file.write_text(file.read_text() + "0077,test\n")
    hospital.rows[2]["MRN"] = "77"
    hospital.save()
    assert site_check(tmp_path, "--fix-splits", "--no-images").exit_code == 0
    assert file.read_text().endswith("0077,test\n77,test\n")


def test_unclear_splits_file_is_not_replaced(tmp_path: Path) -> None:
    _, file = fixed_hospital(tmp_path)
    file.write_text(file.read_text().replace(",test", ",Test"))
    earlier = file.read_text()
    assert isinstance(site_check(tmp_path, "--fix-splits", "--no-images").exception, SiteError)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/site.splits.csv").write_text(earlier.replace(",Test", ",train"))
    file.write_text(earlier.replace(",Test", ",test"))
    config(tmp_path, {}, splits={"file": "site.splits.csv"})
    result = site_check(tmp_path, "--fix-splits", "--no-images", "--out", str(tmp_path / "other"))
    assert isinstance(result.exception, ChestfedError)


def test_crossing_patients_of_the_file_stay(tmp_path: Path) -> None:
    hospital, file = fixed_hospital(tmp_path)
    name = file.read_text().splitlines()[1].split(",")[0]
    file.write_text(f"patient,split\n{name},train\n{name.swapcase()},test\n")
    hospital.save()
    result = site_check(tmp_path, "--fix-splits", "--no-images")
    assert file.read_text().startswith(f"patient,split\n{name},train\n{name.swapcase()},test\n")
    assert "2 patients of the earlier file share a picture or the spelling" in " ".join(result.output.split())


def test_splits_file_excludes_other_ways(tmp_path: Path) -> None:
    with assert_refused(ConfigError, "invalid value", key="splits.file"):
        config(tmp_path, {}, splits={"official": False, "valid_fraction": 0.1, "file": "a.csv"})


def test_splits_elsewhere_find_code_book(tmp_path: Path) -> None:
    crossing(tmp_path)
    (tmp_path / "x.codes.csv").write_text("kind,value,MEANING,confirmed\nview,pa,pa,yes\n")
    config(tmp_path, {"codes": "x.codes.csv"})
    result = site_check(tmp_path, "--fix-splits", "--out", str(tmp_path / "out"))
    assert result.exit_code == 0, result.output


def test_patient_of_other_views_keeps_split(tmp_path: Path) -> None:
    hospital = crossing(tmp_path)
    hospital.rows[23] |= {"MRN": "alone", "Projection": "lateral", "Set": "test"}
    hospital.save()
    config(tmp_path, {}, views=["pa"])
    assert site_check(tmp_path, "--fix-splits").exit_code == 0
    splits = pd.read_csv(tmp_path / "site.splits.csv", dtype=str).set_index("patient")["split"]
    assert splits["alone"] == "test"
