"""The card's content, section by section: sentences, tables and figures for the page and the Markdown alike."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from chestfed._version import __version__
from chestfed.core.console import plural
from chestfed.core.diseases import title_of
from chestfed.inspection.counts import FileCounts, SplitCounts
from chestfed.inspection.problems import NEAR_REPEATED, PATIENTS_SHARE_PICTURE, REPEATED, SPLITS_SHARE_PICTURE
from chestfed.report.figures import Drawing, Picture, bars
from chestfed.report.site_card.build import Section, SiteCard
from chestfed.report.site_card.comparison import beside_section
from chestfed.report.site_card.problems import problem_section, verdict
from chestfed.results.grid import Cell, Grid, grid_of, number

#: Ages from here on are one group: higher ones can identify a person.
OLDEST: Final = 90
_VALUES: Final = 8  # values of a kind that are listed
_UNSAID: Final = "not given in the site's YAML"


def facts(card: SiteCard) -> dict[str, str]:
    """The head of the card."""
    config, counts = card.config, card.report.counts
    readable = "" if counts.files is None else f", {counts.files.readable:,} of them readable"
    told = {
        "site": config.site,
        "data": "SYNTHETIC: phantoms, no patients, no clinical meaning" if card.synthetic else "real images",
        "images": f"{counts.images:,}{readable}",
        "patients": f"{counts.patients:,}",
        "diseases": ", ".join(title_of(disease) for disease in card.report.looked.survey.table.diseases),
        "check": verdict(card),
    }
    imitated = card.synthetic and not config.synthetic
    if imitated:
        return told | {"license": "none needed: drawn by a program in the layout of a real set"}
    told |= {"license": config.license or _UNSAID, "source": config.source or _UNSAID}
    return told | ({"cite as": config.citation} if config.citation else {})


@lru_cache(maxsize=1)
def sections(card: SiteCard) -> list[Section]:
    """All parts of the card but the images; the page and the Markdown have the same."""
    return [
        problem_section(card),
        _labels(card),
        _meanings(card),
        _people(card),
        _files(card),
        _text(card),
        beside_section(card),
        _again(card),
    ]


def _labels(card: SiteCard) -> Section:
    counts = card.report.counts
    splits = counts.splits
    names = [_split(part) for part in splits]
    sizes = ((_split(part), (f"{part.images:,}", f"{part.patients:,}")) for part in splits)
    diseases = card.report.looked.survey.table.diseases
    shares = ((title_of(disease), [_prevalence(part, disease) for part in splits]) for disease in diseases)
    prevalence = grid_of("prevalence", "Prevalence by disease and split", ("disease", *names), shares)
    left_out = f", {counts.left_out:,} of them of excluded views" if counts.left_out else ""
    words = [
        f"The label files describe {counts.rows:,} images{left_out}. Counted here: {counts.images:,} images, "
        f"{'' if counts.studies is None else f'{counts.studies:,} studies, '}{plural(counts.patients, 'patient')}."
    ]
    words += [f"Left out: {plural(count, 'row')} ({key.replace('_', ' ')})." for key, count in counts.dropped.items()]
    if counts.unlabeled:
        words.append(f"{plural(counts.unlabeled, 'image')} without any label.")
    remark = (
        "Prevalence is the share of positives (n+) among the images with a known label (n+ and n−); rows that are "
        "repeated for training count once. A missing label is neither."
    )
    tables = (grid_of("splits", "Images and patients by split", ("split", "images", "patients"), sizes), prevalence)
    return Section("labels", "Splits and labels", tuple(words), tables, (), (remark,))


def _meanings(card: SiteCard) -> Section:
    """What the labels are made of: words of the site's YAML, and counts; no cell is quoted."""
    config = card.config
    table = config.table
    terms = table is not None and isinstance(table.codes, dict) and len(table.codes.get("findings", ()))
    source = f"{terms} terms of the YAML" if terms else "findings of the code book"
    heads = ("disease", "from", "uncertain counts as", "not mentioned counts as")
    rows = (
        (
            title_of(disease),
            (", ".join(config.labels.get(disease, ())) or source, config.uncertain[disease], config.blank[disease]),
        )
        for disease in config.diseases
    )
    words = [f"Reader: {config.reader.name}."]
    if table is not None and table.columns.reader is not None:
        words.append(f"Several annotators per image are combined by the rule '{table.raters}'.")
    words += [f"{note[:1].upper()}{note[1:]}." for note in card.report.looked.survey.table.notes]
    tables = [grid_of("meanings", "Labels", heads, rows)]
    if vague := card.report.looked.survey.table.not_understood:
        counts = ((title_of(d), [f"{of.get(d, 0):,}" for of in vague.values()]) for d in config.diseases)
        caption = "Not understood: images (or annotators' readings) whose label is missing because of"
        tables.append(grid_of("not_understood", caption, ("disease", *vague), counts))
    return Section("meanings", "What the labels mean here", tuple(words), tuple(tables))


def _split(part: SplitCounts) -> str:
    return "all splits" if part.split == "all" else part.split


def _prevalence(part: SplitCounts, disease: str) -> Cell:
    found = part.labels[disease]
    counts = [f"n+ {found.positive:,}, n− {found.negative:,}"]
    counts += [f"missing {found.missing:,}"] if found.missing else []
    return Cell(number(found.prevalence), tuple(counts))


