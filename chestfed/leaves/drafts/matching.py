"""The image files, and how the cells of a column name them: as paths or names, in one folder or in those of columns."""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd
from pydantic import ValidationError

from chestfed.core.errors import ConfigError
from chestfed.data.dicom.file_kinds import (
    DICOM,
    PICTURE,
    UNKNOWN,
    detect_kind,
    format_kinds,
    image_ending,
    mark_strangers,
)
from chestfed.data.sites.folders import Folders
from chestfed.data.sites.label_files.text import composed
from chestfed.data.sites.tables.image_paths import image_names, in_roots, replace_signs
from chestfed.data.sites.tables.schema import Images

#: A file of unknown kind counts: it may be a damaged image that must not be ignored.
_IMAGES: Final = (DICOM, PICTURE, UNKNOWN)
#: Rows from which a rule is made; it is then tried on all.
_SAMPLE: Final = 2000
#: Share of the rows in which a folder must be what a column says.
_AGREES: Final = 0.99
_EXAMPLES: Final = 5
#: Cells that are looked for in all names of files, with other signs.
_TRIAL_CELLS: Final = 30
_SIGNS: Final = re.compile(r"[\W_]+")


@dataclass(frozen=True)
class Pictures:
    """The images below the folder that the user named."""

    root: Path
    folder: str
    files: tuple[str, ...]  #: paths relative to the site's root
    without_header: frozenset[str] = field(repr=False)  #: those of `files` that are PNG or JPEG
    aside: str  #: what else is in the folder, in words with counts; empty if nothing is
    #: by_name, by_stem: name of a file (in NFC), with and without its extension -> the files with that name.
    by_name: Mapping[str, list[str]] = field(repr=False)
    by_stem: Mapping[str, list[str]] = field(repr=False)

    @property
    def listed_endings(self) -> str:
        """`70 .png, 2 .PNG, 5 without extension`."""
        endings = Counter(image_ending(file.rpartition("/")[2]) for file in self.files)
        return ", ".join(f"{number:,} {ending or 'without extension'}" for ending, number in endings.most_common())

    @property
    def dicoms(self) -> tuple[str, ...]:
        """The files that may have a DICOM header."""
        return tuple(file for file in self.files if file not in self.without_header)


def list_pictures(images: Path, root: Path) -> Pictures:
    """All image files below `images`, which is below `root`. Links to folders are not followed.

    Raises `ConfigError` if there is no image in the folder.
    """
    names = []
    for folder, folders, inside in os.walk(images):
        folders.sort()
        names += [Path(folder, name).relative_to(root).as_posix() for name in sorted(inside)]
    top = images.relative_to(root).as_posix()
    top = "" if top == "." else top
    below = [name.removeprefix(f"{top}/") for name in names]
    kinds = mark_strangers(below, [detect_kind(images, name) for name in below])
    files = [name for name, kind in zip(names, kinds, strict=True) if kind in _IMAGES]
    if not any(kind in (DICOM, PICTURE) or image_ending(name) for name, kind in zip(below, kinds, strict=True)):
        others = f"; found: {format_kinds(kinds)}" if kinds else ""
        raise ConfigError(f"--images {images}: no PNG, JPEG or DICOM file in this folder or below it{others}")
    by_name, by_stem = defaultdict(list), defaultdict(list)
    for file in files:
        name = composed(file.rpartition("/")[2])
        by_name[name].append(file)
        by_stem[name.removesuffix(image_ending(name))].append(file)
    flat = frozenset(name for name, kind in zip(names, kinds, strict=True) if kind == PICTURE)
    aside = format_kinds([kind for kind in kinds if kind not in _IMAGES])
    return Pictures(root, top, tuple(files), flat, aside, by_name, by_stem)


