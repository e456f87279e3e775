"""`chestfed key`."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from chestfed.core.errors import ChestfedError, ConfigError
from chestfed.core.pseudonyms import VARIABLE, default_file, key_for, make_key, read_key


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


def write_names(console: Console, site: Path, data: Path, out: Path) -> None:
    """Write the keyed names of a site's patients, sorted, to compare with another hospital's under the same key."""
    from chestfed.core.checkpoint import write_json
    from chestfed.sites import load_site_config, open_site

    table = open_site(load_site_config(site), data)
    key = key_for(synthetic=table.synthetic)
    names = sorted({key.name("shared patient", str(patient).strip()) for patient in table.frame["patient"]})
    write_json(out, {"site": table.name, "key": key.fingerprint, "patients": names})
    console.print(f"{len(names)} patients, names by key {key.fingerprint}: {out}", highlight=False, soft_wrap=True)


def count_common(console: Console, files: Sequence[Path]) -> None:
    """Print how many patients two such files have in common.

    Raises
    ------
    ConfigError
        If a file is none, or their keys differ.
    """
    if len(files) != 2:
        raise ConfigError("--common compares two files: give it twice")
    one, two = (_read_names(file) for file in files)
    if one["key"] != two["key"]:
        raise ConfigError(
            f"{files[0]} was made with key {one['key']}, {files[1]} with {two['key']}: the same patient has two names. "
            f"Make both with the same key file (${VARIABLE})"
        )
    common = len(set(one["patients"]) & set(two["patients"]))
    sizes = f"{one['site']} has {len(one['patients'])}, {two['site']} {len(two['patients'])}"
    console.print(f"{common} patients in common; {sizes}", highlight=False, soft_wrap=True)


def _read_names(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        return {"site": content["site"], "key": content["key"], "patients": list(content["patients"])}
    except (OSError, ValueError, KeyError, TypeError):
        raise ConfigError(f"{file}: not a file of `chestfed key --names`") from None