def _people(card: SiteCard) -> Section:
    counts = card.report.counts
    ages = counts.ages
    words = ["No age is known."]
    if ages.youngest is not None and ages.median is not None and ages.oldest is not None:
        words = [
            f"Ages: median {_years(ages.median)} years, from {_years(ages.youngest)} to {_years(ages.oldest)}"
            + (f"; missing for {plural(ages.missing, 'image')}." if ages.missing else ".")
        ]
    decades = pooled_decades(ages.decades)
    tables = (
        _counted("sexes", "Sexes", "sex", counts.sexes, counts.images),
        _counted("views", "Views, of all rows", "view", counts.views, counts.rows),
    )
    pictures = (_ages(card, decades),) if decades else ()
    remark = f"Counted per image. Ages of {OLDEST} and over are one group, because they can identify a person."
    return Section("people", "Patients and views", tuple(words), tables, pictures, (remark,))


def _ages(card: SiteCard, decades: Mapping[str, int]) -> Picture:
    """Images per group of ages."""
    with Drawing(card.origin, "ages", "Ages", (4.8, 2.6)) as drawing:
        bars(drawing.axes, decades, "years", "images")
        drawing.say(", ".join(f"{group} years {count:,}" for group, count in decades.items()))
    return drawing.picture("Bars of the number of images by age")


def pooled_decades(decades: Mapping[str, int]) -> dict[str, int]:
    """Images per decade of age, from the first to the last that has any; all ages from 90 on under `90+`."""
    if not decades:
        return {}
    firsts = {int(first): count for first, count in decades.items()}
    old = sum(count for first, count in firsts.items() if first >= OLDEST)
    below = [first for first in firsts if first < OLDEST]
    span = range(min(below), OLDEST if old else max(below) + 10, 10) if below else ()
    found = {f"{first}–{first + 9}": firsts.get(first, 0) for first in span}
    return found | ({f"{OLDEST}+": old} if old else {})


def _years(years: float) -> str:
    return f"{OLDEST} or more" if years >= OLDEST else f"{years:g}"


def _files(card: SiteCard) -> Section:
    files = card.report.counts.files
    if files is None:
        return Section("files", "Image files", ("The image files were not examined.",))
    problems = [*card.report.errors, *card.report.warnings]

    def of(*kinds: str) -> int:
        return sum(problem.kind in kinds for problem in problems)

    states = (
        ("examined", files.looked_at),
        ("readable", files.readable),
        ("missing", files.missing),
        ("unreadable", files.unreadable),
        ("duplicate of an earlier row's image", of(REPEATED, SPLITS_SHARE_PICTURE, PATIENTS_SHARE_PICTURE)),
        ("of these, in another split", of(SPLITS_SHARE_PICTURE)),
        ("near-duplicate", of(NEAR_REPEATED)),
    )
    kinds = [
        _counted("formats", "Formats", "format", files.formats, files.readable),
        _counted("sizes", "Sizes in pixels, width x height", "size", files.sizes, files.readable),
        _counted("bits", "Bits per gray level", "bits", files.bits, files.readable),
        _counted("modes", "Pixel types", "mode", files.modes, files.readable),
    ]
    if files.transfer_syntaxes:
        kinds.append(_counted("syntaxes", "DICOM transfer syntaxes", "syntax", files.transfer_syntaxes, files.readable))
    words = (_extremes(files),) if files.readable else ()
    return Section("files", "Image files", words, (_image_counts("files", "Image files", states), *kinds))


def _counted(name: str, caption: str, head: str, values: Mapping[str, int], total: int) -> Grid:
    """A table of values with their numbers and shares, the most frequent first; the rare ones in one line."""

    def row(value: str, number: int) -> tuple[str, tuple[str, str]]:
        return value, (f"{number:,}", f"{number / total:.1%}" if total else "-")

    listed = list(values.items())
    rows = [row(value, number) for value, number in listed[:_VALUES]]
    if rest := listed[_VALUES:]:
        rows.append(row(f"{len(rest):,} others", sum(number for _, number in rest)))
    return grid_of(name, caption, (head, "images", "share"), rows)


def _image_counts(name: str, caption: str, counts: tuple[tuple[str, int], ...]) -> Grid:
    return grid_of(name, caption, ("what", "images"), ((what, (f"{count:,}",)) for what, count in counts))


def _extremes(files: FileCounts) -> str:
    if files.smallest == files.largest:
        return f"All readable images are {files.smallest} pixels."
    return f"The smallest image has {files.smallest} pixels, the largest {files.largest}."


def _text(card: SiteCard) -> Section:
    found = card.letters
    if found is None:
        return Section("text", "Text in the images", ("The images were not examined.",))
    counts: tuple[tuple[str, int], ...] = (
        ("flagged, by any of tag, overlay and text", found.flagged),
        ("BurnedInAnnotation is YES", found.tag_yes),
        ("the header has overlays", found.overlays),
        ("the detector sees text", found.text),
        ("the detector sees only a marker (L or R)", found.marker),
    )
    if found.unknown:
        counts += (("could not be examined, and counted as flagged", found.unknown),)
    table = _image_counts("text", f"Burned-in text, of {plural(found.looked_at, 'readable image')}", counts)
    header = "There are no DICOM headers, which could declare burned-in text."
    if found.headers:
        header = (
            f"Of {plural(found.headers, 'DICOM header')}, {found.tag_yes:,} declare burned-in text, "
            f"{found.tag_no:,} declare none, and {found.tag_silent:,} do not say."
        )
    remark = (
        "The detector looks for rows of letters. It flags images for review and guarantees nothing: some text is "
        "missed, and words such as AP or PORTABLE name nobody. Flagged images are not shown below."
    )
    return Section("text", "Text in the images", (header,), (table,), (), (remark,))


def _again(card: SiteCard) -> Section:
    others = "".join(f" --against {other.name}.yaml" for other in card.others)
    words = (
        f"chestfed {__version__}:",
        f"`chestfed site card {card.config.site}.yaml --data DIR{others}`",
        "with the paths of the sites' YAMLs, and the folder of their files for DIR.",
    )
    return Section("again", "How to reproduce", words)
