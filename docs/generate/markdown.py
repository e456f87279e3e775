"""Plain text as Markdown."""

from __future__ import annotations


def escaped(text: str) -> str:
    """One paragraph: outside of backticks, characters that would start markup are kept as they are."""
    pieces = " ".join(text.split()).split("`")
    for index in range(0, len(pieces), 2):
        for character in "\\*_<[$":
            pieces[index] = pieces[index].replace(character, f"\\{character}")
    return "`".join(pieces)
