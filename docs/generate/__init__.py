"""The generated pages of the documentation: commands, YAML keys, Python API."""

from __future__ import annotations

import os
from pathlib import Path


def write_references(folder: Path) -> None:
    """Write the reference pages; a file whose text is the same is not touched, so that Sphinx need not read it."""
    from docs.generate import api, commands, keys

    folder.mkdir(exist_ok=True)
    for name, text in {"commands": commands.page(), **keys.pages(), "api": api.page()}.items():
        file = folder / f"{name}.md"
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            whole = file.with_suffix(f".{os.getpid()}")
            whole.write_text(text, encoding="utf-8")
            whole.replace(file)
