"""The YAML files that come with chestfed."""

from __future__ import annotations

from pathlib import Path

from chestfed.core.errors import ChestfedError


def bundled(folder: str) -> Path:
    """`pipelines` or `site_configs`: in the repository, or in the installed package."""
    package = Path(__file__).parents[1]
    for candidate in (package.parent / folder, package / "bundled" / folder):
        if candidate.is_dir():
            return candidate
    raise ChestfedError(f"this installation does not include the folder '{folder}'; give the path of the file")
