"""The sections of a site's report: sentences, tables and figures, the same for every form of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from chestfed._version import __version__
from chestfed.core.console import plural
from chestfed.core.diseases import format_title
from chestfed.data.checks.counts import SplitCounts
from chestfed.data.checks.problems import (
    NEAR_REPEATED,
    NO_LABELS,
    ONE_CLASS,
    PATIENTS_SHARE_PICTURE,
    REPEATED,
    SITES_NEAR,
    SITES_SHARE_PATIENT,
    SITES_SHARE_PICTURE,
    SPLITS_NEAR,
    SPLITS_SHARE_PICTURE,
)
from chestfed.data.sites.stats import describe_test_split
from chestfed.reports.pages.figures import Drawing, Picture, bars, gray_levels, moments, shares
from chestfed.reports.pages.site_report.content import OLDEST, Profile, SiteReport, locate, years
from chestfed.reports.pages.site_report.meanings import describe_words
from chestfed.results.evaluation.labeled import LEAST_PATIENTS
from chestfed.results.tables.grid import Cell, Grid, Rows, make_grid, number

_VALUES: Final = 8  # values of a kind that are listed
_TELLING: Final = 0.6  # AUC of a column alone from which on the text names it
#: Kinds of problems whose messages are made of counts and the names of diseases and splits.
_PLAIN_KINDS: Final = (ONE_CLASS, NO_LABELS)


@dataclass(frozen=True, eq=False)
class Section:
    """A part of the report: sentences, tables, figures, and remarks to read them by."""

    name: str
    title: str
    words: tuple[str, ...] = ()
    tables: tuple[Grid, ...] = ()
    figures: tuple[Picture, ...] = ()
    remarks: tuple[str, ...] = ()


def list_facts(report: SiteReport) -> dict[str, str]:
    """The head of the report."""
    config, synthetic = report.config, report.check.synthetic
    facts = {"site": config.site, "images and labels": report.headline, "check": report.verdict}
    facts["data"] = "SYNTHETIC: no patients, no clinical meaning" if synthetic else "real images"
    if synthetic and not config.synthetic:
        return facts | {"license": "none needed: drawn by a program in the layout of a real set"}
    facts |= {"license": config.license or "not in the YAML", "source": config.source or "not in the YAML"}
    return facts | ({"cite as": config.citation} if config.citation else {})


def list_sections(report: SiteReport, *, named: bool = False) -> list[Section]:
    """All sections without a name of an image or patient; problems by kind and row.

    Headings that nothing reads may hold anything, such as a person's name: only with `named` they are shown.
    """
    return [_problems(report), *describe_site(report, named=named), _reproduce(report)]


def describe_site(report: SiteReport, *, named: bool = False, drawn: bool = True) -> list[Section]:
    """The sections behind the problems; `named` as in `list_sections`. Figures are `drawn`, or left out."""
    columns = report.check.inspection.survey.table.columns
    places = enumerate(columns.items(), start=1)
    numbered = {name: f"column {place}" for place, (name, role) in places if not role and not named}
    return [
        _labels(report),
        _meanings(report, numbered),
        _people(report, drawn),
        _shortcuts(report, numbered),
        _files(report),
        _compare(report, drawn),
    ]


def _problems(report: SiteReport) -> Section:
    rows = []
    for word, problems in (("error", report.check.errors), ("warning", report.check.warnings)):
        for kind, members in problems.kinds.items():
            plain = "; ".join(dict.fromkeys(problem.message for problem in members)) if kind in _PLAIN_KINDS else ""
            where = plain or locate(members, report.config.label_files)
            rows.append((kind, (word, where, f"{len(members):,}")))
    if not rows:
        return Section("problems", "Data quality", (f"Check {report.verdict}.", "No problems in labels and images."))
    first = report.first_things(named=False)
    words = [f"Check {report.verdict}."] + ([f"Look first at: {', '.join(first)}."] if first else [])
    table = make_grid("problems", "Problems by kind", ("kind", "severity", "where", "count"), rows)
    remark = (
        "Rows are those of the label file with this role in the site's YAML; the header is row 1. Names and cells are "
        "left out: chestfed site check lists them, with what to do about each. Errors must be fixed, warnings reviewed."
    )
    return Section("problems", "Data quality", tuple(words), (table,), (), (remark,))


def _labels(report: SiteReport) -> Section:
    counts, table = report.check.counts, report.check.inspection.survey.table
    diseases = table.diseases
    splits = counts.splits
    names = [_name_split(part) for part in splits]
    sizes = ((_name_split(part), (f"{part.images:,}", f"{part.patients:,}")) for part in splits)
    ratios = ((format_title(disease), [_prevalence(part, disease) for part in splits]) for disease in diseases)
    left_out = f", {counts.left_out:,} of them of excluded views" if counts.left_out else ""
    without = "Without the rows left out, the" if counts.dropped else "The"
    studies = "" if counts.studies is None else f"{counts.studies:,} studies, "
    words = [
        f"{without} label files describe {counts.rows:,} images{left_out}. Counted here: {counts.images:,} images, "
        f"{studies}{plural(counts.patients, 'patient')}."
    ]
    words += [f"Left out: {plural(count, 'row')} ({key.replace('_', ' ')})." for key, count in counts.dropped.items()]
    words += [f"{plural(counts.unlabeled, 'image')} without any label."] if counts.unlabeled else []
    words += describe_test_split(table, report.config, LEAST_PATIENTS)
    tables = (
        make_grid("splits", "Images and patients by split", ("split", "images", "patients"), sizes),
        make_grid("prevalence", "Prevalence by disease and split", ("disease", *names), ratios),
    )
    remark = (
        "Prevalence is the share of positives (n+) among the images with a known label (n+ and n−); rows that are "
        "repeated for training count once. A missing label is neither."
    )
    return Section("labels", "Splits and labels", tuple(words), tables, (), (remark,))


def _meanings(report: SiteReport, numbered: Mapping[str, str]) -> Section:
    """The words of the site's YAML and code book that the labels come from, and counts; no cell is quoted."""
    config, table = report.config, report.check.inspection.survey.table
    sources = describe_words(config)
    heads = ("disease", "read from", "uncertain counts as", "not mentioned counts as")
    rows = (
        (format_title(disease), (sources[disease], config.uncertain[disease], config.blank[disease]))
        for disease in config.diseases
    )
    words = [f"Reader: {config.reader.name}."]
    if config.table is not None and config.table.columns.reader is not None:
        words.append(f"Several annotators per image are combined by the rule '{config.table.raters}'.")
    words += [f"{note[:1].upper()}{note[1:]}." for note in table.notes]
    tables = [make_grid("meanings", "Labels", heads, rows)]
    if table.columns:
        account = ((numbered.get(name, name), (role or "not read",)) for name, role in table.columns.items())
        tables.append(make_grid("columns", "Columns of the table", ("column", "read as"), account))
    if vague := table.not_understood:
        counts = ((format_title(d), [f"{of.get(d, 0):,}" for of in vague.values()]) for d in config.diseases)
        caption = f"Missing labels: images (or annotators' readings), because of {', '.join(vague)}"
        tables.append(make_grid("not_understood", caption, ("disease", *vague), counts))
    return Section("meanings", "What the labels mean here", tuple(words), tuple(tables))


