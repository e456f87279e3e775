"""Names in place of paths: bundled pipelines and sites, finished runs; and the nearest name to a mistyped one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path

from chestfed.core.bundled import bundled
from chestfed.core.errors import ConfigError

#: Files that make a folder one of a study, or of several together.
_OF_RUNS = ("study.json", "comparison.json")


def suggest(name: str, known: Iterable[str]) -> str:
    """`Did you mean ...?`, or all known names where none is near."""
    names = sorted(known)
    within = [other for other in names if len(name) > 2 and name.casefold() in other.casefold()]
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.6) or within[:3]
    if close:
        return f"Did you mean {' or '.join(close)}?"
    return f"Known: {', '.join(names)}" if names else ""


def list_pipelines() -> dict[str, Path]:
    """The bundled pipelines by name, such as `figure1/codasca`."""
    return _list_files(bundled("pipelines"))


def list_sites() -> dict[str, Path]:
    """The sites by name: those in ./site_configs, then the bundled ones, such as `chexpert` and `synthetic/vindr`."""
    return _list_files(bundled("site_configs")) | _list_files(Path("site_configs"))


def pipeline_file(pipeline: str | Path) -> Path:
    """The file of a pipeline, or of the bundled one of that name, with or without `.yaml`.

    Raises `ConfigError` if there is neither.
    """
    return _find_file(pipeline, "pipelines", list_pipelines(), "pipeline")


def site_file(site: str | Path) -> Path:
    """The YAML of a site, or of the one of that name in ./site_configs or bundled, with or without `.yaml`.

    Raises `ConfigError` if there is neither.
    """
    return _find_file(site, "site_configs", list_sites(), "site")


def run_path(run: str | Path, out: Path = Path("runs")) -> Path:
    """A path, or the folder in `out` of a run with this name, digest, or part of its name that no other has.

    What is not found is returned as it is. Raises `ConfigError` if several runs have that part.
    """
    path = Path(run)
    if path.exists() or len(path.parts) != 1:
        return path
    names = list_runs(out)
    matches = [name for name in names if name == str(run)] or [name for name in names if str(run) in name]
    if len(matches) > 1:
        raise ConfigError(f"{run}: {len(matches)} runs in {out} have that name: {', '.join(matches)}", kind="several")
    return names[matches[0]] if matches else path


def list_runs(out: Path) -> dict[str, Path]:
    """Folders of studies, and of several together, by name."""
    return {folder.name: folder for name in _OF_RUNS for folder in sorted(map(_parent, out.glob(f"*/{name}")))}


def _parent(file: Path) -> Path:
    return file.parent


def _list_files(folder: Path) -> dict[str, Path]:
    return {file.relative_to(folder).with_suffix("").as_posix(): file for file in sorted(folder.rglob("*.yaml"))}


def _find_file(given: str | Path, folder: str, known: Mapping[str, Path], kind: str) -> Path:
    path = Path(given)
    if path.exists():
        return path
    parts = path.parts[1:] if path.parts[:1] == (folder,) else path.parts
    name = Path(*parts).as_posix().removesuffix(".yaml") if parts else ""
    if name in known:
        return known[name]
    raise ConfigError(f"{path}: no such file, and no {kind} of this name. {suggest(name, known)}", kind="no such name")
