"""The forms of a site's report: terminal, Markdown, JSON, and a page."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from json.encoder import encode_basestring_ascii
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

from chestfed.core.checkpoint import write_atomically, write_text
from chestfed.core.errors import ChestfedError, ConfigError, Problem
from chestfed.data.checks import CheckReport
from chestfed.data.checks.problems import Problems, printable
from chestfed.reports.pages.figures import thumbnail
from chestfed.reports.pages.html import fill, read_template
from chestfed.reports.pages.site_report.content import SIDE, SiteReport
from chestfed.reports.pages.site_report.sections import Section, describe_site, list_facts, list_sections
from chestfed.results.tables.grid import markdown, rich_table

#: Problems of a kind that a terminal shows.
SHOWN: Final = 10
NOTE: Final = "This report names files and rows of the site: keep it at the site."
#: Headings of columns with words; the others have numbers.
_WORDS: Final = ("severity", "where", "read from", "uncertain counts as", "not mentioned counts as")
_SYNTHETIC: Final = "SYNTHETIC hospital: radiographs drawn by a program. No patients, no clinical meaning."
_NO_PICTURES: Final = {
    "real": "Images of real patients are left out, because a card is easily shared; --pictures shows some.",
    "asked": "Images are left out, as requested by --no-pictures.",
    "none": "No readable image is without declared text.",
}
_SHOWN_PICTURES: Final = (
    f"Drawn at random, {SIDE} x {SIDE} pixels, as the network sees them but smaller. They were re-encoded from the "
    "pixels, without names or headers; text in the pixels is still there."
)
#: Sections in a terminal below the problems: those whose sentences are printed, tables, and tables as one line each.
_IN_TERMINAL: Final = ("labels", "people", "shortcuts", "files")
_TABLES: Final = ("prevalence", "shortcuts", "drift")
_LINES: Final = ("splits", "not_understood", "sexes", "views", "files", "formats", "sizes", "bits", "modes", "syntaxes")


def print_report(console: Console, report: SiteReport) -> None:
    """Print the verdict, what to look at first, all kinds of problems, and the tables."""
    check = report.check
    name = f"{check.title} ({check.site})"
    only = "" if check.counts.files is not None else "; labels only"
    console.print(Text(f"{name}: {report.verdict}{only}", style="bold"))
    console.print(Text(printable(report.headline)))
    if first := report.first_things(named=True):
        console.print(Text("\nLOOK AT FIRST", style="bold"))
        console.print(Text("\n".join(f"  {number}. {text}" for number, text in enumerate(first, 1))))
    for title, style, problems in (("ERRORS", "red", check.errors), ("WARNINGS", "yellow", check.warnings)):
        if problems:
            console.print(Text(f"\n{title} ({len(problems):,})", style=style))
            console.print(Text("\n".join(_list_problems(problems))))
    if check.inspection.survey.table.frame.empty:
        return  # of tables without a row only the headings would be left
    console.print()
    for section in describe_site(report, named=True, drawn=False):
        if section.name in _IN_TERMINAL and section.words:
            console.print(Text(" ".join(section.words)))
        for table in section.tables:
            if table.name in _TABLES:
                console.print(rich_table(table, table.caption))
            elif table.name in _LINES:
                several = table.name == "not_understood"  # a count per reason
                shown = ((line.head, line.cells if several else line.cells[:1]) for line in table.lines)
                values = ", ".join(f"{head} {'/'.join(cell.text for cell in cells)}" for head, cells in shown)
                console.print(Text(f"{table.caption}: {values}"))


def write_files(report: SiteReport, folder: Path) -> list[Path]:
    """Write `check.json` and `check.md`, with every problem and the names of files.

    Raises `ChestfedError` if the folder cannot be written.
    """
    files = [folder / "check.json", folder / "check.md"]
    _write_pieces(files[0], _json_pieces(report.check))
    _write_pieces(files[1], _markdown_pieces(report, list_sections(report, named=True), named=True))
    return files


def write_card(report: SiteReport, out: Path, *, pictures: bool | None = None) -> list[Path]:
    """Write the page to `out` and the Markdown beside it, without a name of a patient, study or image.

    A few small images are on the page if `pictures`; None: only of a synthetic site.

    Raises `ConfigError` if `out` does not end in .html, `ChestfedError` if nothing of the site can be read or a file
    cannot be written.
    """
    check_page(out)
    check = report.check
    if check.inspection.survey.table.frame.empty:
        first = f": {check.errors[0]}" if check.errors else ": its label files have no rows that are kept"
        raise ChestfedError(
            f"nothing of site '{check.site}' can be read, so there is no card{first}. "
            "`chestfed site check` with the same YAML and --data lists all problems",
            kind="nothing to show",
            site=check.site,
        )
    files, sections = [out, out.with_suffix(".md")], list_sections(report)
    write_text(files[0], as_html(report, pictures=pictures, sections=sections))
    write_text(files[1], "".join(_markdown_pieces(report, sections, named=False)))
    return files


def check_page(out: Path) -> None:
    """Refuse a name that is not that of a page."""
    if out.suffix.lower() not in (".html", ".htm"):
        text = "give a name that ends in .html; the Markdown is written beside it"
        raise ConfigError(f"{out}: {text}", kind="not a page", file=out)


def as_json(check: CheckReport) -> str:
    """The check with every problem, as `write_files` writes it."""
    return "".join(_json_pieces(check))


def _json_pieces(check: CheckReport) -> Iterator[str]:
    """A JSON object in pieces, each problem on a line of its own: a million of them are not held in memory."""
    values = {
        "note": NOTE,
        "site": check.site,
        "title": check.title,
        "synthetic": check.synthetic,
        "passed": check.passed,
        "errors": check.errors,
        "warnings": check.warnings,
        "compared_with": check.against,
        "counts": dataclasses.asdict(check.counts),
        "shortcuts": check.shortcuts,
    }
    mark = "{"
    for key, value in values.items():
        yield f"{mark}\n  {json.dumps(key)}: "
        mark = ","
        if not isinstance(value, Problems):
            yield json.dumps(value, indent=2, allow_nan=False).replace("\n", "\n  ")
            continue
        yield "["
        for place, problem in enumerate(value):
            yield f"{',' if place else ''}\n    {_as_object(problem)}"
        yield "\n  ]" if value else "]"
    yield "\n}\n"


def _as_object(problem: Problem) -> str:
    """A problem as JSON; what many of them share is encoded once."""
    rows = f"[{', '.join(map(str, problem.rows))}]"
    kind, file, advice = _quote(problem.kind), _quote(problem.file), _quote(problem.advice)
    row = "null" if problem.row is None else problem.row
    message = encode_basestring_ascii(problem.message)
    return f'{{"kind": {kind}, "file": {file}, "message": {message}, "row": {row}, "advice": {advice}, "rows": {rows}}}'


_quote = lru_cache(maxsize=1_000)(json.dumps)


def as_markdown(report: SiteReport, *, named: bool = False) -> str:
    """Tables and sentences, and descriptions of the figures; with `named` every problem with file, row and message."""
    return "".join(_markdown_pieces(report, list_sections(report, named=named), named=named))


def _markdown_pieces(report: SiteReport, sections: Iterable[Section], *, named: bool) -> Iterator[str]:
    yield f"# {'Check' if named else 'Card'} of {_escape(report.check.title)}\n\n"
    yield f"**{_SYNTHETIC}**\n\n" if report.check.synthetic else ""
    yield f"{NOTE}\n\n" if named else ""
    for name, value in list_facts(report).items():
        yield f"- {name}: {_escape(value)}\n"
    for section in sections:
        lines = _write_problems(report) if named and section.name == "problems" else _write_section(section)
        for line in lines:
            yield f"{line}\n"


def _write_pieces(path: Path, pieces: Iterable[str]) -> None:
    """Write text atomically, piece by piece."""

    def write(temporary: Path) -> None:
        with temporary.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(pieces)

    write_atomically(path, write)


def as_html(report: SiteReport, *, pictures: bool | None = None, sections: Sequence[Section] | None = None) -> str:
    """The page, of the report's `sections`; it needs no network and no other file."""
    synthetic = report.check.synthetic
    images = report.thumbnails() if (synthetic if pictures is None else pictures) else ()
    reason = "none" if pictures or (synthetic and pictures is None) else "asked" if synthetic else "real"
    kind = "synthetic radiograph" if synthetic else "radiograph"
    return fill(
        "site_report/page.html",
        style=read_template("page.css") + read_template("site_report/report.css"),
        tag=report.origin.tag,
        mark=_SYNTHETIC if synthetic else "",
        title=f"Card of {report.check.title}",
        skip_to="contents",
        command="chestfed site card",
        headline=report.headline,
        facts=list_facts(report),
        sections=list_sections(report) if sections is None else sections,
        side=SIDE,
        shown=_SHOWN_PICTURES,
        not_shown="" if images else _NO_PICTURES[reason],
        thumbnails=[
            {"uri": thumbnail(image.pixels), "alt": f"Small {kind}, {image.label}", "label": image.label}
            for image in images
        ],
    )


