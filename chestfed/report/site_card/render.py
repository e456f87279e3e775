"""The card as one page and as Markdown."""

from __future__ import annotations

from pathlib import Path

from chestfed.core.checkpoint import write_text
from chestfed.core.diseases import title_of
from chestfed.core.errors import ConfigError
from chestfed.report.figures import thumbnail
from chestfed.report.html import fill, text_of
from chestfed.report.site_card.build import SIDE, SiteCard, Thumbnail
from chestfed.report.site_card.sections import facts, sections
from chestfed.results.grid import markdown

_LEFT_OUT = "Images of real patients are left out, because a card is easily shared; --pictures shows some."
_NOT_SHOWN = "Images are left out, as requested by --no-pictures."
#: Headings of columns with words; the others have numbers.
_WORDS = ("severity", "where")
_NONE = "No readable image is without a flag."
_SHOWN = (
    f"Drawn at random from the images without a flag, {SIDE} x {SIDE} pixels, as the network sees them but smaller. "
    "They were re-encoded from the pixels, without names or headers."
)
_SYNTHETIC = "SYNTHETIC hospital: phantoms drawn by a program. No patients, no clinical meaning."


def write_card(card: SiteCard, out: Path) -> list[Path]:
    """Write the page to `out`, and the Markdown beside it, with `.md` for its ending.

    Raises `ConfigError` if `out` does not end in .html: the Markdown could take its place; `ChestfedError` if a file
    cannot be written.
    """
    check_page(out)
    files = [out, out.with_suffix(".md")]
    write_text(files[0], as_html(card))
    write_text(files[1], as_markdown(card))
    return files


def check_page(out: Path) -> None:
    """Refuse a name that is not that of a page."""
    if out.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"{out}: give a name that ends in .html; the Markdown is written beside it")


def as_html(card: SiteCard) -> str:
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
        sections=sections(card),
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


def as_markdown(card: SiteCard) -> str:
    """Tables and sentences; for figures their descriptions, and no images."""
    lines = [f"# Card of {_plain(card.report.title)}", ""]
    lines += [f"**{_SYNTHETIC}**", ""] if card.synthetic else []
    lines += [f"- {name}: {_plain(value)}" for name, value in facts(card).items()]
    for part in sections(card):
        lines += ["", f"## {_plain(part.title)}"]
        for words in part.words:
            lines += ["", words if words.startswith("`") else _plain(words)]
        for table in part.tables:
            lines += ["", f"{_plain(table.caption)}:", "", *markdown(table, _WORDS, _plain)]
        for picture in part.figures:
            lines += ["", _plain(picture.alt)]
        for words in part.remarks:
            lines += ["", _plain(words)]
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """Text that Markdown and HTML show literally."""
    safe = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(f"\\{sign}" if sign in "\\|`*_[]#" else sign for sign in safe)


def _no_pictures(card: SiteCard) -> str:
    if card.thumbnails:
        return ""
    if card.with_pictures:
        return _NONE
    return _NOT_SHOWN if card.synthetic else _LEFT_OUT


def _signs(one: Thumbnail) -> str:
    if not one.labeled:
        return "no label"
    return ", ".join(title_of(name) for name in one.positive) or "none of the diseases"
