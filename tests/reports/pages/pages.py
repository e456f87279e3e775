"""A page as a list of its elements, and what every page of chestfed must keep."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from html.parser import HTMLParser

VOID = {"meta", "link", "img", "br", "hr"}


class Page(HTMLParser):
    """The elements of a page in order: tag, attributes, and the text inside."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None], list[str]]] = []
        self._open: list[tuple[str, dict[str, str | None], list[str]]] = []
        self.feed(html)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element: tuple[str, dict[str, str | None], list[str]] = (tag, dict(attrs), [])
        self.elements.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        for _, _, texts in self._open:
            texts.append(data)

    def all(self, *tags: str) -> Iterator[tuple[str, dict[str, str | None], str]]:
        for tag, attributes, texts in self.elements:
            if tag in tags:
                yield tag, attributes, " ".join("".join(texts).split())


def assert_needs_nothing_else(html: str) -> None:
    """Small, without scripts, and without any address outside of the page."""
    page = Page(html)
    assert len(html.encode()) < 3_000_000
    assert not re.search(r"https?:|file:", html)
    assert not list(page.all("script", "iframe", "object", "video"))
    for _, attributes, _ in page.all("img", "link", "a"):
        address = attributes.get("src") or attributes.get("href") or ""
        assert address.startswith(("data:", "#")), address
    assert "url(" not in html
    assert "@import" not in html
    assert "default-src 'none'" in html


def assert_readable_without_seeing_it(page: Page) -> None:
    """Language, landmarks, headings one level at a time, texts of images, scopes of headings, targets that exist."""
    ((_, attributes, _),) = page.all("html")
    assert attributes["lang"] == "en"
    assert len(list(page.all("main"))) == 1
    levels = [int(tag[1]) for tag, _, _ in page.all("h1", "h2", "h3", "h4", "h5", "h6")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    for _, attributes, _ in page.all("img"):
        assert len(attributes["alt"] or "") > 20
    heads = list(page.all("th"))
    assert {attributes["scope"] for _, attributes, _ in heads} == {"col", "row"}
    assert all(text for _, _, text in heads)
    assert len(list(page.all("table"))) == len(list(page.all("caption"))) == len(list(page.all("thead")))
    names = [str(attributes["id"]) for _, attributes, _ in page.elements if "id" in attributes]
    assert len(names) == len(set(names))
    for _, attributes, _ in page.elements:
        assert attributes.get("aria-labelledby") in (None, *names)
    targets = [attributes["href"] or "" for _, attributes, _ in page.all("a")]
    assert {target[1:] for target in targets if target.startswith("#")} <= set(names)


def assert_says_synthetic(page: Page) -> None:
    """Title, captions and texts of images."""
    ((_, _, title),) = page.all("title")
    assert title.startswith("SYNTHETIC")
    captions = [text for _, _, text in page.all("caption")]
    assert all(text.startswith("SYNTHETIC") for text in captions)
    for _, attributes, _ in page.all("img"):
        assert "synthetic radiograph" in (attributes["alt"] or "").lower()
