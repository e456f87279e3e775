"""The reference of the open data sets that `chestfed datasets` fetches, from their declarations."""

from __future__ import annotations

from chestfed.core.disk import size_text
from chestfed.data.films.registry import releases
from docs.generate.markdown import escaped

HEAD = """# Open data sets

What `chestfed datasets` can download ([how](../films.md)). check: what is known of the files' digests.

| name | hospital | images | patients | download | findings | license | check |
|---|---|---|---|---|---|---|---|
"""


def page() -> str:
    """The whole page, as Markdown."""
    return HEAD + "".join(f"| {' | '.join(row)} |\n" for row in list_rows())


def list_rows() -> list[list[str]]:
    """The cells of each data set, in the order of the list."""
    return [
        [
            f"`{name}`",
            escaped(f"{release.hospital}, {release.country}"),
            f"{release.films:,}",
            escaped(release.patients),
            size_text(release.size) if release.files else "-",
            escaped(", ".join(release.findings)),
            escaped(release.license),
            release.check,
        ]
        for name, release in releases().items()
    ]
