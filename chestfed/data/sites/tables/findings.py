"""From findings in long form to one raw finding per image and disease: what several say together, and votes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from chestfed.core.console import plural
from chestfed.data.sites.reader import BLANK, NEGATIVE, POSITIVE, STRENGTH, UNCERTAIN, UNLABELLED
from chestfed.data.sites.tables.melt import LongFindings
from chestfed.data.sites.tables.rows import TableRows

#: Raw findings by strength; a disease that is not mentioned is weaker than all.
_BY_STRENGTH: Final = np.array(sorted(STRENGTH, key=STRENGTH.__getitem__), dtype=np.int8)
_UNMENTIONED: Final = -1
#: More than this share of the rows that report a disease may not deny it in another column.
_CONTRADICTORY: Final = 0.05

#: Rules other than the name of one reader.
RULES: Final = ("any", "majority", "all")


@dataclass(frozen=True)
class _Readings:
    """Each image as one annotator, or the table, describes it."""

    image: np.ndarray  #: int64 `[r]`
    reader: np.ndarray  #: int64 `[r]`
    first: np.ndarray  #: the first row of the table, int64 `[r]`
    order: np.ndarray  #: entries of the long form, those of a reading together, int64 `[m]`
    starts: np.ndarray  #: where each reading begins in `order`, int64 `[r]`

    def strongest(self, ranks: np.ndarray) -> np.ndarray:
        """The highest of int8 `[m]`, or any of bool `[m]`, per reading."""
        return np.maximum.reduceat(ranks[self.order], self.starts) if len(self.starts) else ranks[:0]


def combine(rows: TableRows, long: LongFindings, of_image: np.ndarray, images: int) -> dict[str, np.ndarray]:
    """Findings int8 `[images]` per disease; `of_image` is the image of each row, int `[n]`."""
    config = rows.source.config
    chosen = _choose_readers(rows, long, of_image)
    readings = _group(long, of_image)
    unmentioned = _Flags(long, readings)
    findings, contradictory = {}, np.zeros(len(readings.image), dtype=bool)
    for disease in (name for name in config.diseases if name not in config.constant):
        findings[disease], denied = _read_disease(rows, long, readings, unmentioned, disease)
        contradictory |= denied
    if rows.table.has_terms():
        whose = " and annotator" if long.has_readers else ""
        text = f"the labels of this image{whose} call a disease present and absent"
        bad = np.zeros(len(rows.frame), dtype=bool)
        bad[readings.first[contradictory]] = True
        advice = "fix the cells, or the meaning of the findings in table.codes"
        rows.report_images("contradictory labels", bad, of_image, text, advice)
        _remark_on_terms(rows, long, readings, unmentioned, findings)
    if long.has_readers:
        counts = chosen[readings.reader]
        image, silent = readings.image[counts], rows.table.has_terms()
        votes = {name: cast[counts] for name, cast in findings.items()}
        findings = {
            name: combine_votes(cast, image, images, rows.table.raters, silent=silent) for name, cast in votes.items()
        }
        described = np.bincount(image, minlength=images) > 0
    else:
        described = np.ones(images, dtype=bool)
    if not rows.table.has_terms():
        for disease, codes in findings.items():
            number = int(((codes == UNLABELLED) & described).sum())
            rows.source.unread("values that mean missing", disease, number)
    codes_of = {"positive": POSITIVE, "negative": NEGATIVE}
    return findings | {name: np.full(images, codes_of[label]) for name, label in config.constant.items()}


class _Flags:
    """Statements of each reading's terms on diseases that they do not name; all bool `[r]`."""

    def __init__(self, long: LongFindings, readings: _Readings) -> None:
        def flag(which: Sequence[bool]) -> np.ndarray:
            return readings.strongest(np.array(which, dtype=bool)[long.meaning])

        meanings = long.meanings
        vague = [meaning is not None and not meaning.understood for meaning in meanings]
        self.healthy = flag([meaning is not None and meaning.healthy for meaning in meanings])
        self.waiting = flag([*map(bool, long.waiting)])
        self.vague = flag([unclear and not wait for unclear, wait in zip(vague, long.waiting, strict=True)])
        self.unread = flag(vague) | ~flag([meaning is not None for meaning in meanings])


