"""docs/examples/python: the scripts of docs/python.md run as shown."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

import chestfed
from chestfed.results.tables.collect import collect, write_comparison
from chestfed.results.tables.run_folder import RunFolder
from tests.results.tables.finished_runs import write_run

FOLDER = Path(__file__).parents[2] / "docs" / "examples" / "python"
#: Script -> what its output has.
SCRIPTS = {
    "compare_methods": ("slow", "by hand", "p"),
    "evaluate_network": ("cardiomegaly", "low"),
    "own_loop": ("edema", "mean"),
    "own_tensors": ("sign_sgd", "fedavg", "bright"),
    "sweep_clients": ("auc_positive", "weights"),
}


def test_every_script_is_run() -> None:
    assert sorted(file.stem for file in FOLDER.glob("*.py")) == sorted(SCRIPTS)
    page = (FOLDER.parents[1] / "python.md").read_text(encoding="utf-8")
    assert all(f"examples/python/{name}.py" in page for name in SCRIPTS)


def test_latex_table_has_all_methods(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / f"{name}{seed}", seed=seed, method=name) for name in ("a_1", "b_2") for seed in (1, 2)]
    folder = write_comparison(collect([RunFolder(run) for run in runs], "Two methods"), tmp_path)
    page = (FOLDER.parents[1] / "python.md").read_text(encoding="utf-8")
    snippet = page[page.index("comparison = chestfed.Comparison.load") :].split("```")[0]
    *statements, table = snippet.replace("runs/comparison-0123456789ab", folder.as_posix()).strip().splitlines()
    names = {"chestfed": chestfed}
    exec("\n".join(statements), names)
    latex = eval(table, names)
    rows = [line.split("&") for line in latex.splitlines() if "&" in line]
    assert {row[0].split(" (")[0].strip() for row in rows} >= {r"a\_1, K=1", r"b\_2, K=1"}, latex
    assert not re.search(r"(?<!\\)_", latex)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_script_runs_and_is_short(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = FOLDER / f"{name}.py"
    assert file.read_text(encoding="utf-8").count("\n") <= 40
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(file), run_name="__main__")
    out = capsys.readouterr().out
    assert all(word in out for word in SCRIPTS[name]), out
