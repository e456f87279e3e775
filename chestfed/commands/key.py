"""`chestfed key`."""

from __future__ import annotations

import os
from pathlib import Path

from rich.console import Console

from chestfed.errors import ChestfedError
from chestfed.keys import VARIABLE, default_file, make_key, read_key


def run_command(console: Console, new: Path | None) -> None:
    """Print the file and the fingerprint of the key in use, or make a new key in `new`."""
    given = os.environ.get(VARIABLE)
    if new is not None:
        file = new.expanduser()
        if not make_key(file):
            raise ChestfedError(f"{file}: is there already, and stays as it is: names of a lost key cannot be matched")
        console.print(f"made a new key: {file}", highlight=False, soft_wrap=True)
    else:
        file = Path(given).expanduser() if given else default_file()
        if not given and not file.exists():
            console.print(f"no key yet; the first result about real patients makes one: {file}", soft_wrap=True)
            return
    console.print(f"file         {file}\nfingerprint  {read_key(file).fingerprint}", highlight=False, soft_wrap=True)
    if new is not None:
        console.print(f"to use it, set {VARIABLE}={file}", highlight=False, soft_wrap=True)
