"""`chestfed doctor`."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple

import typer

from chestfed._version import __version__
from chestfed.app.commands import options
from chestfed.core.bundled import list_sites
from chestfed.core.console import open_console, plural, show_answer, text_table
from chestfed.core.disk import size_text
from chestfed.core.errors import ChestfedError
from chestfed.core.output import add_result
from chestfed.core.processes.workers import cores
from chestfed.core.pseudonyms import VARIABLE, default_file, read_key

State = Literal["ok", "note", "problem"]
_GIGABYTE: Final = 1 << 30
#: Bytes that the default study needs.
_MEMORY, _DISK = 4 * _GIGABYTE, 2 * _GIGABYTE
_EXTRAS: Final = {
    "collections": "image collections of torchvision",
    "onnx": "ONNX models",
    "cluster": "Slurm jobs",
    "flower": "federations",
    "privacy": "privacy accounting",
}


class Finding(NamedTuple):
    """One line of the report."""

    subject: str
    state: State
    text: str


def doctor(
    out: Annotated[Path, typer.Option(help="Folder for results; its disk is checked.")] = Path("runs"),
    data: options.Data = None,
) -> None:
    """Report what this machine has: Python, cores, memory, disk, GPU, optional parts, and the key for pseudonyms.

    Exits with 1 if something prevents the default study. Add its output to a report of a defect: it has no names of
    users, hosts or patients, and counts the folders in --data that belong to no bundled site without their names.

    Example:

        chestfed doctor --data data
    """
    findings = [*_check_machine(out, data), *_check_extras(), _check_key()]
    add_result(findings=[finding._asdict() for finding in findings])
    table = text_table("", ("", "", "what"), (), [(f.subject, f.state, f.text) for f in findings], light=True)
    table.show_header = False
    console = open_console()
    console.print(table)
    problems = sum(finding.state == "problem" for finding in findings)
    named = ", ".join(finding.subject for finding in findings if finding.state == "problem")
    text = f"{plural(problems, 'problem')}: {named}" if problems else "chestfed can run here"
    show_answer(console, text, problems=problems)
    if problems:
        raise typer.Exit(1)


def _check_machine(out: Path, data: Path | None) -> Iterator[Finding]:
    yield Finding("chestfed", "ok", f"{__version__}, Python {platform.python_version()}, {platform.system()}")
    yield Finding("processor", "ok", plural(cores(), "core"))
    if (memory := _count_memory()) is not None:
        state: State = "ok" if memory >= _MEMORY else "problem"
        need = "" if state == "ok" else f"; the default study needs {size_text(_MEMORY)}"
        yield Finding("memory", state, f"{size_text(memory)}{need}")
    yield _check_disk(out)
    yield _check_gpu()
    if data is not None:
        yield _check_data(data)


def _check_data(data: Path) -> Finding:
    """The folders with the label files of a known site, by name, and the number of others."""
    from chestfed.data.sites.opening import find_sites

    advice = "give the folder that contains the sites'"
    if not data.is_dir():
        return Finding("data", "problem", f"not a folder: {advice}")
    places = [place for place in find_sites(list_sites().values(), data) if data in place.parents]
    names = {place.relative_to(data).parts[0] for place in places}
    others = {path.name for path in data.iterdir() if path.is_dir() and path.name[0] != "."} - names
    unknown = f"{plural(len(others), 'folder')} not recognized as a site (`chestfed site new` describes one)"
    if names:
        sites = f"{plural(len(names), 'site')}: {', '.join(sorted(names))}"
        return Finding("data", "ok", f"{sites}; {unknown}" if others else sites)
    return Finding("data", "problem", f"no site is there: {advice}{f'; {unknown}' if others else ''}")


def _check_disk(out: Path) -> Finding:
    folder = next(path for path in (out, *out.absolute().parents) if path.is_dir())
    free = shutil.disk_usage(folder).free
    if not os.access(folder, os.W_OK):
        return Finding("disk", "problem", "the folder for results cannot be written to: choose another --out")
    if free < _DISK:
        return Finding("disk", "problem", f"{size_text(free)} free; the default study needs {size_text(_DISK)}")
    return Finding("disk", "ok", f"{size_text(free)} free for results")


def _check_gpu() -> Finding:
    import torch

    if not torch.cuda.is_available():
        return Finding("GPU", "note", f"none; PyTorch {torch.__version__} computes on the processor")
    names = ", ".join(torch.cuda.get_device_name(place) for place in range(torch.cuda.device_count()))
    return Finding("GPU", "ok", f"{names}; PyTorch {torch.__version__}, CUDA {torch.version.cuda}")


def _check_extras() -> Iterator[Finding]:
    """Each optional part of the installation: there, absent, or of a version that does not suit."""
    from packaging.requirements import Requirement

    try:
        stated = [Requirement(text) for text in requires("chestfed") or ()]
    except PackageNotFoundError:  # run from a source tree
        stated = []
    for extra, purpose in _EXTRAS.items():
        needed = [
            requirement
            for requirement in stated
            if (marker := requirement.marker)
            and marker.evaluate({"extra": extra})
            and not marker.evaluate({"extra": ""})
        ]
        absent, unsuited = [], []
        for requirement in needed:
            try:
                if not requirement.specifier.contains(version(requirement.name), prereleases=True):
                    unsuited.append(f"{requirement.name} {version(requirement.name)}, not {requirement.specifier}")
            except PackageNotFoundError:
                absent.append(requirement.name)
        if unsuited:
            yield Finding(extra, "note", f"{purpose}: {'; '.join(unsuited)}")
        elif absent:
            yield Finding(extra, "note", f"{purpose}: not installed, see docs/installation.md")
        elif needed:
            yield Finding(extra, "ok", purpose)


def _check_key() -> Finding:
    """The secret key for the names of patients; its file is not named, since that may hold a user's name."""
    given = os.environ.get(VARIABLE)
    file = Path(given).expanduser() if given else default_file()
    if not given and not file.exists():
        return Finding("key", "note", "none yet; it is created with the first result about real patients")
    try:
        return Finding("key", "ok", f"fingerprint {read_key(file).fingerprint}")
    except ChestfedError:
        return Finding("key", "problem", "it is missing, damaged or readable by others: `chestfed key` says what to do")


def _count_memory() -> int | None:
    """Bytes of memory that this process may use: those of the machine, or of its container; None if unknown."""
    if sys.platform == "win32":
        return None
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")
    try:
        text = limit.read_text().strip()
    except OSError:
        return machine
    return min(machine, int(text)) if text.isdigit() else machine
