"""A site's files against a release's checksums."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

import numpy as np

from chestfed.core.errors import ConfigError, Problem
from chestfed.core.processes.workers import parallel_map
from chestfed.inspection.problems import NO_CHECKSUM, WRONG_CHECKSUM, Inspection, printable

_LINE: Final = re.compile(r"([0-9a-fA-F]{64})\s+\*?(\S.*)")
_DOWNLOAD: Final = "download the file again, or make it readable"


def verify_checksums(
    site: Inspection, sums: Path, workers: int | None = None, progress: Callable[[str, int, int], None] | None = None
) -> list[Sequence[Problem]]:
    """Problems of the images and label files of a site against a file such as PhysioNet's SHA256SUMS.txt.

    Its names are relative to its folder if that is the site's root, above or below it; else to the site's root. Files
    that it does not list, and listed ones that do not exist, are counted in one problem each.

    Raises `ConfigError` if it is not such a file, or lists none of the site's files.
    """
    table = site.survey.table
    images, root = table.frame["image"], table.root.resolve()
    listed = _read_sums(sums, root)
    label_files = [name for name in dict.fromkeys(site.survey.files) if (root / name).is_file()]
    known = [name for name in [*label_files, *images.unique()] if name in listed]
    if not known:
        names = [*images[:1], *label_files]
        example = f", such as '{names[0]}'" if names else ""
        raise ConfigError(f"{sums}: lists no file of the site{example}", kind="no checksum of the site", file=sums.name)
    wrong: dict[str, str] = {}
    digests = parallel_map(_digest_file, [root / name for name in known], workers, what="checksums")
    for done, (name, digest) in enumerate(zip(known, digests, strict=True), 1):
        if isinstance(digest, str) and digest != listed[name]:
            wrong[name] = "differs from the published file"
        elif isinstance(digest, OSError) and not isinstance(digest, FileNotFoundError):  # that is a problem of its own
            wrong[name] = f"cannot be read ({digest.strerror})"
        if progress is not None:
            progress(f"checksums of {table.name}", done, len(known))
    files = [Problem(WRONG_CHECKSUM, name, wrong[name], None, _DOWNLOAD) for name in label_files if name in wrong]
    rows = np.flatnonzero(images.isin([*wrong]))
    unread = site.report_rows(
        WRONG_CHECKSUM, rows, lambda row, image: f"{image} {wrong[str(images.iat[row])]}", _DOWNLOAD
    )
    unlisted = [name for name in [*label_files, *images] if name not in listed]
    absent = [name for name in listed if not (root / name).exists()]
    for group, total, what in (
        (unlisted, len(label_files) + len(images), "files of the site are not listed"),
        (absent, len(listed), "listed files do not exist"),
    ):
        if group:
            examples = ", ".join(map(printable, group[:3]))
            files.append(Problem(NO_CHECKSUM, sums.name, f"{len(group):,} of {total:,} {what}, such as {examples}"))
    return [files, unread]


def _read_sums(sums: Path, root: Path) -> dict[str, str]:
    """Name, relative to the site's root -> checksum."""
    try:
        lines = sums.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ConfigError(f"{sums}: cannot be read ({reason})", kind="cannot be read", file=sums.name) from None
    folder = sums.parent.resolve()
    above = PurePosixPath(root.relative_to(folder)) if root.is_relative_to(folder) else PurePosixPath()
    below = PurePosixPath(folder.relative_to(root)) if folder.is_relative_to(root) else PurePosixPath()
    digests = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        match = _LINE.fullmatch(line.rstrip())
        if match is None:
            text = "expected a SHA-256 checksum and a file name, as in SHA256SUMS.txt"
            raise ConfigError(f"{sums}:{number}: {text}", kind="not a checksum", file=sums.name, row=number)
        name = below / PurePosixPath(match[2])
        if name.is_relative_to(above):
            digests[name.relative_to(above).as_posix()] = match[1].lower()
    return digests


def _digest_file(path: Path) -> str | OSError:
    """SHA-256 of a file, or why it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        return error
