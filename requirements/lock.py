"""Rewrite the locked requirements beside this file: `python3 bootstrap.py lock [--upgrade]`.

    core.txt          what chestfed needs, each file with its hashes
    dev.txt           the same, and what the tests, the documentation and this script need
    constraints.txt   the versions of all of them, without hashes
    federation.txt    what chestfed needs with Flower, which pins older versions of some packages
    audit.txt         pip-audit, which looks the others up in advisory databases
    torch.txt         PyTorch and CUDA, of all of these, without hashes

One resolution serves Linux, macOS and Windows and every supported Python. PyTorch and the CUDA packages that its
CUDA build pulls in have no hashes: the same version is a different file on a CPU-only index, so that
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
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent / "pyproject.toml"
BUILD_ONLY = ["editables"]  # hatchling needs it for an editable install
TORCH = re.compile(r"(torch|triton|nvidia-.*|cuda-.*)==")


def main(options: list[str]) -> int:
    """Resolve, and write the files; returns the exit status."""
    if set(options) - {"--upgrade"}:
        print(__doc__)
        return 2
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))
    build = [*project["build-system"]["requires"], *BUILD_ONLY]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        locked = HERE / "constraints.txt"
        dev = resolve(folder / "dev.txt", [locked], build, [PROJECT, "--extra", "dev", *options])
        versions = [re.sub(r"( \\)?\n.*", "\n", block, flags=re.DOTALL) for block in dev]
        write("constraints.txt", versions)
        write("torch.txt", [line for line in versions if TORCH.match(line)])
        core = resolve(folder / "core.txt", [locked], build, [PROJECT])
        flower = [PROJECT, "--extra", "flower", "--constraint", HERE / "torch.txt"]
        preferred = [locked] if options else [locked, HERE / "federation.txt"]  # as the others where Flower lets them
        federation = resolve(folder / "federation.txt", preferred, build, flower)
        audit = resolve(folder / "audit.txt", [HERE / "audit.txt"], ["pip-audit"], options)
    for file, blocks in {"dev": dev, "core": core, "federation": federation, "audit": audit}.items():
        write(f"{file}.txt", [block for block in blocks if not TORCH.match(block)])
    print(f"Locked {len(dev)} versions in {HERE}")
    return 0


def resolve(output: Path, preferred: list[Path], requirements: list[str], options: Sequence[str | Path]) -> list[str]:
    """The resolved requirements, each a block of lines with its hashes; `preferred` gives versions to keep."""
    output.write_text("".join(file.read_text(encoding="utf-8") for file in preferred if file.exists()), "utf-8")
    python = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["requires-python"].removeprefix(">=")
    uv = Path(sysconfig.get_path("scripts")) / "uv"
    command = [uv, "pip", "compile", "--quiet", "--universal", "--python-version", python, "--generate-hashes"]
    command += ["--no-build", "--no-header", "--no-annotate", "--output-file", output, *options, "-"]
    subprocess.run(command, input="\n".join(requirements), text=True, check=True)
    return re.findall(r"^\S.*\n(?:[ \t].*\n)*", output.read_text(encoding="utf-8"), re.MULTILINE)


def write(name: str, blocks: list[str]) -> None:
    """Write one of the files, with the command that renews it on top."""
    head = "# Written by `python3 bootstrap.py lock`; see requirements/lock.py. Do not edit.\n"
    (HERE / name).write_text(head + "".join(blocks), encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
