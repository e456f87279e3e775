"""Install chestfed and run it, on a machine that has only Python 3.11 or newer.

    python3 bootstrap.py study [options]     run the source-addition study (options of `chestfed study`; without any,
                                             one model per core at a time)
    python3 bootstrap.py test [options]      check style and types, run the tests (options of pytest)
    python3 bootstrap.py docs                build the documentation in build/site
    python3 bootstrap.py install             only create or update the environment
    python3 bootstrap.py install federation  the same with Flower, best in an environment of its own
    python3 bootstrap.py lock [--upgrade]    renew the locked versions after a change of pyproject.toml

The virtual environment is .venv beside this file; set CHESTFED_VENV to put it elsewhere. It is created once and
updated when pyproject.toml or the files in requirements/ change. This script uses only the standard library.
"""

import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = Path(os.environ.get("CHESTFED_VENV", ROOT / ".venv")).resolve()
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
PYTHON = BIN / ("python.exe" if os.name == "nt" else "python")
LOCKS = ROOT / "requirements"
MOST_JOBS = 4  # models of the default study that are trained at a time, each with its images in memory
MOST_WORKERS = 8  # processes that test, each with one to two GB of memory
EXTRAS = {"core": "", "dev": "dev", "federation": "flower"}  # locked requirements, and the extra that they are of


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
    if command == "install" and options not in ([], ["federation"]):
        print(f"install takes `federation` or nothing: {' '.join(options)}")
        return 2
    if command == "lock":
        return lock(options)
    install("dev" if command in ("test", "docs") else "federation" if command == "install" and options else "core")
    if command == "study":
        cores = count_cores()
        jobs = [] if options or cores == 1 else ["--jobs", str(min(cores, MOST_JOBS))]
        words = [PYTHON, "-P", "-m", "chestfed", "study", *jobs, *options]  # -P: not a chestfed of the working folder
        if os.name != "nt":
            os.execv(PYTHON, words)  # signals reach the study, which needs time to stop
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        return subprocess.call(words)
    if command == "test":
        return test(options)
    if command == "docs":
        return subprocess.call([PYTHON, ROOT / "docs" / "build.py", *options])
    print(f"Installed: {BIN / 'chestfed'} --help")
    return 0


def install(name: str) -> None:
    """Create or update the virtual environment with requirements/NAME.txt; silent if it is up to date."""
    inputs = [ROOT / "pyproject.toml", *sorted(LOCKS.glob("*.txt"))]
    places = f"{ROOT} {VENV}".encode(errors="surrogateescape")  # scripts name them: a moved environment is updated
    wanted = hashlib.sha256(b"".join([places, *(path.read_bytes() for path in inputs)])).hexdigest()
    stamp = VENV / f"chestfed-{name}.stamp"
    if stamp.exists() and stamp.read_text() == wanted and python_runs("import pip"):
        return
    print("Installing chestfed and its dependencies (2 GB, 6 GB with PyTorch's CUDA build; only once)", flush=True)
    install_locked(name)
    print("PyTorch (the larger download) and chestfed", flush=True)
    # PyTorch, which the lock leaves to the machine (CPU or CUDA build), and the package itself.
    target = f"{ROOT}[{EXTRAS[name]}]" if EXTRAS[name] else str(ROOT)
    pip_install("--no-build-isolation", "--constraint", LOCKS / "torch.txt", "--editable", target)
    stamp.write_text(wanted)


def install_locked(name: str) -> None:
    """Create the virtual environment if needed; install requirements/NAME.txt and check every file's hash."""
    removed = PYTHON.is_symlink() and not PYTHON.exists()  # the Python that it was made with
    if not removed and not python_runs("import pip"):  # new, or its creation was interrupted
        print(f"Creating a virtual environment in {VENV}", flush=True)
        run([PYTHON if python_runs("import venv") else sys.executable, "-m", "venv", VENV])
    if not python_runs("import pip, sys; sys.exit(sys.version_info < (3, 11))"):
        print(f"{VENV} is not an environment of Python 3.11 or newer with pip.")
        print("Delete it, or set CHESTFED_VENV to another folder, and rerun.")
        raise SystemExit(1)
    print(f"Packages of requirements/{name}.txt", flush=True)
    pip_install("--no-deps", "--require-hashes", "--only-binary", ":all:", "--requirement", LOCKS / f"{name}.txt")


def python_runs(code: str) -> bool:
    """Whether the environment has a Python that runs this code."""
    try:
        return subprocess.call([PYTHON, "-c", code], stderr=subprocess.DEVNULL) == 0
    except OSError:
        return False


def pip_install(*arguments: object) -> None:
    """Run `pip install` in the virtual environment, and say how long it took."""
    quiet = [] if sys.stdout.isatty() else ["-qq"]  # somebody who waits sees what is downloaded; errors are never quiet
    started = time.monotonic()
    run([PYTHON, "-m", "pip", "--disable-pip-version-check", "install", *quiet, *arguments])
    print(f"  installed in {time.monotonic() - started:.0f} s", flush=True)


def lock(options: list) -> int:
    """Resolve pyproject.toml again and rewrite the files in requirements/."""
    install_locked("dev")
    return subprocess.call([PYTHON, LOCKS / "lock.py", *options], cwd=ROOT)


def test(options: list) -> int:
    """Run style, types and tests; all of them, and fail if one fails. As many processes test as cores may be used."""
    types = subprocess.Popen(  # one core for most of a minute: beside the tests, which say later how they ended
        [PYTHON, "-m", "mypy"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    spread = ["-n", str(min(count_cores(), MOST_WORKERS)), "--no-loadscope-reorder", "--dist", "loadfile"]
    checks = [
        [PYTHON, "-m", "ruff", "check", "."],
        [PYTHON, "-m", "ruff", "format", "--check", "."],
        [PYTHON, "-m", "pytest", "-m", "not slow and not browser", *spread, *options],
    ]
    status = 0
    for check in checks:
        print("$", *(Path(part).name if isinstance(part, Path) else part for part in check), flush=True)
        status = subprocess.call(check, cwd=ROOT) or status
    print("$ mypy", types.communicate()[0], sep="\n", end="", flush=True)
    return types.returncode or status


def count_cores() -> int:
    """Cores that this process may use: of a container or a job those that it was given."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS, Windows
        return os.cpu_count() or 1


def run(command: list) -> None:
    """Run a command; exit with its status and a hint if it fails."""
    status = subprocess.call(command)
    if status:
        print(f"This step failed: {' '.join(map(str, command))}\nFix the error above and rerun.")
        raise SystemExit(status)


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except KeyboardInterrupt:
        print("\nInterrupted. Rerun to continue.")
        raise SystemExit(130) from None
