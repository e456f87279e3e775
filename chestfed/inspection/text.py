"""A check report for a terminal, as Markdown and as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from chestfed.core.checkpoint import write_json, write_text
from chestfed.core.console import plural, text_table
from chestfed.core.diseases import title_of
from chestfed.core.errors import Problem
from chestfed.inspection.check import CheckReport
from chestfed.inspection.counts import Counts
from chestfed.inspection.pictures import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

#: Problems of a kind that a terminal shows.
SHOWN: Final = 10
NOTE: Final = "This report names files and rows of the site: keep it at the site."
_MOST: Final = 6  # values that a line of counts shows


def verdict(report: CheckReport) -> str:
    """One line: passed or failed, and how many of what."""
    counts = report.counts
    name = f"{report.title} ({report.site})"
    word = "passed" if report.passed else "FAILED"
    looked = f"{counts.images:,} images" if counts.files is not None else f"{counts.images:,} rows, labels only"
    return f"{name}: {word}; {plural(len(report.errors), 'error')}, {plural(len(report.warnings), 'warning')}; {looked}"


def render(report: CheckReport) -> RenderableType:
    """The report for a terminal: counts, then errors and warnings by kind, the first of each."""
    from rich.console import Group
    from rich.text import Text

    (split, *shares), rows = _split_table(report.counts)
    table = text_table(verdict(report), [split], shares, rows, light=True)
    lines = Text("\n".join(f"{name}: {value}" for name, value in _facts(report)))
    parts: list[RenderableType] = [table, lines]
    for title, style, problems in (("ERRORS", "red", report.errors), ("WARNINGS", "yellow", report.warnings)):
        if problems:
            parts += [Text(f"\n{title} ({len(problems):,})", style=style), Text("\n".join(_listed(problems)))]
    return Group(*parts)


def as_json(report: CheckReport) -> dict[str, Any]:
    """The report as plain values; every problem is in it."""
    return {
        "note": NOTE,
        "site": report.site,
        "title": report.title,
        "synthetic": report.synthetic,
        "passed": report.passed,
        "errors": [dataclasses.asdict(problem) for problem in report.errors],
        "warnings": [dataclasses.asdict(problem) for problem in report.warnings],
        "compared_with": report.against,
        "counts": dataclasses.asdict(report.counts),
    }


def as_markdown(report: CheckReport) -> str:
    """The report as Markdown; every problem is in it."""
    header, rows = _split_table(report.counts)
    lines = [f"# {_escaped(verdict(report))}", "", NOTE, ""]
    lines += [_row(header), _row(["---", *["--:"] * (len(header) - 1)]), *map(_row, rows), ""]
    lines += [f"- {name}: {_escaped(value)}" for name, value in _facts(report)]
    for title, problems in (("Errors", report.errors), ("Warnings", report.warnings)):
        lines += ["", f"## {title} ({len(problems):,})", ""]
        for kind, members in _by_kind(problems).items():
            lines += [f"### {kind} ({len(members):,})", "", "| file | row | what | do |", "|---|--:|---|---|"]
            for one in members:
                row = "" if one.row is None else str(one.row)
                lines.append(_row([_escaped(one.file), row, _escaped(one.message), _escaped(one.advice)]))
            lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def write_report(report: CheckReport, folder: Path) -> list[Path]:
    """Write `check.json` and `check.md`.

    Raises `ChestfedError` if the folder cannot be written.
    """
    files = [folder / "check.json", folder / "check.md"]
    write_json(files[0], as_json(report))
    write_text(files[1], as_markdown(report))
    return files


def _listed(problems: Sequence[Problem]) -> list[str]:
    lines = []
    for kind, members in _by_kind(problems).items():
        lines.append(f"  {kind} ({len(members):,})")
        lines += [f"    {printable(str(problem))}" for problem in members[:SHOWN]]
        if len(members) > SHOWN:
            lines.append(f"    ... and {len(members) - SHOWN:,} more; all are in the files of --out")
        lines += [f"    -> {advice}" for advice in dict.fromkeys(one.advice for one in members if one.advice)]
    return lines


def _by_kind(problems: Iterable[Problem]) -> dict[str, list[Problem]]:
    kinds: dict[str, list[Problem]] = {}
    for problem in problems:
        kinds.setdefault(problem.kind, []).append(problem)
    return kinds


def _split_table(counts: Counts) -> tuple[list[str], list[list[str]]]:
    """Prevalence per disease and split, with positives and missing labels."""
    diseases = list(counts.splits[0].labels) if counts.splits else []
    rows = []
    for part in counts.splits:
        cells = []
        for disease in diseases:
            labels = part.labels[disease]
            ratio = "-" if labels.prevalence is None else f"{labels.prevalence:.3f}"
            missing = f", {labels.missing:,} missing" if labels.missing else ""
            cells.append(f"{ratio} ({labels.positive:,}{missing})")
        rows.append([part.split, f"{part.images:,}", f"{part.patients:,}", *cells])
    return ["split", "images", "patients", *(f"{title_of(disease)}: share (positives)" for disease in diseases)], rows


def _facts(report: CheckReport) -> list[tuple[str, str]]:
    counts, ages, files = report.counts, report.counts.ages, report.counts.files
    years = "none" if ages.median is None else f"median {ages.median:g}, from {ages.youngest:g} to {ages.oldest:g}"
    facts = [
        ("rows", f"{counts.rows:,}, {counts.left_out:,} of them of excluded views"),
        ("studies", "unknown" if counts.studies is None else f"{counts.studies:,}"),
        ("views", _most(counts.views)),
        ("sexes", _most(counts.sexes)),
        ("ages", f"{years}; missing {ages.missing:,}"),
        ("images without any label", f"{counts.unlabeled:,}"),
    ]
    if counts.dropped:
        facts.insert(1, ("dirty rows left out", _most(counts.dropped)))
    if files is None:
        facts.append(("image files", "not inspected"))
    else:
        unread = f"{files.missing:,} missing, {files.unreadable:,} unreadable"
        facts += [
            ("image files", f"{files.looked_at:,}: {files.readable:,} readable, {unread}"),
            ("formats", _most(files.formats)),
            ("sizes", f"{_most(files.sizes)}; smallest {files.smallest or 'none'}, largest {files.largest or 'none'}"),
            ("bits", _most(files.bits)),
            ("modes", _most(files.modes)),
        ]
        if files.transfer_syntaxes:
            facts.append(("transfer syntaxes", _most(files.transfer_syntaxes)))
        if files.mean_gray is not None and files.std_gray is not None:
            facts.append(("gray levels", f"mean {files.mean_gray:.1f}, standard deviation {files.std_gray:.1f}"))
    if report.against:
        facts.append(("compared with", ", ".join(f"{name} ({number:,})" for name, number in report.against.items())))
    return facts


def _most(values: Mapping[str, int]) -> str:
    shown = ", ".join(f"{name} {number:,}" for name, number in list(values.items())[:_MOST])
    rest = len(values) - _MOST
    return f"{shown or 'none'}{f', and {rest:,} others' if rest > 0 else ''}"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escaped(text: str) -> str:
    """Text escaped for Markdown and HTML."""
    plain = printable(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(f"\\{sign}" if sign in "\\|`*_[]#!" else sign for sign in plain)
