"""Small sites in the real formats: files from text, opened with the real configurations."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import chestfed
from chestfed.core.errors import Problem, SiteError
from chestfed.data.sites import SiteConfig, SiteTable, load_site_config, open_site

CONFIGS = Path(chestfed.__file__).parent.parent / "site_configs"


def load_bundled(site: str, *overrides: str) -> SiteConfig:
    """The shipped configuration of a site; its root is the folder `site`."""
    return load_site_config(CONFIGS / f"{site}.yaml", ["one_class=all", *overrides, "root=site"])


def write_files(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write files below `folder/site`; returns `folder`."""
    (folder / "site").mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = folder / "site" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return folder


def open_files(folder: Path, site: str, files: Mapping[str, str | bytes], *overrides: str) -> SiteTable:
    """Write a site's files and open it."""
    return open_site(load_bundled(site, *overrides), write_files(folder, files))


def list_problems(folder: Path, site: str, files: Mapping[str, str | bytes], *overrides: str) -> list[Problem]:
    """The problems that opening these files reports; empty if it works."""
    try:
        open_files(folder, site, files, *overrides)
    except SiteError as error:
        return error.problems
    return []


def column(table: SiteTable, name: str) -> list[object]:
    """A column as a list, missing as None."""
    cells = table.frame[name].astype(object)
    return cells.where(cells.notna(), None).tolist()
