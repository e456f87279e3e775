"""The YAML files that come with chestfed."""

from __future__ import annotations

from pathlib import Path

from chestfed.core.errors import ChestfedError, ConfigError


def bundled(folder: str) -> Path:
    """`pipelines` or `site_configs`: in the repository, or in the installed package."""
    package = Path(__file__).parents[1]
    for candidate in (package.parent / folder, package / "bundled" / folder):
        if candidate.is_dir():
            return candidate
    raise ChestfedError(f"this installation does not include the folder '{folder}'; give the path of the file")


def pipeline_file(pipeline: str | Path) -> Path:
    """The file of a pipeline, or of the bundled one of that name, with or without `.yaml`.

    Raises `ConfigError` if there is neither.
    """
    path, folder = Path(pipeline), bundled("pipelines")
    if path.exists():
        return path
    for beside in (folder / path, folder / f"{path}.yaml", folder.parent / path):
        if beside.is_file():
            return beside
    raise ConfigError(f"{path}: no such file; the pipelines of chestfed are in {folder}")


def site_file(site: str | Path) -> Path:
    """The YAML of a site; `site_configs/NAME.yaml` is the bundled one in a folder that has none of that name."""
    path = Path(site)
    if path.exists() or path.parts[:1] != ("site_configs",):
        return path
    beside = bundled("site_configs").parent / path
    return beside if beside.is_file() else path
