"""What comes with chestfed: its YAML files, and the requirements of its extras."""

from __future__ import annotations

import sys
import tomllib
from importlib import metadata
from pathlib import Path

from chestfed.core.errors import ChestfedError


def bundled(folder: str) -> Path:
    """`pipelines` or `site_configs`: in the repository, or in the installed package."""
    package = Path(__file__).parents[1]
    for candidate in (package.parent / folder, package / "bundled" / folder):
        if candidate.is_dir():
            return candidate
    raise ChestfedError(f"this installation does not include the folder '{folder}'; give the path of the file")


def install_command(extra: str) -> str:
    """The command that installs what an extra needs, in the environment in use.

    It lists the extra's requirements: `chestfed[EXTRA]` would be looked up at a package index, where chestfed is not
    and anybody may register its name. In a checkout it takes the locked versions.
    """
    root = Path(__file__).parents[2]
    locks = root / "requirements"
    words = [sys.executable, "-m", "pip", "install"]
    if (locks / "constraints.txt").is_file():
        if extra == "flower":  # pins older versions than the others need: in an environment of its own
            return f'CHESTFED_VENV=federation "{sys.executable}" "{root / "bootstrap.py"}" install federation'
        words += ["--constraint", str(locks / "constraints.txt")]
        project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
        needed = project["project"]["optional-dependencies"][extra]
    else:
        parts = [line.partition(";") for line in metadata.requires("chestfed") or ()]
        needed = [name.strip() for name, _, marker in parts if f"extra == '{extra}'" in marker.replace('"', "'")]
    return " ".join(f'"{word}"' if any(sign in word for sign in " <>=") else word for word in [*words, *needed])
