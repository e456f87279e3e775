"""Options that several commands share, each declared once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Cache = Annotated[Path, typer.Option(help="Folder for decoded images.")]
SkipUnreadable = Annotated[bool, typer.Option("--skip-unreadable", help="Skip unreadable images and count them.")]
