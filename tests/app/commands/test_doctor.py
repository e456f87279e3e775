"""`chestfed doctor`: what it reports, and when it exits with 1."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from chestfed.app.cli import app
from chestfed.app.commands.machine import doctor as module


def run(*words: str) -> tuple[int, dict[str, tuple[str, str]]]:
    result = CliRunner().invoke(app, ["doctor", "--json", *words])
    return result.exit_code, {
        line["subject"]: (line["state"], line["text"]) for line in json.loads(result.stdout)["result"]["findings"]
    }


@pytest.fixture(autouse=True)
def private_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CHESTFED_KEY_FILE", raising=False)
    monkeypatch.setattr(module, "default_file", lambda: tmp_path / "key")


def test_this_machine_can_run_the_study(tmp_path: Path) -> None:
    code, lines = run("--out", str(tmp_path / "not" / "yet"))
    assert code == 0
    assert {state for state, _ in lines.values()} <= {"ok", "note"}
    assert lines["onnx"] == ("ok", "ONNX models")
    assert lines["key"][0] == "note"


def test_too_little_memory_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_count_memory", lambda: 1 << 30)
    code, lines = run()
    assert code == 1
    assert lines["memory"][0] == "problem"


def test_no_site_in_data_is_a_problem(tmp_path: Path) -> None:
    code, lines = run("--data", str(tmp_path))
    assert (code, lines["data"][0]) == (1, "problem")
    assert "no site" in lines["data"][1]
    (tmp_path / "chexpert").mkdir()
    state, text = run("--data", str(tmp_path))[1]["data"]
    assert state == "problem"
    assert "1 folder not recognized as a site" in text


def test_only_folders_with_label_files_are_sites(tmp_path: Path) -> None:
    for name in ("chexpert", "synthetic-vindr", "holidays", ".git"):
        (tmp_path / name).mkdir()
    (tmp_path / "chexpert" / "train.csv.gz").touch()
    (tmp_path / "holidays" / "train.csv").touch()
    state, text = run("--data", str(tmp_path))[1]["data"]
    assert state == "ok"
    assert text.startswith("1 site: chexpert; 2 folders not recognized as a site (")
    assert "holidays" not in text  # which the report of a defect would carry away


def test_absent_and_old_libraries_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    def give_version(name: str) -> str:
        if name == "onnxruntime":
            raise module.PackageNotFoundError(name)
        return "0.1"

    monkeypatch.setattr(module, "version", give_version)
    code, lines = run()
    assert code == 0
    assert lines["onnx"][0] == "note"
    assert "not installed" in lines["onnx"][1]
    assert "submitit 0.1" in lines["cluster"][1]


def test_report_names_no_folder_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHESTFED_KEY_FILE", str(tmp_path / "missing" / "key"))
    result = CliRunner().invoke(app, ["doctor", "--out", str(tmp_path), "--data", str(tmp_path / "absent")])
    assert result.exit_code == 1
    assert str(tmp_path) not in result.stdout