@dataclass(frozen=True)
class ImageMatch:
    """Match of a column with the images: `cells` are those that are not empty, `named` those that name a file.

    Of them `ambiguous` could as well mean a file of the same name in another folder. `paths` are the files by the
    number of the row.
    """

    column: str
    images: Images
    how: str
    cells: int
    named: int
    files: int
    ambiguous: int
    paths: pd.Series = field(repr=False)

    @property
    def share(self) -> float:
        """Share of the cells that name a file."""
        return self.named / self.cells if self.cells else 0.0

    @property
    def examples(self) -> tuple[str, ...]:
        """`row 7 -> img_37.png`, of some rows: for the terminal only, because a file may be named after a person."""
        paths = self.paths.dropna()
        chosen = paths.iloc[np.unique(np.linspace(0, len(paths) - 1, min(_EXAMPLES, len(paths))).astype(int))]
        return tuple(f"row {row} -> {str(path).rpartition('/')[2]}" for row, path in chosen.items())


def match_column(frame: pd.DataFrame, column: str, pictures: Pictures, hints: Sequence[str] = ()) -> ImageMatch | None:
    """Match the column's cells with images; None if none of them names one.

    A cell may be a path or a name, with or without its ending, and the folders may be given by other columns, those of
    `hints` first.
    """
    cells = frame[column].dropna().str.replace("\\", "/", regex=False).str.normalize("NFC")
    if cells.empty:
        return None
    last = cells.str.rsplit("/", n=1).str[-1]
    by_name, by_stem = last.isin(pictures.by_name), last.isin(pictures.by_stem)
    whole = bool(by_name.sum() >= by_stem.sum())
    known, chosen = (pictures.by_name, by_name) if whole else (pictures.by_stem, by_stem)
    converted = not chosen.any()  # 0001.dcm in the table, and 0001.png in the folder
    if converted:
        cells = cells.map(lambda cell: cell.removesuffix(image_ending(cell.rpartition("/")[2])))
        chosen = cells.str.rsplit("/", n=1).str[-1].isin(pictures.by_stem)
        whole, known = False, pictures.by_stem
    if not chosen.any():
        return None
    rows = cells.index[chosen.to_numpy()][:: max(1, int(chosen.sum()) // _SAMPLE)]
    pairs = [_find_nearest(str(cells.at[row]), known, frame.loc[row]) for row in rows]
    best: ImageMatch | None = None
    for images, how in _list_rules(frame.loc[rows], column, pairs, pictures.folder or ".", whole=whole, hints=hints):
        if converted:
            images, how = images.model_copy(update={"suffix": "any"}), f"{how}, with another one"
            if images.recursive:
                continue
        match = _try_rule(frame, column, images, how, pictures)
        if best is None or (match.named, match.files) > (best.named, best.files):
            best = match
    return best


def match_spelled(frame: pd.DataFrame, column: str, pictures: Pictures) -> ImageMatch | None:
    """Match cells with files named with other signs, or more before or behind: `21/0100200` and `21-0100200_thx.jpg`.

    None if a cell is in several names, or if no rule leads to the files.
    """
    cells = frame[column].dropna().str.strip()
    chosen = cells.iloc[:: max(1, len(cells) // _TRIAL_CELLS)]
    bare = {stem: _SIGNS.sub("", stem) for stem in pictures.by_stem}
    rules = Counter[tuple[str, str, tuple[tuple[str, str], ...]]]()
    for cell in chosen:
        key = _SIGNS.sub("", cell)
        names = [rule for stem, text in bare.items() if key and key in text and (rule := _spell(cell, stem))]
        if len(names) > 1:
            return None
        rules.update(names)
    if not rules:
        return None
    before, behind, _ = rules.most_common(1)[0][0]
    replace = {sign: other for rule in rules for sign, other in rule[2] if rule[:2] == (before, behind)}
    spelled = replace_signs(frame[column].str.strip(), replace)
    match = match_column(frame.assign(**{column: before + spelled + behind}), column, pictures)
    if match is None or match.images.remove_prefix or set(before + behind) & set("{}[]/"):
        return None
    path = (match.images.path or "{image}").replace("{image}", f"{before}{{image}}{behind}")
    images = match.images.model_copy(update={"replace": replace, "path": path})
    signs = ", ".join(f"'{other}' for '{sign}'" for sign, other in replace.items())
    around = f"'{before}...{behind}' around it" if before or behind else ""
    how = f"{match.how}, with {' and '.join(filter(None, (signs, around)))}"
    return _try_rule(frame, column, images, how, pictures)


def _spell(cell: str, stem: str) -> tuple[str, str, tuple[tuple[str, str], ...]] | None:
    """Find what a file's name has before and behind a cell, and its signs for the cell's; None: another file."""
    parts = re.findall(r"[\W_]+|[^\W_]+", cell)
    pattern = "".join(r"([\W_]*)" if _SIGNS.fullmatch(part) else re.escape(part) for part in parts)
    found = re.fullmatch(rf"(.*?)(?<![^\W_]){pattern}(?![^\W_])(.*)", stem)
    found = found or re.fullmatch(rf"([^\W\d_]+){pattern}(?![^\W_])(.*)", stem)
    if found is None:
        return None
    signs = zip((part for part in parts if _SIGNS.fullmatch(part)), found.groups()[1:-1], strict=True)
    return found[1], str(found.groups()[-1]), tuple(sorted({(sign, other) for sign, other in signs if sign != other}))


def try_images(frame: pd.DataFrame, column: str, keys: Mapping[str, object], pictures: Pictures) -> ImageMatch:
    """Match images by the keys of `table.images` that the user gives. Raises `ConfigError` if they do not fit."""
    try:
        images = Images.model_validate({"roots": [pictures.folder or "."], **keys})
        return _try_rule(frame, column, images, "given", pictures)
    except ValidationError as error:
        raise ConfigError("; ".join(f"--set images: {each['msg']}" for each in error.errors())) from None
    except KeyError as error:
        raise ConfigError(f"--set images: the table has no column {error}") from None


#: The parts of a cell, cut at slashes, those of its file, without the ending where the cell has none, and that ending.
_Pair = tuple[list[str], list[str], str]


def _find_nearest(cell: str, known: Mapping[str, list[str]], row: pd.Series) -> _Pair:
    """The file of that name that shares most folders with the cell, then with the other cells of the row."""
    parts = [part for part in cell.split("/") if part != "."]
    files = known[parts[-1]]
    cells = {str(value) for value in row.dropna()} if len(files) > 1 else set()

    def closeness(file: str) -> tuple[int, float]:
        """Number of folders they share, and how much of the folders' names other cells tell: all, or their ends."""
        folders = composed(file).split("/")[:-1]
        ends = [[len(cell) / len(name) for cell in cells if name.endswith(cell)] for name in folders]
        return _count_common(parts[:-1], folders), sum(max(shares, default=0.0) for shares in ends)

    *folders, name = composed(max(files, key=closeness)).split("/")
    return parts, [*folders, parts[-1]], name.removeprefix(parts[-1])


def _count_common(first: Sequence[str], second: Sequence[str]) -> int:
    same = [left == right for left, right in zip(reversed(first), reversed(second), strict=False)]
    return same.index(False) if False in same else len(same)


def _list_rules(
    frame: pd.DataFrame, column: str, pairs: Sequence[_Pair], folder: str, *, whole: bool, hints: Sequence[str]
) -> list[tuple[Images, str]]:
    """Rules that lead from the cells to their files below `folder`, the likeliest first.

    Where no column gives the folders they are searched and not listed: they may be called like patients.
    """
    beginnings = Counter("/".join(cell[: len(cell) - _count_common(cell, file)]) for cell, file, _ in pairs)
    removed, rows = beginnings.most_common(1)[0]
    if 2 * rows < len(pairs):  # it differs from row to row, and may be called like patients
        removed = ""
    keys: dict[str, object] = {}
    if removed or any(cell[0] == "" for cell, _, _ in pairs):
        keys["remove_prefix"] = f"{removed}/"
    cut = len(removed.split("/")) if keys else 0
    endings = Counter(ending for _, _, ending in pairs)
    if suffix := endings.most_common(1)[0][0]:
        keys["suffix"] = suffix
    how = "a path" if any(len(cell) - cut > 1 for cell, _, _ in pairs) else "a file name"
    how += "" if whole else ", without its extension"
    roots = [file[: max(0, len(file) - (len(cell) - cut))] for cell, file, _ in pairs]
    counts = Counter("/".join(root) or "." for root in roots)
    if len(counts) == 1:
        keys["roots"] = list(counts)
        any_of = [(Images.model_validate({**keys, "suffix": "any"}), f"{how}, of several kinds")]
        return [(Images.model_validate(keys), how), *(any_of if len(endings) > 1 else [])]
    several = f"{how}, in {len(counts)} folders that are searched"
    rules = [(Images.model_validate({**keys, "roots": [folder], "recursive": True}), several)]
    template = _find_template(frame, column, roots, hints)
    if template is not None:
        images = Images.model_validate({**keys, "path": template[1], "roots": [template[0]]})
        rules.insert(0, (images, f"{how}, in folders that columns name"))
    return rules


def _find_template(
    frame: pd.DataFrame, column: str, roots: Sequence[Sequence[str]], hints: Sequence[str]
) -> tuple[str, str] | None:
    """The folder above all, and a path such as `{MRN}/{Accession}/{image}`; None if columns do not say the folders."""
    depth = {len(root) for root in roots}
    if len(depth) != 1:
        return None
    levels = [np.array(level, dtype=object) for level in zip(*roots, strict=True)]
    top = 0
    while top < len(levels) and len(set(levels[top])) == 1:
        top += 1
    names = dict.fromkeys(str(name) for name in (*hints, *frame) if not set(str(name)) & set("{}[]"))
    names = {name: None for name in names if name not in (column, "image")}
    parts = [_find_field(level, frame, list(names)) for level in levels[top:]]
    if None in parts:
        return None
    return "/".join(roots[0][:top]) or ".", "/".join([*map(str, parts), "{image}"])


def _find_field(level: np.ndarray, frame: pd.DataFrame, names: Sequence[str]) -> str | None:
    """Find a folder's name in a column: its cell, its first letters, perhaps behind a word that is always there."""
    if len(set(level)) == 1:
        return str(level[0])
    length = len(level[0]) if len({len(folder) for folder in level}) == 1 else 0
    enough = _AGREES * len(level)
    for name in names:
        cells = frame[name].fillna("").to_numpy(dtype=object)
        ends = [(folder, cell) for folder, cell in zip(level, cells, strict=True) if cell and folder.endswith(cell)]
        literals = Counter(folder.removesuffix(cell) for folder, cell in ends).most_common(1)
        if literals and literals[0][1] >= enough:
            return f"{literals[0][0]}{{{name}}}"
        for start in range(length):
            same = {folder[:start] for folder in level}
            agree = [cell[: length - start] == folder[start:] for folder, cell in zip(level, cells, strict=True)]
            if len(same) == 1 and sum(agree) >= enough:
                return f"{same.pop()}{{{name}[:{length - start}]}}"
    return None


def _try_rule(frame: pd.DataFrame, column: str, images: Images, how: str, pictures: Pictures) -> ImageMatch:
    """Match images as the site's reader would by this rule."""
    roles = {"image": column, "patient": None, "study": None}
    placed = in_roots(image_names(frame, images, roles), images, Folders(pictures.root))
    there = placed.images.isin(set(pictures.files)).to_numpy(dtype=bool)
    cells = int(frame[column].notna().sum())
    named = placed.images.where(there, None)
    ambiguous = int(placed.ambiguous.sum())
    if not images.recursive:
        pairs = zip(placed.below[there].map(str), named[there].map(str), strict=True)
        ambiguous = sum(_is_ambiguous(composed(name), composed(path), pictures) for name, path in pairs)
    number = int((there | placed.ambiguous).sum())
    return ImageMatch(column, images, how, cells, number, int(named.nunique()), ambiguous, named)


def _is_ambiguous(name: str, path: str, pictures: Pictures) -> bool:
    """Whether a path below a root fits other files than `path` too; not if that lies just so in the user's folder."""
    alike = pictures.by_name[name.rpartition("/")[2]]
    if len(alike) == 1 or path == composed(f"{pictures.folder}/{name}".removeprefix("/")):
        return False
    return sum(f"/{composed(file)}".endswith(f"/{name}") for file in alike) > 1
