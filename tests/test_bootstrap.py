"""bootstrap.py: what it installs, and when."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
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
    monkeypatch.setattr(module, "python_runs", lambda code: module.PYTHON.exists())
    module.ran = []

    def note(command: list[object]) -> None:
        module.ran.append(" ".join(map(str, command)))
        (tmp_path / ".venv" / "bin").mkdir(parents=True, exist_ok=True)
        (tmp_path / ".venv" / "bin" / "python").touch()

    monkeypatch.setattr(module, "run", note)
    return module


def test_locked_files_are_checked_by_hash(bootstrap: ModuleType) -> None:
    bootstrap.install("dev")
    venv, locked, project = bootstrap.ran
    assert " -m venv " in venv
    assert "--require-hashes" in locked
    assert "--no-deps" in locked
    assert locked.endswith("requirements/dev.txt")
    assert f"--constraint {bootstrap.LOCKS / 'torch.txt'}" in project
    assert "--require-hashes" not in project
    assert project.endswith(f"--editable {bootstrap.ROOT}[dev]")


def test_federation_has_a_lock(bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["bootstrap.py", "install", "federation"])
    assert bootstrap.main() == 0
    _, locked, project = bootstrap.ran
    assert "--require-hashes" in locked
    assert locked.endswith("requirements/federation.txt")
    assert project.endswith("[flower]")


def test_only_changes_are_installed_again(bootstrap: ModuleType) -> None:
    bootstrap.install("core")
    for file, text in (("pyproject.toml", "[project]\nx = 1\n"), ("requirements/core.txt", "a==2\n")):
        bootstrap.ran.clear()
        bootstrap.install("core")
        assert bootstrap.ran == []
        (bootstrap.ROOT / file).write_text(text)
        bootstrap.install("core")
        assert [" -m venv " in command for command in bootstrap.ran] == [False, False]


def test_failed_step_is_repeated(bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(command: list[object]) -> None:
        raise SystemExit(1)

    with monkeypatch.context() as patch:
        patch.setattr(bootstrap, "run", fail)
        with pytest.raises(SystemExit):
            bootstrap.install("core")
    bootstrap.install("core")
    assert len(bootstrap.ran) == 3


def test_moved_environment_is_updated(bootstrap: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bootstrap.install("core")
    moved = (tmp_path / ".venv").rename(tmp_path / "moved")
    monkeypatch.setattr(bootstrap, "VENV", moved)
    monkeypatch.setattr(bootstrap, "PYTHON", moved / "bin" / "python")
    bootstrap.ran.clear()
    bootstrap.install("core")
    assert len(bootstrap.ran) == 2


def test_partial_environment_is_completed(bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    bootstrap.PYTHON.parent.mkdir(parents=True)
    bootstrap.PYTHON.touch()
    monkeypatch.setattr(bootstrap, "python_runs", lambda code: bool(bootstrap.ran))  # no pip before the first step
    bootstrap.install("core")
    assert " -m venv " in bootstrap.ran[0]


@pytest.mark.parametrize("older", [True, False])
def test_old_python_is_refused(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], older: bool
) -> None:
    bootstrap.PYTHON.parent.mkdir(parents=True)
    bootstrap.PYTHON.symlink_to(sys.executable if older else "removed")
    monkeypatch.setattr(bootstrap, "python_runs", lambda code: older and "version" not in code)
    with pytest.raises(SystemExit):
        bootstrap.install("core")
    assert bootstrap.ran == []
    assert "Delete it, or set CHESTFED_VENV to another folder" in capsys.readouterr().out


@pytest.mark.parametrize(("cores", "workers"), [(1, "1"), (4, "4"), (96, "8")])
def test_tests_use_the_cores(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], cores: int, workers: str
) -> None:
    monkeypatch.setattr(bootstrap, "PYTHON", "echo")
    monkeypatch.setattr(bootstrap, "count_cores", lambda: cores)
    assert bootstrap.test(["-k", "codasca"]) == 0
    words = next(line.split() for line in capfd.readouterr().out.splitlines() if line.startswith("-m pytest"))
    assert words[words.index("-n") + 1] == workers
    assert words[words.index("--dist") + 1] == "loadfile"
    assert words[-2:] == ["-k", "codasca"]  # behind the others, so that -n can be chosen


def test_granted_cores_are_counted(bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {3, 5, 7}, raising=False)
    assert bootstrap.count_cores() == 3


def test_study_replaces_the_process(tmp_path: Path) -> None:
    """Ctrl-C would otherwise kill it while it stops, and another signal would leave it running."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho $$\nexit 3\n")
    python.chmod(0o755)
    code = "import sys, bootstrap as b; b.install = bool; b.PYTHON = sys.argv.pop(); raise SystemExit(b.main())"
    command = [sys.executable, "-c", code, "study", python]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as done:
        assert done.communicate()[0].split() == [str(done.pid)]
    assert done.returncode == 3


def test_python_3_6_can_parse_the_script() -> None:
    tree = ast.parse((ROOT / "bootstrap.py").read_text(encoding="utf-8"), feature_version=(3, 6))
    for node in ast.walk(tree):
        assert not (isinstance(node, ast.ImportFrom) and node.module == "__future__")
        assert not isinstance(getattr(node, "annotation", None), ast.Subscript | ast.BinOp)


def test_unknown_command_prints_the_usage(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, status in (([], 2), (["--help"], 0), (["tset"], 2), (["install", "--extra"], 2)):
        monkeypatch.setattr("sys.argv", ["bootstrap.py", *words])
        assert bootstrap.main() == status
        assert ("takes `federation`" if "install" in words else "bootstrap.py study") in capsys.readouterr().out
    assert bootstrap.ran == []


def test_any_failing_check_fails_the_whole(
    bootstrap: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bootstrap, "PYTHON", tmp_path / "python")
    for failing in ("none", "ruff", "mypy", "pytest"):
        (tmp_path / "python").write_text(f"#!/bin/sh\necho $* ran\ncase $2 in {failing}) exit 3;; esac\n")
        (tmp_path / "python").chmod(0o755)
        assert bootstrap.test(["-k", "x"]) == (0 if failing == "none" else 3)
        output = capfd.readouterr().out
        for part in ("ruff check . ran", "ruff format --check . ran", "-m mypy ran", "loadfile -k x ran"):
            assert part in output


def test_every_install_step_has_a_line(bootstrap: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    bootstrap.install("core")
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if "requirements/core.txt" in line or line.startswith("PyTorch")] == lines[2:5:2]
    assert all(" -qq " in command for command in bootstrap.ran[1:])  # warnings of pip are not shown
