"""Install chestfed and run it, on a machine that has only Python 3.11 or newer.

    python3 bootstrap.py study [options]     run the source-addition study (options of `chestfed study`)
    python3 bootstrap.py test [options]      check style and types, run the tests (options of pytest)
    python3 bootstrap.py docs                build the documentation in build/site
    python3 bootstrap.py install             only create or update the environment
    python3 bootstrap.py lock [--upgrade]    renew the locked versions after a change of pyproject.toml

The virtual environment is .venv beside this file; set CHESTFED_VENV to put it elsewhere. It is created once and
updated when pyproject.toml or the files in requirements/ change. This script uses only the standard library.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = Path(os.environ.get("CHESTFED_VENV", ROOT / ".venv")).resolve()
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
PYTHON = BIN / ("python.exe" if os.name == "nt" else "python")
LOCKS = ROOT / "requirements"


def main() -> int:
    """Run one of the commands above; returns its exit status."""
    if sys.version_info < (3, 11):
        found = ".".join(map(str, sys.version_info[:2]))
        print(f"chestfed needs Python 3.11 or newer; this is {found}. Run this file with a newer python3.")
        return 1
    command, options = (sys.argv[1] if len(sys.argv) > 1 else "", sys.argv[2:])
    if command not in ("study", "test", "docs", "install", "lock"):
        print(__doc__)
        return 0 if command in ("-h", "--help", "help") else 2
    if command == "lock":
        return lock(options)
    install("dev" if command in ("test", "docs") else "")
    if command == "study":
        return subprocess.call([BIN / "chestfed", "study", *options])
    if command == "test":
        return test(options)
    if command == "docs":
        return subprocess.call([PYTHON, ROOT / "docs" / "build.py", *options])
    print(f"Installed: {BIN / 'chestfed'} --help")
    return 0


def install(extra: str) -> None:
    """Create or update the virtual environment; silent if it is up to date."""
    inputs = [ROOT / "pyproject.toml", *sorted(LOCKS.glob("*.txt"))]
    wanted = hashlib.sha256(b"".join(path.read_bytes() for path in inputs)).hexdigest()
    stamp = VENV / f"chestfed-{extra or 'core'}.stamp"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    print("Installing chestfed and its dependencies (about 2 GB with PyTorch; only once)", flush=True)
    install_locked(extra or "core")
    # PyTorch, which the lock leaves to the machine (CPU or CUDA build), and the package itself.
    target = f"{ROOT}[{extra}]" if extra else str(ROOT)
    pip_install("--no-build-isolation", "--constraint", LOCKS / "constraints.txt", "--editable", target)
    stamp.write_text(wanted)


def install_locked(name: str) -> None:
    """Create the virtual environment if needed; install requirements/NAME.txt and check every file's hash."""
    if not PYTHON.exists():
        print(f"Creating a virtual environment in {VENV}", flush=True)
        run([sys.executable, "-m", "venv", VENV])
    pip_install("--no-deps", "--require-hashes", "--only-binary", ":all:", "--requirement", LOCKS / f"{name}.txt")


def pip_install(*arguments: str | Path) -> None:
    """Run `pip install` in the virtual environment."""
    run([PYTHON, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *arguments])


def lock(options: list[str]) -> int:
    """Resolve pyproject.toml again and rewrite the files in requirements/."""
    install_locked("dev")
    return subprocess.call([PYTHON, LOCKS / "lock.py", *options], cwd=ROOT)


def test(options: list[str]) -> int:
    """Run style, types and tests; all of them, and fail if one fails."""
    types = subprocess.Popen(  # one core for most of a minute: beside the tests, which say later how they ended
        [BIN / "mypy"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    checks = [
        [BIN / "ruff", "check", "."],
        [BIN / "ruff", "format", "--check", "."],
        [PYTHON, "-m", "pytest", "-m", "not slow", "-n", "2", "--no-loadscope-reorder", "--dist", "loadfile", *options],
    ]
    status = 0
    for check in checks:
        print("$", *(Path(part).name if isinstance(part, Path) else part for part in check), flush=True)
        status = subprocess.call(check, cwd=ROOT) or status
    print("$ mypy", types.communicate()[0], sep="\n", end="", flush=True)
    return types.returncode or status


def run(command: list) -> None:
    """Run a command; exit with its status and a hint if it fails."""
    status = subprocess.call(command)
    if status:
        print(f"This step failed: {' '.join(map(str, command))}\nFix the error above and rerun.")
        raise SystemExit(status)


if __name__ == "__main__":
    raise SystemExit(main())
