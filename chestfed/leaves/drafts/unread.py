"""Columns that nothing reads: those of few values are asked for, whatever they are called; the others are listed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np
import pandas as pd

from chestfed.core.diseases import DISEASES
from chestfed.core.errors import ConfigError
from chestfed.data.sites.label_files.text import convert
from chestfed.data.sites.lexicon import NO_FINDING, list_names, name_view, plain
from chestfed.data.sites.reader import ages
from chestfed.data.sites.tables.codebook import EMPTY, KEEP, LABEL, normalize_value
from chestfed.data.sites.tables.schema import FIELD
from chestfed.leaves.drafts.codes import (
    SHOWN_FROM,
    add_codes,
    ask_codes,
    count_with_empty,
    guess_label,
    guess_words,
    list_frequent,
    names_split,
    offer_codes,
)
from chestfed.leaves.drafts.columns import (
    are_years,
    find_folder,
    find_prefix,
    has_only_views,
    have_same_groups,
    is_constant,
    list_paths,
    looks_like_ids,
    offer_split,
)
from chestfed.leaves.drafts.proposal import ENOUGH, FOLDER, NONE, PREFIX, Proposal, has_dates, option

#: A column of so many different cells, the empty one being one of them, may say how a row is to be used.
_FEW: Final = 12
_MOST_SHOWN: Final = 6
_MOST_SITES: Final = 50
_MOSTLY: Final = 0.5
#: So many different numbers may be codes; more, with three decimals, are measured.
_CODES: Final = 4
_RADIOGRAPHS: Final = frozenset(("cr", "dx", "dr"))


def leave_out_rows(proposal: Proposal) -> None:
    """Note the filter columns, ask for their values, and leave out the rows that they drop: nothing counts these."""
    coded = [code.column for code in proposal.answers.codes if code.kind == KEEP and code.is_known]
    names = dict.fromkeys([*proposal.table.get("keep", []), *(name for name in coded if name in proposal.headers)])
    filters = [name for name in names if name not in proposal.table.get("ignore", [])]
    if filters:
        proposal.table["keep"] = filters
    done = {code.column for code in proposal.codes if code.kind == KEEP}
    for name in (name for name in filters if name not in done):
        _propose_filter(proposal, name)


def account_for_rest(proposal: Proposal) -> None:
    """Note the site's column, ask for columns of few values that have no role, and list the others."""
    _note_site(proposal)
    leave_out_rows(proposal)
    rest = list_rest(proposal)
    counts = {name: count_with_empty(proposal.select_counted(name)) for name in rest}
    known = {name: text for name in rest if (text := _explain(proposal, name, counts[name]))}
    few = [name for name in rest if 2 <= len(counts[name]) <= _FEW and name not in known]
    _ask_patients(proposal, rest)
    _ask_sites(proposal, [name for name in rest if _FEW < proposal.frame[name].nunique() <= len(proposal.frame) / 10])
    for name in few:
        proposal.ask(
            f"not read: '{name}': {_show_values(counts[name])}. Does it say which rows to leave out, which images are "
            "for testing, what is found, whose the images are, or nothing of these?",
            *_list_answers(proposal, name, counts[name]),
            f"{option('--column', f'ignore={name}')} (nothing of these)",
        )
    empty = [name for name in proposal.headers if not proposal.frame[name].notna().any()]
    empty = [name for name in empty if name not in proposal.table.get("ignore", [])]
    texts = {name: known.get(name) or _describe(proposal, name) for name in (*rest, *empty) if name not in few}
    if others := [f"{name} ({text})" for name, text in texts.items()]:
        proposal.first.append(f"not read: {', '.join(others)}")


def list_rest(proposal: Proposal) -> list[str]:
    """The columns with cells that nothing reads, not ignored by the user."""
    table = proposal.table
    joined = [key for join in table.get("join", []) for key in join.get("key", [])]
    path = FIELD.finditer(str(proposal.rule.get("path", "")))
    used = {
        *proposal.pending,
        *table.get("keep", []),
        table.get("patient_prefix"),
        *joined,
        *(match[1] for match in path),
    }
    return [name for name in proposal.free if name not in used]