def _name_split(part: SplitCounts) -> str:
    return "all splits" if part.split == "all" else part.split


def _prevalence(part: SplitCounts, disease: str) -> Cell:
    labels = part.labels[disease]
    counts = [f"n+ {labels.positive:,}, n− {labels.negative:,}"]
    counts += [f"missing {labels.missing:,}"] if labels.missing else []
    return Cell(number(labels.prevalence), tuple(counts))


def _people(report: SiteReport, drawn: bool) -> Section:
    counts = report.check.counts
    ages, decades = counts.ages, pool_decades(counts.ages.decades)
    words = "No age is known."
    if ages.youngest is not None and ages.median is not None and ages.oldest is not None:
        missing = f"; missing for {plural(ages.missing, 'image')}" if ages.missing else ""
        words = (
            f"Ages: median {years(ages.median)} years, from {years(ages.youngest)} to {years(ages.oldest)}{missing}."
        )
    tables = (
        _count("sexes", "Sexes", "sex", counts.sexes, counts.images),
        _count("views", "Views, of all rows", "view", counts.views, counts.rows),
    )
    remark = f"Counted per image. Ages of {OLDEST} and over are one group, because they can identify a person."
    pictures = (_draw_ages(report, decades),) if decades and drawn else ()
    return Section("people", "Patients and views", (words,), tables, pictures, (remark,))