def _list_problems(problems: Problems) -> list[str]:
    lines = []
    for kind, members in problems.kinds.items():
        lines.append(f"  {kind} ({len(members):,})")
        lines += [f"    {printable(str(problem))}" for problem in members[:SHOWN]]
        if len(members) > SHOWN:
            lines.append(f"    ... and {len(members) - SHOWN:,} more; all are in the files of --out")
        lines += [f"    -> {advice}" for advice in members.advice]
    return lines


def _write_problems(report: SiteReport) -> Iterator[str]:
    for title, problems in (("Errors", report.check.errors), ("Warnings", report.check.warnings)):
        yield f"\n## {title} ({len(problems):,})"
        for kind, members in problems.kinds.items():
            yield f"\n### {kind} ({len(members):,})\n\n| file | row | what | do |\n|---|--:|---|---|"
            for problem in members:
                row = "" if problem.row is None else problem.row
                file, advice = _escape_once(problem.file), _escape_once(problem.advice)
                yield f"| {file} | {row} | {_escape(problem.message)} | {advice} |"


def _write_section(section: Section) -> list[str]:
    lines = ["", f"## {_escape(section.title)}"]
    for words in section.words:
        lines += ["", words if words.startswith("`") else _escape(words)]
    for table in section.tables:
        lines += ["", f"{_escape(table.caption)}:", "", *markdown(table, _WORDS, _escape)]
    for words in (*(picture.alt for picture in section.figures), *section.remarks):
        lines += ["", _escape(words)]
    return lines


#: Signs that Markdown or HTML would interpret.
_ESCAPES: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"} | {sign: f"\\{sign}" for sign in "\\|`*_[]#"})


def _escape(text: str) -> str:
    """Text that Markdown and HTML show literally."""
    return printable(text).translate(_ESCAPES)


_escape_once = lru_cache(maxsize=1_000)(_escape)
