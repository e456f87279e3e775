"""Rewrite the locked requirements beside this file: `python3 bootstrap.py lock [--upgrade]`.

    core.txt          what chestfed needs, each file with its hashes
    dev.txt           the same, and what the tests, the documentation and this script need
    constraints.txt   the versions of all of them, without hashes

One resolution serves Linux, macOS and Windows and every supported Python. PyTorch and the CUDA packages that its
CUDA build pulls in are in constraints.txt only: the same version is a different file on a CPU-only index, so that
a hash would forbid one of the builds, and locked CUDA packages would be installed beside a CPU build.
Without --upgrade, locked versions stay unless pyproject.toml rules them out.
"""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent / "pyproject.toml"
BUILD_ONLY = ["editables"]  # hatchling needs it for an editable install
TORCH = re.compile(r"(torch|triton|nvidia-.*|cuda-.*)==")


def main(options: list[str]) -> int:
    """Resolve, and write the three files; returns the exit status."""
    if set(options) - {"--upgrade"}:
        print(__doc__)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        dev = resolve(Path(folder) / "dev.txt", HERE / "constraints.txt", ["--extra", "dev", *options])
        constraints = [re.sub(r"( \\)?\n.*", "", block, flags=re.DOTALL) for block in dev]
        write("constraints.txt", [f"{line}\n" for line in constraints])
        core = resolve(Path(folder) / "core.txt", HERE / "constraints.txt", [])
    write("dev.txt", [block for block in dev if not TORCH.match(block)])
    write("core.txt", [block for block in core if not TORCH.match(block)])
    print(f"Locked {len(dev)} versions in {HERE}")
    return 0


def resolve(output: Path, preferred: Path, options: list[str]) -> list[str]:
    """The resolved requirements, each a block of lines with its hashes; `preferred` gives versions to keep."""
    if preferred.exists():
        output.write_text(preferred.read_text(encoding="utf-8"), encoding="utf-8")
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))
    build = "\n".join([*project["build-system"]["requires"], *BUILD_ONLY])
    python = project["project"]["requires-python"].removeprefix(">=")
    uv = Path(sysconfig.get_path("scripts")) / "uv"
    command = [uv, "pip", "compile", "--quiet", "--universal", "--python-version", python, "--generate-hashes"]
    command += ["--no-build", "--no-header", "--no-annotate", "--output-file", output, *options, PROJECT, "-"]
    subprocess.run(command, input=build, text=True, check=True)
    return re.findall(r"^\S.*\n(?:[ \t].*\n)*", output.read_text(encoding="utf-8"), re.MULTILINE)


def write(name: str, blocks: list[str]) -> None:
    """Write one of the files, with the command that renews it on top."""
    head = "# Written by `python3 bootstrap.py lock`; see requirements/lock.py. Do not edit.\n"
    (HERE / name).write_text(head + "".join(blocks), encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
