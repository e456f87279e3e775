"""The generated pages of the documentation: commands, YAML keys, algorithms, open data sets, Python API."""

from __future__ import annotations

import os
from pathlib import Path


def write_references(folder: Path) -> None:
    """Write the reference pages; a file whose text is the same is not touched, so that Sphinx need not read it."""
    from docs.generate import algorithms, api, commands, keys, releases

    folder.mkdir(exist_ok=True)
    pages = {
        "commands": commands.page(),
        **keys.pages(),
        "algorithms": algorithms.page(),
        "releases": releases.page(),
        "api": api.page(),
    }
    for name, text in pages.items():
        file = folder / f"{name}.md"
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            whole = file.with_suffix(f".{os.getpid()}")
            whole.write_text(text, encoding="utf-8")
            whole.replace(file)
