"""Which column names the images: its cells are compared with the files, their folders, and their DICOM headers."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from chestfed.core.errors import ConfigError, SiteError
from chestfed.data.dicom.file_kinds import image_ending
from chestfed.data.dicom.tags import IMAGE_KEYS
from chestfed.data.sites.label_files.text import convert
from chestfed.data.sites.lexicon import name_disease, name_view, plain
from chestfed.data.sites.tables.image_headers import find_other_patients, pair_headers
from chestfed.data.sites.tables.schema import FIELD
from chestfed.leaves.drafts.matching import ImageMatch, Pictures, match_column, match_spelled, try_images
from chestfed.leaves.drafts.proposal import (
    ENOUGH,
    NONE,
    VIEWS,
    Proposal,
    count,
    find_called,
    has_dates,
    is_called,
    is_small,
    list_rows,
    option,
)

#: Share of the better one's files from which the worse of two columns that name images counts as a rival.
_RIVAL: Final = 0.5
#: Element -> the role after which a column of its values is called.
_CALLED: Final = {"SOPInstanceUID": "image", "StudyInstanceUID": "study", "AccessionNumber": "study"}
#: Pattern between the names of several files in a cell.
_BETWEEN: Final = r"\s*[;,|]\s*|\s+"
#: Columns whose cells are in headers by chance, by their names.
_ELSE: Final = ("running", "patient", "view", "split", "sex", "age", "reader", "findings", "value")
#: Endings of names of files that are offered.
_EXAMPLES: Final = 5
_DROP: Final = option("--set", "rows.missing_image=drop")


def propose_images(proposal: Proposal, read_headers: Callable[[], pd.DataFrame], roles: Mapping[str, str]) -> list[str]:
    """Note the column that names the images, and how; the DICOM elements that became columns are returned.

    The table gets a row per image where a row stands for several. Where no column is certain, a question is noted, and
    the image of each row is its number.
    """
    answer = proposal.get_answer("image")
    if answer == NONE:
        raise ConfigError("--column image=none: every row needs an image")
    files = {file.rpartition("/")[2] for file in proposal.pictures.files}
    if sum(name in files for name in proposal.headers) > 1:
        line = "pd.read_csv('labels.csv', header=None, dtype=str).T.to_csv('new.csv', index=False, header=False)"
        raise ConfigError(f"each image is a column of the table, not a row: {convert(line)}")
    given = proposal.table.pop("images", {})
    if given.keys() - {"elements", "unmatched", "header"}:
        fields = [match[1] for match in FIELD.finditer(str(given.get("path", "")))]
        column = answer or next((name for name in reversed(fields) if name in proposal.headers), None)
        column = column or next(iter(find_called("image", proposal.headers)), proposal.headers[0])
        _note_match(proposal, try_images(proposal.frame, column, given, proposal.pictures))
        return []
    elements = _find_images(proposal, answer, read_headers, roles, leave_out=given.get("unmatched") == "drop")
    proposal.rule |= given
    return elements


def _find_images(
    proposal: Proposal,
    answer: str | None,
    read_headers: Callable[[], pd.DataFrame],
    roles: Mapping[str, str],
    *,
    leave_out: bool,
) -> list[str]:
    """The elements of headers that became columns, where the user does not say how images are found.

    With `leave_out`, rows that no header matches need no answer.
    """
    names = [name for name in proposal.headers if name_disease(name) is None] if answer is None else [answer]
    hints = [*find_called("patient", proposal.headers), *find_called("study", proposal.headers)]
    attempts = [match_column(proposal.frame, name, proposal.pictures, hints) for name in names]
    matches = sorted((m for m in attempts if m is not None and m.named), key=lambda m: (-m.files, -m.share))
    if matches:
        match = matches[0] if answer is not None else _choose(proposal, matches)
        _note_match(proposal, match)
        return _add_elements(proposal, read_headers, roles) if proposal.pictures.dicoms else []
    if _match_folders(proposal, answer):
        return []
    elements = None
    if proposal.pictures.dicoms:
        elements = _match_headers(proposal, answer, read_headers, roles, leave_out=leave_out)
    if elements is None and not proposal.columns.get("image") and not _match_spelled(proposal, names):
        questions = next((asked for name in names if (asked := _find_endings(proposal, name))), None)
        proposal.ask(*(questions or [_explain(proposal.frame[names], proposal.pictures)]))
        proposal.image = pd.Series(proposal.frame.index.astype(str), index=proposal.frame.index)
    return elements or []


def _note_match(proposal: Proposal, match: ImageMatch) -> None:
    proposal.take("image", match.column, f"{count(match.named, match.cells)} name a file ({match.how})")
    proposal.image = match.paths.where(match.paths.notna(), proposal.frame[match.column])
    proposal.rule = match.images.model_dump(exclude_defaults=True)
    proposal.evidence["images"], proposal.examples = match.how, match.examples
    if match.ambiguous:
        proposal.ask(
            f"image column '{match.column}': {match.ambiguous:,} of {match.cells:,} cells match files of the same name "
            "in several folders, such as originals and thumbnails, or a numbering that restarts in each folder. Give "
            "--images only the right folder; or add a column with the path below it to the table"
        )
    lost, idle = match.cells - match.named, len(proposal.pictures.files) - match.files
    dropped = proposal.answers.keys.get("rows", {}).get("missing_image")
    if lost and dropped == "drop":
        kept = match.paths.notna() | proposal.frame[match.column].isna()
        proposal.frame, proposal.image = proposal.frame[kept], proposal.image[kept]
    elif lost and not dropped:
        cells, names = proposal.frame[match.column], _list_names(proposal.pictures)
        unnamed = cells[match.paths.isna() & cells.notna()]
        lists = unnamed.map(partial(_is_list, names=names))
        several = (
            f" ({lists.sum():,} of them name several: give each image a row, {convert(_explode(match.column))})"
            if lists.any()
            else ""
        )
        proposal.ask(
            f"image column '{match.column}': {lost:,} of {match.cells:,} cells name no file of the folder "
            f"({list_rows(unnamed.index)}){several}: add the images, correct the cells, or leave out such rows",
            _DROP,
        )
    if idle:
        proposal.idle = f"{idle:,} of {len(proposal.pictures.files):,} image files are named by no row so far"


def _add_elements(proposal: Proposal, read_headers: Callable[[], pd.DataFrame], roles: Mapping[str, str]) -> list[str]:
    """The elements of the headers of named files that become columns: those that are asked for, or the table lacks."""
    lacking = [
        tag for role, tag in _list_lacking(proposal, roles) if role != "study" or role in proposal.answers.columns
    ]
    try:
        headers = read_headers() if lacking else None
    except SiteError:  # none can be read
        headers = None
    if headers is None:
        return []
    places = pd.Index(headers["image"]).get_indexer(pd.Index(proposal.image))
    wide, elements = proposal.frame.copy(), []
    for tag in (tag for tag in lacking if tag in headers):
        cells = np.append(headers[tag].to_numpy(dtype=object), np.array([None], dtype=object))[places]
        if len({*cells[pd.notna(cells)]}) > (tag == "PatientID"):  # one for all stands for nobody
            wide[tag] = cells
            elements.append(tag)
    proposal.frame = wide
    return elements


def _list_lacking(proposal: Proposal, roles: Mapping[str, str]) -> list[tuple[str, str]]:
    """The roles, with their elements, that the user says headers have, or for which the table has no column."""
    names, answers = proposal.headers, proposal.answers.columns
    return [
        (role, tag)
        for role, tag in roles.items()
        if tag not in names and (answers[role] == tag if role in answers else not find_called(role, names))
    ]


def _choose(proposal: Proposal, matches: Sequence[ImageMatch]) -> ImageMatch:
    """The match that is certain; else the best one, with a question."""
    frame = proposal.frame
    strong = [match for match in matches if match.share >= ENOUGH]
    if not strong:  # a table of all images, and the folder has some of them: names that no number has by chance
        files = ENOUGH * len(proposal.pictures.files)
        strong = [match for match in matches if match.files >= files and not is_small(frame[match.column])]
    strong = [match for match in strong if not match.ambiguous] or strong
    best = _best(strong, proposal.pictures)
    doubt = "several columns name images, and not the same ones" if strong else "too few cells name a file"
    if best is not None and not (doubt := _doubt_numbers(best, frame)):
        return best
    listed = "; ".join(f"{m.column}: {count(m.named, m.cells)} name a file" for m in matches[:8])
    if strong:
        listed += f". If a row has several images: {convert('pd.wide_to_long(frame, stubs, patient, visit)')}"
    options = (option("--column", f"image={m.column}") for m in matches[:8])
    proposal.ask(f"image column: {doubt} ({listed})", *options, about=[m.column for m in matches[:8]])
    return best or matches[0]


def _best(strong: Sequence[ImageMatch], pictures: Pictures) -> ImageMatch | None:
    """The column that names most files; None if others name as many, but not the same."""
    if not strong:
        return None
    best = strong[0]
    rivals = [m for m in strong if m.files >= _RIVAL * best.files and not m.paths.equals(best.paths)]
    if rivals and best.files >= ENOUGH * len(pictures.files):  # it names all there are, and they do not
        rivals = [m for m in rivals if m.files >= ENOUGH * len(pictures.files)]
    if not rivals:
        same = [m for m in strong if m.paths.equals(best.paths)]
        return min(same, key=lambda m: (not is_called("image", m.column), m.images.path is not None))
    likely = [m for m in (best, *rivals) if is_called("image", m.column)]
    return likely[0] if len(likely) == 1 else None


def _doubt_numbers(best: ImageMatch, frame: pd.DataFrame) -> str:
    """Why a column of small numbers may name files by chance, as a running number does; empty if nothing says so."""
    if not is_small(frame[best.column]):
        return ""
    called = is_called("image", best.column)
    for name in (str(name) for name in frame if name != best.column):
        cells = frame[name].dropna()
        named = not called and is_called("image", name) and cells.nunique() > _RIVAL * best.named
        if named or (len(cells) and cells.map(lambda cell: bool(image_ending(str(cell)))).mean() >= _RIVAL):
            return (
                f"the numbers of '{best.column}' may name files by chance; '{name}' looks like file names, but names "
                "other files"
            )
    return ""


def _match_spelled(proposal: Proposal, names: Sequence[str]) -> bool:
    """Whether the cells of one column are in the names of files, with other signs; if they are small numbers, ask."""
    frame, given = proposal.frame, proposal.answers.columns.get("image")
    many = [name for name in names if frame[name].nunique() >= _RIVAL * len(proposal.pictures.files)]
    attempts = [match_spelled(frame, name, proposal.pictures) for name in many if not has_dates(frame[name])]
    matches = [match for match in attempts if match is not None and match.share >= ENOUGH]
    if not matches:
        return False
    matches.sort(key=lambda match: -match.files)
    if len(matches) > 1 or (is_small(frame[matches[0].column]) and not given):
        listed = "; ".join(f"{m.column}: {count(m.named, m.cells)} ({m.how})" for m in matches)
        text = f"image column: cells are in the names of files, perhaps by chance ({listed})"
        proposal.ask(text, *(option("--column", f"image={m.column}") for m in matches))
    _note_match(proposal, matches[0])
    proposal.first.append(f"'{matches[0].column}' names the files in another way: are the rows below 'image' right?")
    return True


def _list_names(pictures: Pictures) -> set[str]:
    return {file.rpartition("/")[2].casefold() for file in pictures.files}


def _is_list(cell: str, names: set[str]) -> bool:
    """Whether a cell names several files."""
    parts = re.split(_BETWEEN, cell.strip().casefold())
    return len(parts) > 1 and names.issuperset(parts)


def _explode(column: str) -> str:
    cells = f"frame[{column!r}].str.strip().str.split(r'{_BETWEEN}', regex=True)"
    return f"frame.assign(**{{{column!r}: {cells}}}).explode({column!r})"


def _find_endings(proposal: Proposal, name: str) -> list[str]:
    """A question, with its answers, where names of files are a cell and what is behind it; empty for other columns."""
    cells, pictures = proposal.frame[name].dropna().str.strip(), proposal.pictures
    known, named, behind = set(cells), set[str](), Counter[str]()
    for file in pictures.files:
        whole = file.rpartition("/")[2]
        ends = [sign.start() for sign in re.finditer(r"[\W_]", whole.removesuffix(image_ending(whole)))]
        if cut := next((end for end in reversed(ends) if whole[:end] in known), 0):
            named.add(whole[:cut])
            behind[whole[cut:]] += 1
    if cells.empty or cells.isin(named).mean() < ENOUGH:
        return []
    answers = []
    for ending, number in behind.most_common(_EXAMPLES) if not set("{}") & {*"".join(behind)} else ():
        view = name_view(ending.removesuffix(image_ending(ending)))
        keys = [f"images.path={{image}}{ending}"]
        keys += ["images.recursive=true"] if any("/" in file for file in _list_below(pictures)) else []
        if view and not find_called("view", proposal.headers) and "default_view" not in proposal.table:
            keys += [f"default_view={view}", *([f"views=[{view}]"] if view not in VIEWS else [])]
        options = " ".join([option("--column", f"image={name}"), *(option("--set", key) for key in keys)])
        answers.append(f"{options} ({count(number, len(pictures.files), 'files')})")
    return [
        f"image column: the names of the {len(pictures.files):,} images in the folder begin with cells of '{name}': "
        "choose the images that the rows are about; or, for all of them, write one row per image, or put the images "
        "of each study into a folder of that name",
        *answers,
    ]


def _list_below(pictures: Pictures) -> list[str]:
    """The files relative to the folder that the user named."""
    return [file.removeprefix(f"{pictures.folder}/") for file in pictures.files]


def _explain(frame: pd.DataFrame, pictures: Pictures) -> str:
    """Why no cell of any column names a file of the folder, as far as that can be seen."""
    text = f"image column: no column has cells that name the {len(pictures.files):,} images in the folder. "
    names, exact = _list_names(pictures), {file.rpartition("/")[2] for file in pictures.files}
    bare = {stem.lstrip("0") for stem in pictures.by_stem if stem.isdecimal()}
    for name in map(str, frame):
        cells = frame[name].dropna().str.strip()
        if cells.empty:
            continue
        many = cells.nunique() >= _RIVAL * len(pictures.files)
        if many and cells.str.fullmatch(r"\d+").all() and cells.str.lstrip("0").isin(bare).mean() >= ENOUGH:
            return text + f"Those of '{name}' would without leading zeros: export that column as text"
        if cells.map(partial(_is_list, names=names)).mean() >= ENOUGH:
            line = convert(_explode(name))
            return text + f"Each cell of '{name}' names several images, and needs a row for each: {line}"
        last = cells.str.rsplit("/", n=1).str[-1]
        for sign in "-_":
            if last.str.split(sign, n=1).str[-1].isin(exact).mean() >= ENOUGH:
                line = (
                    f"frame[{name!r}] = frame[{name!r}].str.rsplit('/', n=1).str[-1].str.split('{sign}', n=1).str[-1]"
                )
                return text + f"Those of '{name}' end with them, after a '{sign}': {convert(line)}"
        if cells.str.casefold().isin(names).any():
            return (
                text + f"Those of '{name}' would if case did not matter (.png, .PNG): write the names as the files have"
            )
    return (
        text
        + f"The columns are {', '.join(map(str, frame))}. Perhaps --images is another folder, or these are not the "
        "names of the columns: --set header_row=2 if they are in row 2"
    )


def _match_folders(proposal: Proposal, answer: str | None) -> bool:
    """Whether the cells of one column are folders of images; the table then gets a row per image."""
    frame = proposal.frame
    below: dict[str, list[str]] = defaultdict(list)
    for file in proposal.pictures.files:
        for folder in Path(file).parents[:-1]:
            below[folder.as_posix()].append(file)
    matches = {}
    for name in [answer] if answer else proposal.headers:
        cells = frame[name].dropna()
        tops = Counter(folder.rpartition("/")[0] for folder in below if folder.rpartition("/")[2] in set(cells))
        top = tops.most_common(1)[0][0] if tops else ""
        files = [below.get(f"{top}/{cell}".removeprefix("/"), []) for cell in frame[name].fillna("\0")]
        if cells.is_unique and sum(map(bool, files)) >= ENOUGH * max(1, len(cells)):
            matches[name] = top or ".", files
    if not matches:
        return False
    sure = [name for name in matches if is_called("study", name) or not is_small(frame[name])]
    if not answer and (not sure or len({str(matches[name][1]) for name in sure}) > 1):
        text = f"image column: cells of {', '.join(matches)} are names of folders with images, possibly by chance"
        proposal.ask(text, *(option("--column", f"image={name}") for name in matches))
    column = answer or (sure or list(matches))[0]
    top, files = matches[column]
    proposal.take("image", column, f"{count(sum(map(bool, files)), int(frame[column].notna().sum()))} name a folder")
    if is_called("study", column):
        proposal.take("study", column, "a folder for each study")
    proposal.rule, proposal.evidence["images"] = {"folder": True, "roots": [top]}, "a folder of images"
    proposal.frame = proposal.expand(np.repeat(np.arange(len(frame)), list(map(len, files))))
    proposal.image = pd.Series([file for folder in files for file in folder], dtype=object)
    return True


def _match_headers(
    proposal: Proposal,
    answer: str | None,
    read_headers: Callable[[], pd.DataFrame],
    roles: Mapping[str, str],
    *,
    leave_out: bool,
) -> list[str] | None:
    """The elements of the headers that became columns; None if no column's cells are in the headers."""
    frame, names = proposal.frame, proposal.headers
    try:
        headers = read_headers()
    except SiteError:  # none can be read
        return None
    shares = {
        (name, element): float(frame[name].dropna().isin(set(headers[element].dropna())).mean())
        for element in IMAGE_KEYS
        if element in headers
        for name in ([answer] if answer else names)
        if frame[name].notna().any()
    }
    likely = sorted((key for key, share in shares.items() if share >= _RIVAL), key=lambda key: -shares[key])
    if not likely:
        _hint_at_zeros(proposal, headers)
        return None
    column, element = _choose_key(proposal, likely, shares, headers)
    rows, places = pair_headers(frame[column], headers, element)
    elements = [tag for _, tag in _list_lacking(proposal, roles) if tag in headers]
    wide = proposal.expand(rows)
    for tag in elements:
        wide[tag] = headers[tag].to_numpy(dtype=object)[places]
    proposal.elements = frozenset(elements)
    cells, matched = int(frame[column].notna().sum()), len(np.unique(rows))
    proposal.take("image", column, f"{count(matched, cells)} are the {element} in the headers of the images")
    if element != "SOPInstanceUID" and "study" not in proposal.answers.columns:
        proposal.take("study", column, f"the {element} is that of a study")
    if cells > matched:
        lost = frame.index[frame[column].notna() & ~np.isin(np.arange(len(frame)), rows)]
        text = f"image column '{column}': {cells - matched:,} of {cells:,} cells are the {element} of no image"
        if leave_out:
            proposal.first.append(f"{text} ({list_rows(lost)}): left out")
        else:
            text = f"{text} ({list_rows(lost)}): add the images, correct the cells, or leave out such rows"
            proposal.ask(text, "--set images.unmatched=drop")
    for name in find_called("patient", names):
        _compare_patients(proposal, frame[name], headers, rows, places)
    proposal.rule = {"header": element, "roots": [proposal.pictures.folder or "."]}
    proposal.frame, proposal.evidence["images"] = wide, "by the headers of the images"
    proposal.image = pd.Series(headers["image"].to_numpy(dtype=object)[places], dtype=object)
    return elements