def _group(long: LongFindings, of_image: np.ndarray) -> _Readings:
    key = of_image[long.place] * (len(long.readers) + 1) + long.reader + 1
    order = np.argsort(key, kind="stable")
    _, starts = np.unique(key[order], return_index=True)
    first = long.place[order][starts]
    return _Readings(of_image[first], long.reader[order][starts], first, order, starts)


def _read_disease(
    rows: TableRows, long: LongFindings, readings: _Readings, flags: _Flags, disease: str
) -> tuple[np.ndarray, np.ndarray]:
    """The finding of each reading, int8 `[r]`, and whether it is called both present and absent, bool `[r]`."""
    table = [meaning.findings.get(disease) if meaning is not None else None for meaning in long.meanings]
    of_meaning = np.array([_UNMENTIONED if code is None else STRENGTH[int(code)] for code in table], dtype=np.int8)
    ranks = of_meaning[long.meaning]
    strongest = readings.strongest(ranks)
    negative = readings.strongest(ranks == STRENGTH[int(NEGATIVE)])
    if not rows.table.has_terms():
        _look_at_columns(rows, readings, disease, ranks, negative)
        return _BY_STRENGTH[np.maximum(strongest, 0)], np.zeros(len(strongest), dtype=bool)
    silent = BLANK if disease in long.named else UNLABELLED
    rest = np.where(flags.unread, UNLABELLED, np.where(flags.healthy, NEGATIVE, silent))
    codes = np.where(strongest == _UNMENTIONED, rest, _BY_STRENGTH[np.maximum(strongest, 0)]).astype(np.int8)
    present = strongest >= STRENGTH[int(UNCERTAIN)]
    return codes, present & (negative | flags.healthy)


def _look_at_columns(
    rows: TableRows, readings: _Readings, disease: str, ranks: np.ndarray, negative: np.ndarray
) -> None:
    """Report a disease if its columns contradict each other, or only some of them deny it."""
    config, name = rows.source.config, rows.name
    mentioned = (ranks != _UNMENTIONED).astype(np.int64)
    if not len(ranks) or np.add.reduceat(mentioned[readings.order], readings.starts).max() < 2:
        return
    positive = readings.strongest(ranks == STRENGTH[int(POSITIVE)])
    both, number = int((positive & negative).sum()), int(positive.sum())
    if both and disease not in rows.table.any_column:
        text = f"columns of {disease} contradict each other in {both:,} of the {plural(number, 'row')} that report it"
        if both > _CONTRADICTORY * number:
            advice = "name one of the columns in 'labels'; or, if they are sides or kinds, name it in table.any_column"
            rows.source.problem("contradictory columns", name, text, advice=advice)
        else:
            rows.source.remarks.append(f"{name}: {text}; they count as present")
    blank = readings.strongest(ranks == STRENGTH[int(BLANK)])
    above = readings.strongest(ranks > STRENGTH[int(NEGATIVE)])
    half = int((negative & ~above & blank).sum())
    if half and config.blank[disease] != "negative":
        text = f"{disease} is absent in {plural(half, 'row')} in which only some of its columns say so"
        rows.source.remarks.append(f"{name}: {text}, and others are empty")