def _shortcuts(report: SiteReport, numbered: Mapping[str, str]) -> Section:
    """Section of the AUC that each column reaches alone, the largest first."""
    shortcuts, diseases = report.check.shortcuts, report.check.inspection.survey.table.diseases
    ranked = sorted(shortcuts, key=lambda name: -max((auc or 0 for auc in shortcuts[name].values()), default=0))
    rows = [(numbered.get(name, name), [number(shortcuts[name][disease]) for disease in diseases]) for name in ranked]
    if not rows:
        return Section("shortcuts", "Shortcuts", ("No column has two values of ten images each.",))
    caption = "Shortcuts: AUC that a column reaches alone, without the image"
    table = make_grid("shortcuts", caption, ("column", *map(format_title, diseases)), rows)
    remark = (
        "Each value of a column counts as the share of positives at it among one half of the patients, scored on the "
        "other half; mean of both ways. .50 says nothing; a network can reach the AUC shown by telling the groups "
        "apart instead of the disease. '-': fewer than ten positive or negative images in a half."
    )
    telling = {
        numbered.get(name, name): [f"{format_title(d)} {number(auc)}" for d, auc in of.items() if (auc or 0) > _TELLING]
        for name, of in ((name, shortcuts[name]) for name in ranked)
    }
    found = "; ".join(f"{name} ({', '.join(aucs)})" for name, aucs in telling.items() if aucs)
    words = f"Above an AUC of {_TELLING} without the image: {found or 'no column'}."
    return Section("shortcuts", "Shortcuts", (words,), (table,), (), (remark,))


def _draw_ages(report: SiteReport, decades: Mapping[str, int]) -> Picture:
    with Drawing(report.origin, "ages", "Ages", (4.8, 2.6)) as drawing:
        bars(drawing.axes, decades, "years", "images")
        drawing.say(", ".join(f"{group} years {count:,}" for group, count in decades.items()))
    return drawing.picture("Bars of the number of images by age")


def pool_decades(decades: Mapping[str, int]) -> dict[str, int]:
    """Images per decade of age, from the first to the last that has any; all ages from 90 on under `90+`."""
    firsts = {int(first): count for first, count in decades.items()}
    old = sum(count for first, count in firsts.items() if first >= OLDEST)
    below = [first for first in firsts if first < OLDEST]
    span = range(min(below), OLDEST if old else max(below) + 10, 10) if below else ()
    pooled = {f"{first}–{first + 9}": firsts.get(first, 0) for first in span}
    return pooled | ({f"{OLDEST}+": old} if old else {})


def _files(report: SiteReport) -> Section:
    files, scan = report.check.counts.files, report.check.inspection.scan
    if files is None or scan is None:
        return Section("files", "Image files", ("The image files were not examined.",))
    kinds = report.check.kinds

    def total(*names: str) -> int:
        return sum(len(kinds.get(name, ())) for name in names)

    states = {
        "examined": files.looked_at,
        "readable": files.readable,
        "missing": files.missing,
        "unreadable": files.unreadable,
        "duplicate of an earlier row's image": total(REPEATED, SPLITS_SHARE_PICTURE, PATIENTS_SHARE_PICTURE),
        "of these, in another split": total(SPLITS_SHARE_PICTURE),
        "near-duplicate": total(NEAR_REPEATED, SPLITS_NEAR),
        "BurnedInAnnotation is YES": int(scan.frame["text"].sum()),
        "the header has overlays": int(scan.frame["overlays"].sum()),
    }
    tables = [
        make_grid("files", "Image files", ("what", "images"), ((name, (f"{n:,}",)) for name, n in states.items()))
    ]
    for name, caption, head, values in (
        ("formats", "Formats", "format", files.formats),
        ("sizes", "Sizes in pixels, width x height", "size", files.sizes),
        ("bits", "Bits per gray level", "bits", files.bits),
        ("modes", "Pixel types", "mode", files.modes),
        ("syntaxes", "DICOM transfer syntaxes", "syntax", files.transfer_syntaxes),
    ):
        tables += [_count(name, caption, head, values, files.readable)] if values else []
    words = f"The smallest image has {files.smallest} pixels, the largest {files.largest}." if files.readable else ""
    remark = "Text in the pixels themselves is not searched for: docs/privacy.md names tools that do."
    return Section("files", "Image files", (words,) if words else (), tuple(tables), (), (remark,))


def _count(name: str, caption: str, head: str, values: Mapping[str, int], total: int) -> Grid:
    """A table of values with their numbers and shares, the most frequent first; the rare ones in one line."""

    def row(value: str, count: int) -> tuple[str, tuple[str, str]]:
        return value, (f"{count:,}", f"{count / total:.1%}" if total else "-")

    listed = list(values.items())
    rows = [row(value, count) for value, count in listed[:_VALUES]]
    if rest := listed[_VALUES:]:
        rows.append(row(f"{len(rest):,} others", sum(count for _, count in rest)))
    return make_grid(name, caption, (head, "images", "share"), rows)