def _compare_patients(
    proposal: Proposal, cells: pd.Series, headers: pd.DataFrame, rows: np.ndarray, places: np.ndarray
) -> None:
    """Note rows with another patient than the header of an image of theirs; no patient is named."""
    other, short = find_other_patients(cells, headers, rows, places)
    text = f"'{cells.name}' is not the PatientID in the image's header in {{:,}} of {len(cells):,} rows ({{}}): {{}}"
    if short.any() and proposal.answers.columns.get("patient") != "PatientID":
        why = (
            "it lacks leading zeros: export the column as text, or take the headers' "
            f"({option('--column', 'patient=PatientID')})"
        )
        proposal.first.append(text.format(int(short.sum()), list_rows(cells.index[short]), why))
    if other.any():
        why = "rows have slipped, or a wrong column"
        proposal.first.append(text.format(int(other.sum()), list_rows(cells.index[other]), why))


def _choose_key(
    proposal: Proposal, likely: list[tuple[str, str]], shares: Mapping[tuple[str, str], float], headers: pd.DataFrame
) -> tuple[str, str]:
    """The column and the element; a question where small numbers, or columns that disagree, may match by chance."""
    frame = proposal.frame

    def is_firm(key: tuple[str, str]) -> bool:
        called = is_called(_CALLED[key[1]], key[0])
        odd = not plain(key[0]) or any(is_called(role, key[0]) for role in _ELSE)
        return shares[key] >= ENOUGH and (called if is_small(frame[key[0]]) else called or not odd)

    firm = [key for key in likely if is_firm(key)]
    pairs = {
        key: set(zip(*(part.tolist() for part in pair_headers(frame[key[0]], headers, key[1])), strict=True))
        for key in firm
    }
    nested = all(pairs[a] <= pairs[b] or pairs[b] <= pairs[a] for a, b in combinations(firm, 2))
    long = [key for key in firm if not is_small(frame[key[0]]) and is_called(_CALLED[key[1]], key[0])]
    if not proposal.answers.columns.get("image") and (not firm or (not nested and len(long) != 1)):
        listed = ", ".join(f"{name} ({shares[name, element]:.0%})" for name, element in likely)
        text = f"image column: cells are found in the headers of the images, perhaps by chance: {listed}"
        proposal.ask(text, *dict.fromkeys(option("--column", f"image={name}") for name, _ in likely))
    return (firm if nested and firm else long or likely)[0]


def _hint_at_zeros(proposal: Proposal, headers: pd.DataFrame) -> None:
    for element in (element for element in IMAGE_KEYS if element in headers):
        numbers = set(headers[element].dropna().str.lstrip("0"))
        for name in proposal.headers:
            if proposal.frame[name].dropna().str.lstrip("0").isin(numbers).mean() >= ENOUGH:
                text = f"image column: '{name}' would match the {element} of the headers without leading zeros"
                proposal.ask(f"{text}: export the table with that column as text")
                proposal.take("image", name, "without leading zeros")
                proposal.image = proposal.frame[name]
                return