def _choose_readers(rows: TableRows, long: LongFindings, of_image: np.ndarray) -> np.ndarray:
    """Which annotators count by `table.raters`, bool `[readers + 1]`, the last for none; wrong ones are problems."""
    rule, names = rows.table.raters, long.readers
    if not names:
        return np.ones(1, dtype=bool)
    column = rows.table.columns.reader
    if column is not None and rows.table.columns.finding is None:
        pairs = pd.DataFrame({"image": of_image, "reader": rows.frame[column]})
        twice = (pairs.duplicated() & pairs["reader"].notna()).to_numpy(dtype=bool)
        text, advice = "an earlier row has the same image and annotator", "keep one row per image and annotator"
        rows.report("duplicate image", twice, text, advice)
    chosen = np.array([rule in (*RULES, name) for name in (*names, "")], dtype=bool)
    if not chosen[:-1].any():
        text = f"'{column or 'labels'}' never names '{rule}' among {plural(len(names), 'annotator')}"
        advice = "set 'table.raters' in the site's YAML to any, majority, all, or to one of the annotators"
        rows.source.problem("unknown rater", rows.name, text, advice=advice)
    return chosen


def _remark_on_terms(
    rows: TableRows, long: LongFindings, readings: _Readings, flags: _Flags, findings: Mapping[str, np.ndarray]
) -> None:
    """Remark on what the labels do not show: findings that wait for a meaning, and where negatives come from."""
    source, total = rows.source, len(readings.image)
    noun = "readings of images" if long.has_readers else "images"
    if number := int(flags.waiting.sum()):
        place = Path(str(rows.table.codes)).name
        source.remarks.append(
            f"{rows.name}: {int(long.waiting.sum()):,} findings of {place} are not confirmed; in {number:,} of "
            f"{total:,} {noun} a disease that is not mentioned beside them is missing"
        )
    for reason, group in (("not confirmed", flags.waiting), ("that say nothing", flags.vague)):
        for disease, codes in findings.items():
            source.unread(f"terms {reason}", disease, int((codes[group] == UNLABELLED).sum()))
    states = (code for meaning in long.meanings if meaning is not None for code in meaning.findings.values())
    silent = any((codes == BLANK).any() for name, codes in findings.items() if source.config.blank[name] == "missing")
    if total and silent and NEGATIVE not in set(states):
        healthy = int((flags.healthy & ~flags.unread).sum())
        source.remarks.append(
            f"{rows.name}: negatives: {healthy:,} of {total:,} {noun}, all from terms that mean normal; no "
            f"term denies a single disease. If the cells name every disease that is present, set blank: negative"
        )


def combine_votes(votes: np.ndarray, image: np.ndarray, images: int, rule: str, *, silent: bool = False) -> np.ndarray:
    """One finding int8 `[images]` from votes int8 `[v]` on the images at places int `[v]`.

    `majority` is more than half of the annotators, `all` every one; any other rule is `any`. If positive votes suffice
    only together with uncertain ones, the finding is uncertain. An image without votes,
    or with unlabeled ones alone, is unlabeled.

    A blank vote means that the disease was not assessed, and does not count. With `silent` it means that it was not
    mentioned, and counts: where only blank (or unlabeled) votes could make the image positive it is blank (unlabeled).
    """

    def count(*codes: np.int8) -> np.ndarray:
        return np.bincount(image[np.isin(votes, codes)], minlength=images)

    total = count(POSITIVE, NEGATIVE, UNCERTAIN, *((BLANK, UNLABELLED) if silent else ()))
    findings = np.full(images, NEGATIVE)
    ways = [(BLANK, (UNCERTAIN, BLANK, UNLABELLED)), (UNLABELLED, (UNCERTAIN, UNLABELLED))] if silent else []
    for code, others in (*ways, (UNCERTAIN, (UNCERTAIN,)), (POSITIVE, ())):
        findings = np.where(_is_enough(count(POSITIVE, *others), total, rule), code, findings)
    assessed = np.bincount(image[votes != UNLABELLED], minlength=images) > 0
    return np.where(total > 0, findings, np.where(assessed, BLANK, UNLABELLED)).astype(np.int8)


def _is_enough(count: np.ndarray, total: np.ndarray, rule: str) -> np.ndarray:
    return {"majority": 2 * count > total, "all": count == total}.get(rule, count > 0)
