"""The notebooks of the documentation: they run, and what is stored in them is what their code gave."""

from __future__ import annotations

import base64
import json
import re
import shutil
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode

from docs.notebooks import execute
from docs.notebooks.execute import digest_of_code
from tests.results.tables.finished_runs import write_run

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def kinds_of_outputs(notebook: NotebookNode) -> list[list[str]]:
    """Per code cell the kinds of what it shows."""
    return [
        [",".join(sorted(output.get("data", {output.output_type: ""}))) for output in cell.outputs]
        for cell in code_cells(notebook)
    ]


@pytest.fixture(params=NOTEBOOKS, ids=lambda file: file.stem)
def stored(request: pytest.FixtureRequest) -> Path:
    return request.param


def test_there_is_a_notebook() -> None:
    assert [file.name for file in NOTEBOOKS] == ["read_a_study.ipynb", "train_your_own.ipynb"]


def test_cells_were_run_in_order(stored: Path) -> None:
    notebook = nbformat.read(stored, as_version=4)
    nbformat.validate(notebook)
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert {output.output_type for output in outputs} <= {"execute_result", "display_data", "stream"}
    assert not [output.text for output in outputs if output.get("name") == "stderr"]


def test_outputs_are_of_the_stored_code(stored: Path) -> None:
    notebook = nbformat.read(stored, as_version=4)
    assert notebook.metadata["executed_code"] == digest_of_code(notebook), (
        "the code was changed after it was run: python docs/notebooks/execute.py"
    )


def test_notebook_is_small_and_anonymous(stored: Path) -> None:
    text = stored.read_text(encoding="utf-8")
    assert len(text.encode()) < 300_000
    notebook = json.loads(text)
    shown = json.dumps([[cell["source"], cell.get("outputs")] for cell in notebook["cells"]])
    pictures = re.findall(r'"image/png": "([^"]*)"', shown)
    assert len(pictures) >= (4 if stored.stem == "read_a_study" else 1)
    assert all(base64.b64decode(picture.replace("\\n", "")).startswith(b"\x89PNG") for picture in pictures)
    shown = re.sub(r'"image/png": "[^"]*"', "", shown)
    assert not re.search(r"/(home|root|tmp|work|Users|opt|var|usr)/", shown)
    assert not re.search(r"patient\d{4,}|\d{8}_\d{3}|\bp1\d{7}\b", shown)
    assert set(notebook["metadata"]) == {"kernelspec", "language_info", "executed_code"}


@pytest.mark.slow
def test_notebooks_run_as_stored(tiny_hospitals: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_run(tmp_path / "runs" / "synthetic-study")
    here = tmp_path / "docs" / "notebooks"
    unwanted = shutil.ignore_patterns("__pycache__", "runs", "cache", "synthetic_hospitals")
    shutil.copytree(FOLDER, here, ignore=unwanted)
    (here / "synthetic_hospitals").symlink_to(tiny_hospitals)
    monkeypatch.setenv("PYTHONWARNINGS", "")  # which is set for the kernels
    execute.main(here)
    for stored in NOTEBOOKS:
        again = nbformat.read(here / stored.name, as_version=4)
        assert kinds_of_outputs(again) == kinds_of_outputs(nbformat.read(stored, as_version=4)), stored.name
    executed = nbformat.read(here / "read_a_study.ipynb", as_version=4)
    tables = [
        output.data["text/html"]
        for cell in code_cells(executed)
        for output in cell.outputs
        if "text/html" in output.get("data", {})
    ]
    auc = json.loads((run / "k2" / "rounds.jsonl").read_text().splitlines()[-1])["auc"]["edema"]
    assert "edema" in tables[0]
    assert f"{auc:.3f}" in tables[0]
