"""docs/examples/python: the scripts of docs/python.md run as shown."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

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
