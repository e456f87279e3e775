"""Set chestfed up and use it, on a machine with Python 3.11 or newer and nothing else.

    python3 bootstrap.py study [options]     run the source-addition study (options of `chestfed study`)
    python3 bootstrap.py test [options]      style, types and tests (options of pytest)
    python3 bootstrap.py install             only create the environment

The virtual environment is .venv beside this file ($CHESTFED_VENV names another place). It is made once and
brought up to date when pyproject.toml changes. Needs only Python's standard library.
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = Path(os.environ.get("CHESTFED_VENV", ROOT / ".venv")).resolve()
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")


def main() -> int:
    """Run one of the commands above; returns its exit status."""
    if sys.version_info < (3, 11):
        found = ".".join(map(str, sys.version_info[:2]))
        print(f"chestfed needs Python 3.11 or newer; this is {found}. Run this file with a newer python3.")
        return 1
    command, options = (sys.argv[1] if len(sys.argv) > 1 else "", sys.argv[2:])
    if command not in ("study", "test", "install"):
        print(__doc__)
        return 0 if command in ("-h", "--help", "help") else 2
    install("dev" if command == "test" else "")
    if command == "study":
        return subprocess.call([BIN / "chestfed", "study", *options])
    if command == "test":
        return test(options)
    print(f"ready: {BIN / 'chestfed'} --help")
    return 0


def install(extra: str) -> None:
    """Create or update the virtual environment; says nothing if it is up to date."""
    wanted = hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()
    stamp = VENV / f"chestfed-{extra or 'core'}.stamp"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    if not (BIN / ("python.exe" if os.name == "nt" else "python")).exists():
        print(f"creating a virtual environment in {VENV}", flush=True)
        run([sys.executable, "-m", "venv", VENV])
    print("installing chestfed and what it needs (about 2 GB with PyTorch; once)", flush=True)
    target = f"{ROOT}[{extra}]" if extra else str(ROOT)
    pip = [
        BIN / "python",
        "-m",
        "pip",
        "--disable-pip-version-check",
        "install",
        "--quiet",
        "--editable",
        target,
    ]
    run(pip)
    stamp.write_text(wanted)


def test(options: list[str]) -> int:
    """Style, types, tests: all are run, the first failure decides."""
    checks = [
        [BIN / "ruff", "check", "."],
        [BIN / "ruff", "format", "--check", "."],
        [BIN / "mypy"],
        [BIN / "python", "-m", "pytest", "-m", "not slow and not mutants", "-n", "2", *options],
    ]
    status = 0
    for check in checks:
        print("$", *(Path(part).name if isinstance(part, Path) else part for part in check), flush=True)
        status = subprocess.call(check, cwd=ROOT) or status
    return status


def run(command: list) -> None:
    """Run a command; stop with its status and a hint if it fails."""
    status = subprocess.call(command)
    if status:
        print(f"this step failed: {' '.join(map(str, command))}\nMend what it reports above and start again.")
        raise SystemExit(status)


if __name__ == "__main__":
    raise SystemExit(main())