def _explain(proposal: Proposal, name: str, counts: dict[str, int]) -> str:
    """Why a column of few values says nothing of how a row is to be used; empty if nothing tells."""
    cells, view, present = proposal.frame[name], proposal.columns.get("view"), proposal.present
    fine = cells.dropna().str.fullmatch(r"-?\d*[.,]\d{3,}").mean() > _MOSTLY
    if fine and len(counts) > _CODES and pd.to_numeric(cells, errors="coerce").notna().equals(cells.notna()):
        return f"{len(counts)} measured values"
    if {*counts} <= _RADIOGRAPHS:
        return "modalities of radiographs"
    if view is not None and has_only_views(cells) and not _contradict(cells, proposal.frame[view]):
        return f"views, as '{view}' has them"
    if present is not None and len(counts) == 2 and not list_names(name) and is_constant(cells.fillna(""), present):
        return "whether any disease is present, as the labels say"
    waiting = any(code.kind == LABEL and not code.is_known for code in proposal.codes)
    if plain(name) in NO_FINDING and present is not None and (waiting or not cells[present].map(_is_affirmed).any()):
        return "where nothing is found, as the labels say"
    return ""


def _is_affirmed(cell: str | float) -> bool:
    return isinstance(cell, str) and guess_label(normalize_value(LABEL, cell))[0] != "negative"


def _contradict(first: pd.Series, second: pd.Series) -> bool:
    """Whether two columns of views give an image views that exclude each other, or one of them is not known."""
    pairs = pd.DataFrame({"a": first, "b": second}).dropna().drop_duplicates().map(name_view)
    frontal = ("pa", "ap", "frontal")
    return not all(a == b or (a in frontal and b in frontal and "frontal" in (a, b)) for a, b in pairs.to_numpy())


def _show_values(counts: dict[str, int]) -> str:
    values = list_frequent(counts)[:_MOST_SHOWN]
    text, more = ", ".join(f"{value or EMPTY} ({counts[value]:,})" for value in values), len(counts) - len(values)
    return f"{text}{f' and {more} more in fewer than {SHOWN_FROM} rows each' if more else ''}"


def _describe(proposal: Proposal, name: str) -> str:
    cells = proposal.frame[name].dropna()
    number = cells.nunique()
    text = f"{number:,} different values" if number > 1 else "one value" if number else "empty"
    worded = len(cells) and not cells.str.fullmatch(r"[\d.,\s]+").any() and np.isfinite(ages(cells)).mean() >= ENOUGH
    free = not {"age", "birth"} & {*proposal.columns} and proposal.get_answer("age") is None
    if free and has_dates(cells):
        return f"{text}; if they are dates of birth, {option('--column', f'birth={name}')} gives ages"
    return f"{text}; if they are ages, {option('--column', f'age={name}')}" if worded and free else text


def _list_answers(proposal: Proposal, name: str, counts: dict[str, int]) -> list[str]:
    """Options for a column: the rows to leave out, and what else its cells may be."""
    values = list_frequent(counts)[:_MOST_SHOWN]
    guess = guess_words("sex", name, [value for value in counts if value])
    if {"F", "M"} <= {guess(value)[0] for value in counts if value} and _has_no_sex(proposal):
        return [f"{option('--column', f'sex={name}')} (the patient's sex)"]
    more = " ..." if len(values) < len(counts) else ""
    kept = offer_codes(name, values, ["keep", *["drop"] * (len(values) - 1)])
    answers = [f"{kept}{more} (these rows are left out, or the other way round)"] if values else []
    if _may_be_sexes(proposal, name, counts):
        answers.insert(0, f"{option('--column', f'sex={name}')} (the patient's sex)")
    if "view" not in proposal.columns and not proposal.is_in_path("view") and any(map(name_view, counts)):
        answers.insert(0, f"{option('--column', f'view={name}')} (the view of the image)")
    if split := offer_split(proposal, name):
        answers.insert(0 if names_split(name) else 1, split)
    if "finding" in proposal.columns and not is_constant(proposal.frame[name].fillna(""), proposal.image):
        answers.append(f"{option('--column', f'value={name}')} (whether the finding of the row is present)")
    labeled = [disease for disease in DISEASES if disease in proposal.labels]
    lacking = ", ".join(disease for disease in DISEASES if disease not in labeled) if labeled else ""
    without = f"; none yet for {lacking}" if lacking else ""
    answers.append(f"{option('--label', f'DISEASE={name}')} (whether a disease is present{without})")
    number, share = _count_split(proposal, proposal.frame[name])
    years = are_years(proposal.frame[name].dropna().unique())
    if share >= _MOSTLY and proposal.get_answer("site") is None and not years:
        text = f"{number:,} patient numbers occur at several of its values: different persons"
        answers.append(f"{option('--column', f'site={name}')} ({text})")
    return answers


