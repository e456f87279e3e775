"""The card as one page and as Markdown."""

from __future__ import annotations

from pathlib import Path

from chestfed.core.checkpoint import write_text
from chestfed.core.diseases import TITLES
from chestfed.report.figures import thumbnail
from chestfed.report.html import Cell, Table, fill, text_of
from chestfed.report.site_card.build import SIDE, SiteCard, Thumbnail
from chestfed.report.site_card.parts import Section
from chestfed.report.site_card.sections import facts, sections

_LEFT_OUT = "Pictures of real patients are left out, since a card is passed on easily; --pictures shows some."
_NOT_SHOWN = "Pictures are left out, as --no-pictures asks."
#: Headings of columns with words; the others have numbers.
_WORDS = ("weight", "where")
_NONE = "There is no readable picture without a flag."
_SHOWN = (
    f"Drawn at random from the pictures without a flag, {SIDE} x {SIDE} pixels, as the network gets them but smaller. "
    "They were made anew from the pixels: no name and nothing of a header comes along."
)
_SYNTHETIC = "SYNTHETIC hospital: phantoms drawn by a program. No patients, no clinical meaning."


def write_card(card: SiteCard, out: Path) -> list[Path]:
    """Write the page to `out`, and the Markdown beside it, with `.md` for its ending.

    Raises
    ------
    ChestfedError
        If a file cannot be written.
    """
    files = [out, out.with_suffix(".md")]
    parts = sections(card)
    write_text(files[0], as_html(card, parts))
    write_text(files[1], as_markdown(card, parts))
    return files


def as_html(card: SiteCard, parts: list[Section] | None = None) -> str:
    """The page; it needs no network and no other file."""
    return fill(
        "site_card/page.html",
        style=text_of("page.css") + text_of("site_card/card.css"),
        tag=card.origin.tag,
        mark=_SYNTHETIC if card.synthetic else "",
        title=f"Card of {card.report.title}",
        skip_to="contents",
        command="chestfed site card",
        facts=facts(card),
        sections=sections(card) if parts is None else parts,
        side=SIDE,
        shown=_SHOWN,
        not_shown=_no_pictures(card),
        thumbnails=[
            {
                "uri": thumbnail(one.pixels),
                "alt": f"Small {'synthetic phantom' if card.synthetic else 'radiograph'}, {one.split}: {_signs(one)}",
                "label": f"{one.split}: {_signs(one)}",
            }
            for one in card.thumbnails
        ],
    )


def as_markdown(card: SiteCard, parts: list[Section] | None = None) -> str:
    """Tables and sentences; for figures what is seen in them, and no pictures."""
    lines = [f"# Card of {_plain(card.report.title)}", ""]
    lines += [f"**{_SYNTHETIC}**", ""] if card.synthetic else []
    lines += [f"- {name}: {_plain(value)}" for name, value in facts(card).items()]
    for part in sections(card) if parts is None else parts:
        lines += ["", f"## {_plain(part.title)}"]
        for words in part.words:
            lines += ["", words if words.startswith("`") else _plain(words)]
        for table in part.tables:
            lines += ["", f"{_plain(table.caption)}:", "", *_table(table)]
        for picture in part.figures:
            lines += ["", _plain(picture.alt)]
        for words in part.remarks:
            lines += ["", _plain(words)]
    return "\n".join(lines) + "\n"


def _table(table: Table) -> list[str]:
    rows = [[_cell(cell) for cell in table.columns]]
    rows += [[_plain(line.head), *(_cell(cell) for cell in line.cells)] for line in table.lines]
    rule = ["---", *("---" if head.text in _WORDS else "--:" for head in table.columns[1:])]
    return [f"| {' | '.join(row)} |" for row in (rows[0], rule, *rows[1:])]


def _cell(cell: Cell) -> str:
    return _plain(cell.text) + (f" ({', '.join(map(_plain, cell.below))})" if cell.below else "")


def _plain(text: str) -> str:
    """Text that Markdown and HTML take as it stands."""
    safe = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(f"\\{sign}" if sign in "\\|`*_[]#" else sign for sign in safe)


def _no_pictures(card: SiteCard) -> str:
    if card.thumbnails:
        return ""
    if card.with_pictures:
        return _NONE
    return _NOT_SHOWN if card.synthetic else _LEFT_OUT


def _signs(one: Thumbnail) -> str:
    if not one.labelled:
        return "no label"
    return ", ".join(TITLES[name] for name in one.positive) or "none of the diseases"
