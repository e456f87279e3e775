"""What the card says, section by section: sentences, tables and figures for the page and the Markdown alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

import numpy as np

import chestfed
from chestfed.diseases import TITLES
from chestfed.errors import Problem
from chestfed.inspection.counts import FileCounts, SplitCounts
from chestfed.inspection.problems import (
    NEAR_REPEATED,
    NO_LABELS,
    ONE_CLASS,
    PATIENTS_SHARE_PICTURE,
    REPEATED,
    SITES_NEAR,
    SITES_SHARE_PATIENT,
    SITES_SHARE_PICTURE,
    SPLITS_SHARE_PICTURE,
)
from chestfed.study.card import figures
from chestfed.study.card.making import Profile, SiteCard
from chestfed.study.report.figures import Picture
from chestfed.study.report.pieces import Cell, Line, Table

#: Ages from here on are one group: higher ones can lead to a person.
OLDEST: Final = 90
_ROWS: Final = 12  # rows of a kind of problem that are named
_VALUES: Final = 8  # values of a kind that are listed
_UNSAID: Final = "not said in the site's YAML"
#: Kinds of problems whose message is made of counts and the names of diseases and splits.
_PLAIN_KINDS: Final = (ONE_CLASS, NO_LABELS)


@dataclass(frozen=True)
class Section:
    """A part of the card: sentences, tables, figures, and remarks to read them by."""

    name: str
    title: str
    words: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    figures: tuple[Picture, ...] = ()
    remarks: tuple[str, ...] = ()


def facts(card: SiteCard) -> dict[str, str]:
    """What stands at the head of the card."""
    config, counts = card.config, card.report.counts
    readable = "" if counts.files is None else f", {counts.files.readable:,} of them readable"
    told = {
        "site": config.site,
        "data": "SYNTHETIC: phantoms, no patients, no clinical meaning" if card.synthetic else "real images",
        "images": f"{counts.images:,}{readable}",
        "patients": f"{counts.patients:,}",
        "diseases": ", ".join(TITLES[disease] for disease in card.report.looked.survey.table.diseases),
        "check": verdict(card),
    }
    imitated = card.synthetic and not config.synthetic
    if imitated:
        return told | {"licence": "none needed: drawn by a program in the layout of a real set"}
    told |= {"licence": config.licence or _UNSAID, "source": config.source or _UNSAID}
    return told | ({"to be cited": config.citation} if config.citation else {})


def sections(card: SiteCard) -> list[Section]:
    """All parts of the card but the pictures."""
    return [
        _problems(card),
        _labels(card),
        _people(card),
        _files(card),
        _text(card),
        _beside(card),
        _again(card),
    ]


def verdict(card: SiteCard) -> str:
    """Passed or failed, and how many of what."""
    errors, warnings = card.report.errors, card.report.warnings
    word = "passed" if card.report.passed else "FAILED"
    return f"{word}: {_plural(len(errors), 'error')}, {_plural(len(warnings), 'warning')}"


def _problems(card: SiteCard) -> Section:
    lines = []
    for word, problems in (("error", card.report.errors), ("warning", card.report.warnings)):
        kinds: dict[str, list[Problem]] = {}
        for problem in problems:
            kinds.setdefault(problem.kind, []).append(problem)
        for kind, members in kinds.items():
            lines.append(Line(kind, (Cell(word), Cell(_where(kind, members)), Cell(f"{len(members):,}"))))
    words = [f"Check {verdict(card)}."]
    if not lines:
        words.append("Nothing is wrong with the labels and the images.")
        return Section("problems", "Is anything wrong?", tuple(words))
    table = Table("problems", "Problems by kind", tuple(map(Cell, ("kind", "weight", "where", "count"))), tuple(lines))
    remark = (
        "Rows are those of the label file, the header being row 1. Names of files, patients and cells are left out of "
        "this card: chestfed site check tells them, and what to do about each, to those who have the files. An error "
        "has to be mended; a warning should be looked at."
    )
    return Section("problems", "Is anything wrong?", tuple(words), (table,), (), (remark,))


def _where(kind: str, problems: Iterable[Problem]) -> str:
    """The rows of each label file, or what a message tells that quotes nothing of the site."""
    rows: dict[str, list[int]] = {}
    others = []
    for problem in problems:
        if problem.row is not None:
            rows.setdefault(PurePath(problem.file).name, []).append(problem.row)
        elif kind in _PLAIN_KINDS:
            others.append(problem.message)
        else:
            others.append("no single row")
    found = [f"{file}: {_ranges(numbers)}" for file, numbers in rows.items()]
    return "; ".join([*found, *dict.fromkeys(others)])


def _ranges(numbers: Iterable[int]) -> str:
    """`rows 2-5, 9`, and how many more if they are many."""
    ordered = sorted(set(numbers))
    ends: list[tuple[int, int]] = []
    for number in ordered:
        if ends and number == ends[-1][1] + 1:
            ends[-1] = (ends[-1][0], number)
        else:
            ends.append((number, number))
    shown = ", ".join(str(first) if first == last else f"{first}–{last}" for first, last in ends[:_ROWS])
    rest = sum(last - first + 1 for first, last in ends[_ROWS:])
    return f"row{'s' if len(ordered) > 1 else ''} {shown}{f' and {rest:,} more' if rest else ''}"


def _labels(card: SiteCard) -> Section:
    counts = card.report.counts
    splits = counts.splits
    sizes = Table(
        "splits",
        "Images and patients by split",
        tuple(map(Cell, ("split", "images", "patients"))),
        tuple(Line(_split(part), (Cell(f"{part.images:,}"), Cell(f"{part.patients:,}"))) for part in splits),
    )
    prevalence = Table(
        "prevalence",
        "Prevalence by disease and split",
        (Cell("disease"), *(Cell(_split(part)) for part in splits)),
        tuple(
            Line(TITLES[disease], tuple(_prevalence(part, disease) for part in splits))
            for disease in card.report.looked.survey.table.diseases
        ),
    )
    left_out = f", {counts.left_out:,} of them of views that are left out" if counts.left_out else ""
    words = [
        f"The label files have {counts.rows:,} rows{left_out}. Counted here: {counts.images:,} images, "
        f"{counts.studies:,} studies, {_plural(counts.patients, 'patient')}."
    ]
    if counts.unlabelled:
        words.append(f"{_plural(counts.unlabelled, 'image')} without any label.")
    remark = (
        "Prevalence is the share of positives (n+) among the images whose label is known (n+ and n−); rows that are "
        "repeated for training count once. A missing label is neither."
    )
    return Section("labels", "Splits and labels", tuple(words), (sizes, prevalence), (), (remark,))


def _split(part: SplitCounts) -> str:
    return "all splits" if part.split == "all" else part.split


def _prevalence(part: SplitCounts, disease: str) -> Cell:
    found = part.labels[disease]
    numbers = [f"n+ {found.positive:,}, n− {found.negative:,}"]
    numbers += [f"missing {found.missing:,}"] if found.missing else []
    return Cell("-" if found.prevalence is None else f"{found.prevalence:.3f}", tuple(numbers))


def _people(card: SiteCard) -> Section:
    counts = card.report.counts
    ages = counts.ages
    words = ["No age is known."]
    if ages.youngest is not None and ages.median is not None and ages.oldest is not None:
        words = [
            f"Ages: median {_years(ages.median)} years, from {_years(ages.youngest)} to {_years(ages.oldest)}"
            + (f"; missing for {_plural(ages.missing, 'image')}." if ages.missing else ".")
        ]
    decades = pooled_decades(ages.decades)
    tables = [
        _counted("sexes", "Sexes", "sex", counts.sexes, counts.images),
        _counted("views", "Views, of all rows", "view", counts.views, counts.rows),
    ]
    pictures = (figures.ages(card, decades),) if decades else ()
    remark = f"Counted per image. Ages of {OLDEST} and more are one group, for they can lead to a person."
    return Section("people", "Patients and views", tuple(words), tuple(tables), pictures, (remark,))


def pooled_decades(decades: Mapping[str, int]) -> dict[str, int]:
    """Images per decade of age, `0–9` to `80–89`, those in between too; all higher ages under `90+`."""
    if not decades:
        return {}
    firsts = {int(first): number for first, number in decades.items()}
    old = sum(number for first, number in firsts.items() if first >= OLDEST)
    below = [first for first in firsts if first < OLDEST]
    span = range(min(below), max(below) + 10, 10) if below else ()
    found = {f"{first}–{first + 9}": firsts.get(first, 0) for first in span}
    return found | ({f"{OLDEST}+": old} if old else {})


def _years(years: float) -> str:
    return f"{OLDEST} or more" if years >= OLDEST else f"{years:g}"


def _files(card: SiteCard) -> Section:
    files = card.report.counts.files
    if files is None:
        return Section("files", "Image files", ("The image files were not looked at.",))
    problems = [*card.report.errors, *card.report.warnings]

    def of(*kinds: str) -> Cell:
        return Cell(f"{sum(problem.kind in kinds for problem in problems):,}")

    state = Table(
        "files",
        "Image files",
        (Cell("what"), Cell("images")),
        (
            Line("looked at", (Cell(f"{files.looked_at:,}"),)),
            Line("readable", (Cell(f"{files.readable:,}"),)),
            Line("missing", (Cell(f"{files.missing:,}"),)),
            Line("unreadable", (Cell(f"{files.unreadable:,}"),)),
            Line("same picture as an earlier row", (of(REPEATED, SPLITS_SHARE_PICTURE, PATIENTS_SHARE_PICTURE),)),
            Line("of these, in another split", (of(SPLITS_SHARE_PICTURE),)),
            Line("nearly the same picture", (of(NEAR_REPEATED),)),
        ),
    )
    kinds = [
        _counted("formats", "Formats", "format", files.formats, files.readable),
        _counted("sizes", "Sizes in pixels, width x height", "size", files.sizes, files.readable),
        _counted("bits", "Bits per grey level", "bits", files.bits, files.readable),
        _counted("modes", "Kinds of pixels", "mode", files.modes, files.readable),
    ]
    if files.transfer_syntaxes:
        kinds.append(_counted("syntaxes", "DICOM transfer syntaxes", "syntax", files.transfer_syntaxes, files.readable))
    words = (_extremes(files),) if files.readable else ()
    return Section("files", "Image files", words, (state, *kinds))


def _extremes(files: FileCounts) -> str:
    if files.smallest == files.largest:
        return f"All readable images are of {files.smallest} pixels."
    return f"The smallest image has {files.smallest} pixels, the largest {files.largest}."


def _text(card: SiteCard) -> Section:
    found = card.letters
    if found is None:
        return Section("text", "Text in the pictures", ("The pictures were not looked at.",))
    lines = [
        ("flagged, by any of tag, overlay and text", found.flagged),
        ("BurnedInAnnotation says YES", found.tag_yes),
        ("the header has overlays", found.overlays),
        ("the detector sees text", found.text),
        ("the detector sees a marker only (L or R)", found.marker),
    ]
    if found.unknown:
        lines.append(("could not be looked at, and counted as flagged", found.unknown))
    table = Table(
        "text",
        f"Burned-in text, of {_plural(found.looked_at, 'readable image')}",
        (Cell("what"), Cell("images")),
        tuple(Line(name, (Cell(f"{number:,}"),)) for name, number in lines),
    )
    header = "There are no DICOM headers, so that nothing is said of it there."
    if found.headers:
        header = (
            f"Of {_plural(found.headers, 'DICOM header')}, {found.tag_yes:,} say that text is burned in, "
            f"{found.tag_no:,} that none is, and {found.tag_silent:,} say nothing."
        )
    remark = (
        "The detector looks for rows of letters. It is a flag to look at a picture, never a guarantee: some text is "
        "missed, and words such as AP or PORTABLE name nobody. Flagged pictures are not shown below."
    )
    return Section("text", "Text in the pictures", (header,), (table,), (), (remark,))


def _beside(card: SiteCard) -> Section:
    own, others = card.profile, card.others
    everybody = (own, *others)
    with_pictures = [site for site in everybody if site.grey_levels is not None]
    pictures = (figures.grey_levels(card),) if own.grey_levels is not None else ()
    grey = Table(
        "grey",
        "Grey levels of the preprocessed pictures, 0 (black) to 255",
        tuple(map(Cell, ("site", "images", "mean", "standard deviation", "black, 0 to 3"))),
        tuple(_grey_line(card, site) for site in with_pictures),
    )
    tables = [grey] if with_pictures else []
    title = "Grey levels"
    if not others:
        words = ("No other site was given; --against OTHER.yaml puts others beside it.",)
        return Section("beside", title, words, tuple(tables), pictures)
    diseases = list(dict.fromkeys(name for site in everybody for name in site.prevalence))
    shares = Table(
        "shares",
        "Prevalence, all splits",
        (Cell("disease"), *(Cell(figures.label(card, site)) for site in everybody)),
        tuple(
            Line(TITLES[name], tuple(Cell(_share(site.prevalence.get(name))) for site in everybody))
            for name in diseases
        ),
    )
    tables += [_drift_table(card), shares]
    remark = (
        "Drift score = W + P, between 0 (alike) and 2. W: Wasserstein-1 distance of the histograms of grey levels, the "
        "whole range being 1: the mean over the 64 bins of |F − G|, F and G cumulative. P: mean over the diseases that "
        "both sites label of |p − q|, the difference of the prevalences. It describes the data and predicts nothing."
    )
    return Section("beside", "Beside the other sites", _shared(card), tuple(tables), pictures, (remark,))


def _shared(card: SiteCard) -> tuple[str, ...]:
    problems = [*card.report.errors, *card.report.warnings]
    kinds = (SITES_SHARE_PICTURE, SITES_NEAR, SITES_SHARE_PATIENT)
    found = {kind: sum(problem.kind == kind for problem in problems) for kind in kinds}
    return (
        f"Pictures that another site has too: {found[SITES_SHARE_PICTURE]:,}; nearly: {found[SITES_NEAR]:,}. "
        f"Patients with the name of one at another site: {found[SITES_SHARE_PATIENT]:,}.",
    )


def _drift_table(card: SiteCard) -> Table:
    lines = []
    for other in card.others:
        found, shared = card.profile.drift_to(other), card.profile.shared(other)
        if found is None:
            lines.append(
                Line(
                    figures.label(card, other), (Cell("-", ("no readable pictures",)), Cell("-"), Cell("-"), Cell("-"))
                )
            )
            continue
        share = _share(found.prevalence)
        lines.append(
            Line(
                figures.label(card, other),
                (Cell(f"{found.score:.3f}"), Cell(f"{found.grey_levels:.3f}"), Cell(share), Cell(str(len(shared)))),
            )
        )
    columns = ("to", "drift score", "grey levels, W", "prevalence, P", "diseases in P")
    return Table("drift", f"Drift from {figures.label(card, card.profile)}", tuple(map(Cell, columns)), tuple(lines))


def _grey_line(card: SiteCard, site: Profile) -> Line:
    shares, middles = figures.shares(site), figures.MIDDLES
    mean = float(shares @ middles)
    spread = float(np.sqrt(shares @ (middles - mean) ** 2))
    cells = (f"{site.images:,}", f"{mean:.0f}", f"{spread:.0f}", f"{shares[0]:.1%}")
    return Line(figures.label(card, site), tuple(map(Cell, cells)))


def _again(card: SiteCard) -> Section:
    others = "".join(f" --against {other.name}.yaml" for other in card.others)
    words = (
        f"chestfed {chestfed.__version__}:",
        f"`chestfed site card {card.config.site}.yaml --data DIR{others}`",
        "with the sites' YAMLs wherever they are, and the folder of their files for DIR.",
    )
    return Section("again", "How it was made", words)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _counted(name: str, caption: str, head: str, values: Mapping[str, int], total: int) -> Table:
    """A table of values with their numbers and shares, the most frequent first; the rare ones in one line."""
    share: Callable[[int], Cell] = lambda number: Cell(f"{number / total:.1%}" if total else "-")  # noqa: E731
    listed = list(values.items())
    lines = [Line(value, (Cell(f"{number:,}"), share(number))) for value, number in listed[:_VALUES]]
    if rest := listed[_VALUES:]:
        number = sum(number for _, number in rest)
        lines.append(Line(f"{len(rest):,} others", (Cell(f"{number:,}"), share(number))))
    return Table(name, caption, (Cell(head), Cell("images"), Cell("share")), tuple(lines))


def _plural(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"
