"""Where the image of a row is: path templates and several roots."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from chestfed.data.dicom.file_kinds import images_among
from chestfed.data.sites.folders import Folders
from chestfed.data.sites.left_out import MISSING_IMAGE
from chestfed.data.sites.reader import leaves_root
from chestfed.data.sites.tables.rows import TableRows
from chestfed.data.sites.tables.schema import FIELD, Images


def template_columns(images: Images, roles: Mapping[str, str | None]) -> list[str]:
    """The columns that the path is made of; `roles` maps image, patient and study to theirs."""
    if images.path is None:
        return [name for name in (roles["image"],) if name is not None]
    return [roles.get(match[1]) or match[1] for match in FIELD.finditer(images.path)]


def image_names(frame: pd.DataFrame, images: Images, roles: Mapping[str, str | None]) -> pd.Series:
    """Paths below one of the roots; missing where a cell that belongs to it is empty."""
    template = images.path if images.path is not None else "{image}"
    path = pd.Series("", index=frame.index, dtype=object)
    end = 0
    for match in FIELD.finditer(template):
        cells = frame[roles.get(match[1]) or match[1]].astype(object)
        if match[1] == "image" and images.remove_prefix:
            cells = _normalize_paths(cells).str.removeprefix(
                str(_normalize_paths(pd.Series([images.remove_prefix])).iat[0])
            )
        if match[1] == "image":
            cells = replace_signs(cells, images.replace)
        path = path + template[end : match.start()] + (cells.str[: int(match[2])] if match[2] else cells)
        end = match.end()
    path = _normalize_paths(path + template[end:])
    if images.suffix and not images.any_ending:
        path = path.where(path.str.lower().str.endswith(images.suffix.lower(), na=True), path + images.suffix)
    return path


def replace_signs(cells: pd.Series, others: Mapping[str, str]) -> pd.Series:
    """The cells with other signs, all at once: what a sign is replaced by is not replaced again."""
    signs = "|".join(map(re.escape, sorted(others, key=len, reverse=True)))
    return cells.str.replace(signs, lambda sign: others[sign[0]], regex=True) if others else cells


@dataclass(frozen=True)
class PlacedImages:
    """Where the images of `n` rows are."""

    images: pd.Series  #: paths relative to the site's root
    below: pd.Series  #: the same paths relative to the one of the roots that holds them
    strays: np.ndarray  #: which of them go through a link out of the site's root, bool `[n]`
    #: Rows that several files fit, so that none is taken, bool `[n]`; only if folders below the roots are
    #: searched, or endings do not count.
    ambiguous: np.ndarray

    @classmethod
    def find(cls, images: Sequence[str], below: Sequence[str], folders: Folders) -> PlacedImages:
        """Images that exist, by their paths, and these paths below one of the roots."""
        strays = np.array([folders.strays(path) for path in images], dtype=bool)
        return cls(pd.Series(images, dtype=object), pd.Series(below, dtype=object), strays, np.zeros(len(images), bool))


def in_roots(paths: pd.Series, images: Images, folders: Folders | None) -> PlacedImages:
    """Where the images are whose paths below one of the roots are `paths`.

    A path is below the first root that holds the file, or below the first of all; that is so without `folders` too.
    """
    prefixes = [normalize_root(root) for root in images.roots]
    first = prefixes[0] + paths
    strays, ambiguous = np.zeros(len(paths), dtype=bool), np.zeros(len(paths), dtype=bool)
    if folders is None:
        return PlacedImages(first, paths, strays, ambiguous)
    chosen, below = first.to_numpy(dtype=object, copy=True), paths.to_numpy(dtype=object, copy=True)
    safe = (paths.notna() & ~leaves_root(paths)).to_numpy(dtype=bool)
    names = paths.tolist()
    for place in np.flatnonzero(safe).tolist():
        name = names[place]
        if images.recursive:
            matches = {file: file.removeprefix(prefix) for prefix in prefixes for file in folders.below(prefix, name)}
            ambiguous[place] = len(matches) > 1
            if len(matches) == 1:
                ((chosen[place], below[place]),) = matches.items()
        elif images.any_ending:
            files = next((twins for prefix in prefixes if (twins := folders.twins(prefix + name))), [])
            ambiguous[place] = len(files) > 1
            chosen[place] = files[0] if len(files) == 1 else chosen[place]
        else:
            for prefix in prefixes:
                if (file := folders.find(prefix + name)) is not None:
                    chosen[place] = file
                    break
        strays[place] = folders.strays(chosen[place])
    index = paths.index
    return PlacedImages(
        pd.Series(chosen, index, dtype=object), pd.Series(below, index, dtype=object), strays, ambiguous
    )


def place_in_folders(
    file: TableRows, roles: Mapping[str, str | None], folders: Folders
) -> tuple[pd.DataFrame, PlacedImages]:
    """A row per image in the folders that the rows name, and their places; a folder without any is a problem."""
    names = image_names(file.frame, file.table.images, roles)
    outside, empty = leaves_root(names).to_numpy(dtype=bool), names.isna().to_numpy(dtype=bool)
    rows: list[int] = []
    paths: list[str] = []
    below: list[str] = []
    for row in np.flatnonzero(~outside & ~empty).tolist():
        for prefix in map(normalize_root, file.table.images.roots):
            folder = folders.find(prefix + str(names.iat[row]).rstrip("/"))
            images = [] if folder is None else images_among(folders.root, folders.files(f"{folder}/"))
            if images:
                rows += [row] * len(images)
                paths += images
                below += [path.removeprefix(prefix) for path in images]
                break
    file.report_blank(empty, "no image name")
    advice = "image paths must be relative to the site's root and stay inside it; fix the row"
    file.report("path outside the root", outside, "the image's path leaves the site's root", advice)
    without = ~np.isin(np.arange(len(names)), rows) & ~outside & ~empty
    advice = "add the images, or set rows.missing_image: drop in the site's YAML"
    file.report(MISSING_IMAGE, without, "no image is in the folder of this row", advice)
    return file.frame.iloc[rows].reset_index(drop=True), PlacedImages.find(paths, below, folders)


def report_archives(file: TableRows, placed: PlacedImages, folders: Folders) -> None:
    """Note each zip file in the site's root if none of the images is on the disk."""
    archives = sorted(Path(folders.root).glob("*.[zZ][iI][pP]"))
    if not archives or any(folders.holds(path) for path in placed.images if isinstance(path, str)):
        return
    for archive in archives:
        advice = f"unpack it in the site's root: unzip '{archive.name}'"
        file.source.problem("zipped images", archive.name, "no image is there, but a zip file is", advice=advice)


def _normalize_paths(paths: pd.Series) -> pd.Series:
    """With slashes, and without the folder `.`."""
    text = "\n".join(paths.dropna().tolist())
    if "\\" not in text and "./" not in text:  # as a rule, and much faster than to look at each
        return paths
    slashed = paths.str.replace("\\", "/", regex=False)
    return slashed.str.replace(r"^(?:\./)+", "", regex=True).str.replace(r"/(?:\./)+", "/", regex=True)


def normalize_root(root: str) -> str:
    """A root of `Images` as the beginning of a path: with a slash at its end, or empty."""
    name = root.replace("\\", "/").strip("/").removeprefix("./")
    return "" if name in ("", ".") else f"{name}/"