def _compare(report: SiteReport, drawn: bool) -> Section:
    """Gray levels and prevalences of the site and the others, and the drift to each."""
    site, others = report.profile, report.other_sites
    with_images = [card for card in (site, *others) if card.gray_levels is not None]
    pictures = (_draw_gray_levels(report, with_images),) if site.gray_levels is not None and drawn else ()
    heads: tuple[str, ...] = ("site", "images", "mean", "standard deviation", "black, 0 to 3")
    rows = ((report.name_site(card), _gray_cells(card)) for card in with_images)
    tables = (
        [make_grid("gray", "Gray levels of the preprocessed images, 0 (black) to 255", heads, rows)]
        if with_images
        else []
    )
    if not others:
        alone = ("No other site was given; --against OTHER.yaml adds one for comparison.",)
        return Section("beside", "Gray levels", alone, tuple(tables), pictures)
    all_sites = (site, *others)
    diseases = list(dict.fromkeys(name for card in all_sites for name in card.prevalence))
    prevalences = ((format_title(name), (number(card.prevalence.get(name)) for card in all_sites)) for name in diseases)
    heads = ("disease", *map(report.name_site, all_sites))
    tables += [drift_table(report), make_grid("shares", "Prevalence, all splits", heads, prevalences)]
    kinds = report.check.kinds
    same, near, people = (len(kinds.get(kind, ())) for kind in (SITES_SHARE_PICTURE, SITES_NEAR, SITES_SHARE_PATIENT))
    words: tuple[str, ...] = (
        f"Images that another site also has: {same:,}; near-duplicates: {near:,}. "
        f"Patients with the same name as one at another site: {people:,}.",
    )
    if drawn and (probe := report.probe) is not None:
        words = (*words, f"{probe.describe()}.")
    remark = (
        "Drift score = W + P, between 0 (alike) and 2. W: Wasserstein-1 distance of the gray-level histograms, with "
        "the whole range as 1: the mean over the 64 bins of |F − G|, F and G cumulative. P: mean over the diseases "
        "that both sites label of |p − q|, the difference of the prevalences. It describes the data "
        "and predicts nothing."
    )
    return Section("beside", "Comparison with other sites", words, tuple(tables), pictures, (remark,))


def drift_table(report: SiteReport) -> Grid:
    """Tabulate the distances to the other sites, in gray levels and prevalences."""
    rows: Rows = []
    for other in report.other_sites:
        if (distance := report.profile.drift_to(other)) is None:
            rows.append((report.name_site(other), [Cell("-", ("no readable images",)), *map(Cell, "---")]))
            continue
        parts = map(number, (distance.score, distance.gray_levels, distance.prevalence))
        rows.append((report.name_site(other), [*parts, str(len(report.profile.shared(other)))]))
    columns = ("to", "drift score", "gray levels, W", "prevalence, P", "diseases in P")
    return make_grid("drift", f"Drift from {report.name_site(report.profile)}", columns, rows)


def _gray_cells(site: Profile) -> tuple[str, ...]:
    part = shares(site.gray_levels)
    mean, spread = moments(part)
    return f"{site.images:,}", f"{mean:.0f}", f"{spread:.0f}", f"{part[0]:.1%}"


def _draw_gray_levels(report: SiteReport, sites: list[Profile]) -> Picture:
    """The site's histogram as an area, the other sites' as lines."""
    drawn = [(place, report.name_site(site), shares(site.gray_levels)) for place, site in enumerate(sites)]
    with Drawing(report.origin, "gray-levels", "Gray levels", (5.6, 3.2)) as drawing:
        gray_levels(drawing.axes, drawn)
        for _, name, part in drawn:
            drawing.say(
                f"{name} has a mean of {moments(part)[0]:.0f} of 255, and {part[0]:.0%} of its pixels are black"
            )
    return drawing.picture("Histogram of the gray levels of the preprocessed images")


def _reproduce(report: SiteReport) -> Section:
    others = "".join(f" --against {other.name}.yaml" for other in report.other_sites)
    words = (
        f"chestfed {__version__}:",
        f"`chestfed site card {report.config.site}.yaml --data DIR{others}`",
        "with the paths of the sites' YAMLs, and the folder of their files for DIR.",
    )
    return Section("again", "How to reproduce", words)
