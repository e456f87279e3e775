"""`chestfed key`."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, cast

import typer

from chestfed.app.commands import options
from chestfed.core.console import open_console, say, show_answer
from chestfed.core.errors import ChestfedError, ConfigError
from chestfed.core.pseudonyms import VARIABLE, default_file, key_for, make_key, read_key

if TYPE_CHECKING:
    from rich.console import Console

_shared = partial(typer.Option, rich_help_panel="Patients that two hospitals share")

New = Annotated[Path | None, options.optional(metavar="FILE", help="Create a new key in this file.")]
Names = Annotated[
    Path | None,
    _shared(
        metavar="SITE.yaml", help="Write the pseudonyms of this site's patients, made with the key.", show_default=False
    ),
]
Out = Annotated[Path | None, _shared(help="With --names: the file to write. Default: names.json.", show_default=False)]
Common = Annotated[
    list[Path] | None,
    _shared(metavar="FILE", help="Count the patients that two such files share; give it twice.", show_default=False),
]


def key(
    new: New = None,
    names: Names = None,
    data: options.Data = None,
    out: Out = None,
    common: Common = None,
) -> None:
    """Show or create the key for the pseudonyms of patients and images in files that leave the site.

    The key itself is never shown, only its file and fingerprint.

    Example:

        chestfed key --new ~/trial.key
        CHESTFED_KEY_FILE=~/trial.key chestfed evaluate ...

    To count shared patients, run the first command at both hospitals with the same key, then the second at one of them:

        chestfed key --names st_anne.yaml --data data --out anne.json
        chestfed key --common anne.json --common john.json
    """
    if sum(option is not None for option in (new, names, common or None)) > 1:
        raise typer.BadParameter("use only one of --new, --names and --common")
    if out is not None and names is None:
        raise typer.BadParameter("--out is the file that --names writes: give --names SITE.yaml")
    if names is not None:
        write_names(open_console(), names, data or Path(), out or Path("names.json"))
    elif common:
        count_common(open_console(), common)
    else:
        _show_or_make(open_console(), new)


def _show_or_make(console: Console, new: Path | None) -> None:
    """Print the file and the fingerprint of the key in use, or make a new key in `new`."""
    given = os.environ.get(VARIABLE)
    if new is not None:
        file = new.expanduser()
        if not make_key(file):
            raise ChestfedError(
                f"{file} exists and is not overwritten: without its key, pseudonyms made with it cannot be matched. "
                "Choose another file"
            )
        say(console, f"created a new key: {file}")
    else:
        file = Path(given).expanduser() if given else default_file()
        if not given and not file.exists():
            text = f"no key yet; it is created with the first result about real patients: {file}"
            show_answer(console, text, file=str(file), fingerprint=None)
            return
    if new is not None:
        say(console, f"to use it, set {VARIABLE}={file}")
    fingerprint = read_key(file).fingerprint
    show_answer(console, f"fingerprint {fingerprint}, file {file}", file=str(file), fingerprint=fingerprint)


def write_names(console: Console, site: Path, data: Path, out: Path) -> None:
    """Write the keyed names of a site's patients, sorted, to compare with another hospital's under the same key."""
    from chestfed.core.checkpoint import write_json
    from chestfed.data.sites import load_site_config, open_site

    table = open_site(load_site_config(site), data)
    key = key_for(public=table.phantoms)
    names = sorted({key.name("shared patient", str(patient).strip()) for patient in table.frame["patient"]})
    write_json(out, {"site": table.name, "key": key.fingerprint, "patients": names})
    text = f"{len(names)} patients, names by key {key.fingerprint}: {out}"
    show_answer(console, text, patients=len(names), fingerprint=key.fingerprint, file=str(out))


def count_common(console: Console, files: Sequence[Path]) -> None:
    """Print how many patients two such files have in common."""
    if len(files) != 2:
        raise ConfigError("--common compares two files: give it twice")
    first, second = (_read_names(file) for file in files)
    if first.key != second.key:
        raise ConfigError(
            f"{files[0]} was made with key {first.key}, {files[1]} with {second.key}, so a patient has other "
            f"names in them. Make both with the same key file (${VARIABLE})",
            kind="different keys",
        )
    common = len(set(first.patients) & set(second.patients))
    sizes = f"{first.site} has {len(first.patients)}, {second.site} {len(second.patients)}"
    show_answer(console, f"{common} patients in common; {sizes}", common=common)


class _Names(NamedTuple):
    """The file of one hospital."""

    site: str
    key: str
    patients: list[str]


def _read_names(file: Path) -> _Names:
    try:
        content = cast("dict[str, list[str]]", json.loads(file.read_text(encoding="utf-8")))
        return _Names(str(content["site"]), str(content["key"]), list(content["patients"]))
    except (OSError, ValueError, KeyError, TypeError):
        raise ConfigError(f"{file}: not a file of `chestfed key --names`", kind="not a file of names") from None
