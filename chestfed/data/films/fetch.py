"""A release, from its addresses to the folder that its site's YAML expects."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from chestfed.core.checkpoint import read_json, write_json
from chestfed.core.disk import check_folder, check_room, writing_to
from chestfed.core.errors import ChestfedError, ConfigError, DamagedError
from chestfed.data.films.download import download
from chestfed.data.films.registry import Release, ReleaseFile
from chestfed.data.films.unpack import git_id, move_into, unpack

#: Beside the films: what was downloaded, from where, and with which digest.
RECEIPT: Final = "films.json"


def fetch_release(
    release: Release,
    data: Path,
    *,
    part: int | None = None,
    trust: bool = False,
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> int:
    """Download and unpack what is not there yet, and return how many files were downloaded.

    Parameters
    ----------
    part
        Of a release in parts: the one to have.
    trust
        Accept files without a known digest. The digest of the first download is recorded, and later ones must have it.
    progress
        Called with what is done, and the done and all bytes.

    Raises
    ------
    ConfigError
        If the release has no addresses, no such part, or a file without a digest that may not be trusted.
    ChestfedError
        If a download fails, is not what was expected, or there is no room.
    """
    folder = data / release.folder
    files = release.select_files(part)
    if not files:
        raise ConfigError(f"{release.title} cannot be fetched: {release.note}")
    receipt = _read_receipt(folder / RECEIPT) if folder.is_dir() else {}
    missing = [file for file in files if not _is_there(receipt.get(file.name), folder)]
    unknown = [file.name for file in missing if not file.is_checked and file.name not in receipt]
    if unknown and not trust:
        raise ConfigError(
            f"{', '.join(unknown)}: no digest is published, so a changed file cannot be distinguished from the "
            f"right one. --trust-first-download accepts it once, and records its digest in {RECEIPT}",
            kind="first download not trusted",
        )
    if missing:
        check_folder(folder, "--data")
        check_room(folder, sum(file.size for file in missing) + max(file.most for file in missing), "images", "--data")
    try:
        for file in missing:
            trusted = receipt.get(file.name, {}).get("digest") if not file.identifiers else None
            try:
                digest, places = _fetch_file(file, folder, file.digest or trusted, progress)
            except DamagedError:  # of the network, or of an earlier download: it is removed, and asked for once more
                digest, places = _fetch_file(file, folder, file.digest or trusted, progress)
            receipt[file.name] = {"url": file.url, "digest": digest, "published": file.is_checked, "places": places}
            write_json(folder / RECEIPT, receipt)
    finally:
        with suppress(OSError):  # an empty folder would be taken for the site's
            folder.rmdir()
    return len(missing)


def _read_receipt(file: Path) -> dict[str, Any]:
    """Read the list of earlier downloads.

    Raises `ChestfedError` if the file holds something else.
    """
    receipt: object = read_json(file)
    if not isinstance(receipt, dict) or not all(map(_is_entry, receipt.values())):
        text = f"{file}: not a list of downloads. Delete this file: what is missing is downloaded again"
        raise ChestfedError(text, kind="damaged receipt", file=file.name)
    return receipt


def _is_entry(entry: object) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("digest"), str | None):
        return False
    places = entry.get("places")
    return isinstance(places, list) and all(isinstance(place, str) for place in places)


def _is_there(entry: Any, folder: Path) -> bool:
    return entry is not None and all((folder / place).exists() for place in entry["places"])


def _fetch_file(
    file: ReleaseFile, folder: Path, digest: str | None, progress: Callable[[str, int, int], None]
) -> tuple[str, list[str]]:
    """Download a file and put what is in it into place; returns its digest, and where it is below the folder."""
    target = folder / file.name
    digest = download(file.url, target, digest, file.size, partial(progress, f"downloading {file.name}"))
    if not file.most:
        return digest, [file.name]
    staging = folder / f".{file.name}.unpacked"
    with writing_to(folder):
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir()
        try:
            shown = partial(progress, f"unpacking {file.name}")
            unpack(target, staging, strip=file.strip, keep=file.patterns, most=file.most, progress=shown)
            _check_git(file, staging)
        except DamagedError:
            target.unlink()
            shutil.rmtree(staging, ignore_errors=True)
            raise
        place = folder / (file.into or "")
        place.mkdir(parents=True, exist_ok=True)
        places = [(place / entry.name).relative_to(folder).as_posix() for entry in sorted(staging.iterdir())]
        move_into(staging, place)
        target.unlink()
    return digest, places


def _check_git(file: ReleaseFile, folder: Path) -> None:
    """Compare what was unpacked with git's identifiers, which name content and not how it was packed."""
    for path, expected in file.identifiers.items():
        if not (folder / path).exists() or git_id(folder / path) != expected:
            raise DamagedError(
                f"{file.name}: '{path}' in it is not that of the release ({expected}). It was removed",
                kind="not the file of the release",
                file=file.name,
            )
