"""bootstrap.py: what it installs, and when."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def bootstrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script in a repository of its own, whose commands are noted in `ran` and not run."""
    spec = importlib.util.spec_from_file_location("bootstrap", ROOT / "bootstrap.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(module, "PYTHON", tmp_path / ".venv" / "bin" / "python")
    monkeypatch.setattr(module, "LOCKS", tmp_path / "requirements")
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements" / "core.txt").write_text("a==1\n")
    module.ran = []

    def note(command: list[object]) -> None:
        module.ran.append(" ".join(map(str, command)))
        (tmp_path / ".venv" / "bin").mkdir(parents=True, exist_ok=True)
        (tmp_path / ".venv" / "bin" / "python").touch()

    monkeypatch.setattr(module, "run", note)
    return module


def test_locked_files_are_checked_by_hash_and_then_the_project_with_the_locked_versions(bootstrap: ModuleType) -> None:
    bootstrap.install("dev")
    venv, locked, project = bootstrap.ran
    assert " -m venv " in venv
    assert "--require-hashes" in locked
    assert "--no-deps" in locked
    assert locked.endswith("requirements/dev.txt")
    assert f"--constraint {bootstrap.LOCKS / 'constraints.txt'}" in project
    assert "--require-hashes" not in project
    assert project.endswith(f"--editable {bootstrap.ROOT}[dev]")


def test_nothing_is_installed_twice_until_the_project_or_its_lock_changes(bootstrap: ModuleType) -> None:
    bootstrap.install("")
    for file, text in (("pyproject.toml", "[project]\nx = 1\n"), ("requirements/core.txt", "a==2\n")):
        bootstrap.ran.clear()
        bootstrap.install("")
        assert bootstrap.ran == []
        (bootstrap.ROOT / file).write_text(text)
        bootstrap.install("")
        assert [" -m venv " in command for command in bootstrap.ran] == [False, False]


def test_a_failed_step_ends_the_script_and_is_done_again(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(command: list[object]) -> None:
        raise SystemExit(1)

    with monkeypatch.context() as patch:
        patch.setattr(bootstrap, "run", fail)
        with pytest.raises(SystemExit):
            bootstrap.install("")
    bootstrap.install("")
    assert len(bootstrap.ran) == 3


def test_an_unknown_command_prints_the_usage_and_is_an_error(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, status in (([], 2), (["--help"], 0), (["tset"], 2)):
        monkeypatch.setattr("sys.argv", ["bootstrap.py", *words])
        assert bootstrap.main() == status
        assert "bootstrap.py study" in capsys.readouterr().out
    assert bootstrap.ran == []


def test_every_check_is_run_and_any_of_them_fails_the_whole(
    bootstrap: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bootstrap, "BIN", tmp_path)
    monkeypatch.setattr(bootstrap, "PYTHON", tmp_path / "python")
    for failing in ("", "ruff", "mypy", "python"):
        for name in ("ruff", "mypy", "python"):
            (tmp_path / name).write_text(f"#!/bin/sh\necho {name} $* ran\nexit {3 * (name == failing)}\n")
            (tmp_path / name).chmod(0o755)
        assert bootstrap.test(["-k", "x"]) == (3 if failing else 0)
        told = capfd.readouterr().out
        for part in ("ruff check . ran", "ruff format --check . ran", "mypy ran", "loadfile -k x ran"):
            assert part in told