def _has_no_sex(proposal: Proposal) -> bool:
    return "sex" not in proposal.columns and not proposal.is_in_path("sex") and proposal.get_answer("sex") is None


def _may_be_sexes(proposal: Proposal, name: str, counts: Mapping[str, int]) -> bool:
    """Whether the column may be the sex in unknown words: two or three short ones, one per patient."""
    words = [value for value in counts if value]
    if not _has_no_sex(proposal) or not 2 <= len(words) <= 3 or any(guess_label(word)[0] for word in words):
        return False
    if not all(re.fullmatch(r"[^\W\d_]{1,10}\.?", word) for word in words):
        return False
    patient = proposal.columns.get("patient")
    person = proposal.frame[patient] if patient is not None else proposal.image
    several = proposal.frame[name].groupby(person).nunique() > 1
    return bool(several.mean() < 1 - ENOUGH)


def _propose_filter(proposal: Proposal, name: str) -> None:
    """The codes of a filter column, whose values keep or drop a row."""
    rows = add_codes(proposal, name, KEEP, count_with_empty(proposal.frame[name]), lambda value: ("", "", False))
    dropped = [row for row in rows if row.meaning == "drop"]
    if dropped:
        listed = ", ".join(f"'{row.value or EMPTY}' ({row.rows:,})" for row in dropped)
        proposal.first.append(f"rows are left out by '{name}': {listed}")
    ask_codes(proposal, f"filter column '{name}', keep or drop", name, rows, option("--column", f"ignore={name}"))
    values = proposal.frame[name].map(partial(normalize_value, KEEP), na_action="ignore").fillna("")
    proposal.leave_out(values.isin({row.value for row in dropped}), f"'{name}'")


#: Answers that name a part of the images' paths -> where it is.
_PLACES: Final[Mapping[str, Callable[[pd.Series], tuple[str, str] | None]]] = {
    FOLDER: partial(find_folder, role="site"),
    PREFIX: partial(find_prefix, role="site"),
}
_WORDS: Final = {FOLDER: "folders", PREFIX: "file names' beginnings"}


def _note_site(proposal: Proposal) -> None:
    """The column, or the folder of the images, of the center that numbers its own patients."""
    answer = proposal.get_answer("site")
    if answer in _PLACES:
        place = _PLACES[str(answer)](list_paths(proposal))
        if place is None or "from_path" in proposal.table:
            raise ConfigError(f"--column site={answer}: the images have none, or from_path is used already")
        proposal.table["from_path"], proposal.evidence["from_path"] = place
    elif answer not in (None, NONE):
        proposal.table["patient_prefix"], proposal.evidence["patient_prefix"] = answer, "given"


def _count_split(proposal: Proposal, cells: pd.Series) -> tuple[int, float]:
    """Count patients with several images who have several of the cells, and give their share."""
    patient = proposal.columns.get("patient")
    if patient is None or patient == proposal.columns.get("image"):
        return 0, 0.0
    groups = cells.groupby(proposal.frame[patient])
    several = groups.nunique()[groups.size() > 1]
    return int((several > 1).sum()), float((several > 1).mean()) if len(several) else 0.0


def _ask_sites(proposal: Proposal, names: Sequence[str]) -> None:
    """A question if a column, or the images' folders, cut through most patients: centers may number them alike."""
    if proposal.get_answer("site") is not None:
        return
    paths = list_paths(proposal)
    named = [(name, proposal.frame[name]) for name in names]
    parts = [(f"column '{name}'", name, cells) for name, cells in named if not are_years(cells.dropna().unique())]
    for name, find in _PLACES.items() if "from_path" not in proposal.table else ():
        if (place := find(paths)) is None:
            continue
        cells = paths.str.extract(place[0])["site"]
        if are_years(cells.dropna().unique()):
            proposal.notes.append(f"the images' {_WORDS[name]} are years, no centers (else --column site={name})")
        elif name == FOLDER or (cells.nunique() <= _FEW and not all(map(name_view, cells.dropna().unique()))):
            parts.append((f"the {_WORDS[name]} of the images", name, cells))
    for what, name, cells in parts:
        split, share = _count_split(proposal, cells)
        if share >= _MOSTLY and 2 <= cells.nunique() <= _MOST_SITES:
            proposal.ask(
                f"patient: {split:,} patient numbers occur at several of {cells.nunique()} values of {what}; are they "
                "different persons, of centers that number alike?",
                option("--column", f"site={name}"),
                f"{option('--column', f'site={NONE}')} (no: the same persons)",
            )


def _ask_patients(proposal: Proposal, rest: Sequence[str]) -> None:
    """A question if the patient, found by a name, may be an examination: another column groups several of them."""
    patient = proposal.columns.get("patient")
    if patient is None or proposal.get_answer("patient") is not None:
        return
    frame = proposal.frame
    _ask_examinations(proposal, frame[patient])
    study = [proposal.columns["study"]] if "study" in proposal.columns else []
    coarser = []
    for name in [*rest, *study]:
        cells = frame[name]
        pairs = pd.DataFrame({"patient": frame[patient], "cell": cells}).dropna().drop_duplicates()
        nested = pairs["patient"].is_unique and len(pairs) and cells.nunique() < frame[patient].nunique()
        if nested and looks_like_ids(cells, proposal.image) and not have_same_groups(cells, frame[patient]):
            coarser += [name] if _may_be_persons(proposal, cells) else []
    if coarser:
        numbers = ", ".join(f"'{name}' has {frame[name].nunique():,} different values" for name in coarser)
        proposal.ask(
            f"patient: '{patient}' has {frame[patient].nunique():,} different values for {proposal.image.nunique():,} "
            f"images, and {numbers}, each over several of them: which is the patient, and not the examination?",
            *(option("--column", f"patient={name}") for name in [*coarser, patient]),
        )


def _ask_examinations(proposal: Proposal, cells: pd.Series) -> None:
    """A question if there is a patient for each image, and what they begin with groups them: `P7_1`, `P7_2`."""
    number, sign = (
        proposal.image.nunique(),
        next((s for s in "_-./ " if cells.str.contains(s, regex=False).all()), None),
    )
    persons = 0 if sign is None else cells.str.rsplit(sign, n=1).str[0].nunique()
    if cells.nunique() == number and number / 5 < persons < number:
        line = f"frame.assign(patient=frame['{cells.name}'].str.rsplit('{sign}', n=1).str[0])"
        proposal.ask(
            f"patient: '{cells.name}' has a value for each image, and {persons:,} beginnings up to the last '{sign}': "
            f"of the patients, with the examination behind it? Then {convert(line)}",
            f"{option('--column', f'patient={cells.name}')} (no: a patient for each image)",
        )


def _may_be_persons(proposal: Proposal, cells: pd.Series) -> bool:
    """Whether groups of images have one sex each, as far as the table says."""
    sex = proposal.columns.get("sex")
    if sex is None:
        return True
    groups = proposal.frame[sex].groupby(cells)
    several = groups.nunique()[groups.size() > 1]
    return bool(not len(several) or np.mean(several > 1) < 1 - _MOSTLY / 5)
