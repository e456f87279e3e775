"""The page's section on the sites: counts, histograms, small images, and how far apart they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from chestfed.core.diseases import format_title
from chestfed.core.provenance import Origin
from chestfed.reports.pages.drift import drift
from chestfed.reports.pages.figures import Picture, thumbnail
from chestfed.results.tables.files import SiteCard
from chestfed.results.tables.grid import Cell, Grid, make_grid, number
from chestfed.results.tables.run_folder import RunFolder


def site_cards(run: RunFolder, histograms: Sequence[Picture], *, pictures: bool) -> list[dict[str, Any]]:
    """Per client, and for the test images: its numbers, its histogram and a few images."""
    cards = []
    for place, (card, histogram) in enumerate(zip(run.sites["sites"], histograms, strict=True)):
        shown = pictures or _is_synthetic(card)
        cards.append(
            {
                "name": card["name"],
                "tag": Origin(card["data"]).tag,
                "counts": _counts(card, place, target_first=run.settings.adds_hospitals),
                "table": _label_table(card, place),
                "histogram": histogram,
                "thumbnails": _thumbnails(run, card, place) if shown else [],
                "pictures_missing": shown and len(run.thumbnails.get(str(place), ())) == 0,
            }
        )
    return cards


def drift_table(run: RunFolder) -> Grid | None:
    """The drift score between each two sites; None with fewer than two."""
    cards = run.sites["sites"]
    if len(cards) < 2:
        return None
    rows = ((a["name"], [Cell("-") if a is b else _drift_cell(a, b) for b in cards]) for a in cards)
    caption = "Drift score between sites; below it its parts, gray levels + prevalence"
    return make_grid("drift", caption, ("site", *(card["name"] for card in cards)), rows)


def list_mistakes(run: RunFolder, *, pictures: bool) -> list[dict[str, Any]]:
    """Per disease the small test images that the largest K misjudges, if they may be shown."""
    stored, parts = run.mistakes, []
    if not stored:
        return []
    card = run.sites["sites"][-1]
    if not (pictures or _is_synthetic(card)):
        return []
    picture = "synthetic radiograph" if _is_synthetic(card) else "image"
    for place, disease in enumerate(run.diseases):
        shown = []
        for row in np.flatnonzero(stored["disease"] == place):
            kind = "missed" if stored["positive"][row] else "false alarm"
            label = f"{kind}: scored above {stored['below'][row]:.0%} of the test images"
            alt = f"Small {picture}, {format_title(disease)} {label}"
            shown.append({"uri": thumbnail(stored["pixels"][row]), "label": label, "alt": alt})
        if shown:
            parts.append({"title": format_title(disease), "pictures": shown})
    return parts


def _drift_cell(a: SiteCard, b: SiteCard) -> Cell:
    of_a, of_b = ({name: counts["prevalence"] for name, counts in card["diseases"].items()} for card in (a, b))
    distance = drift(a["gray_levels"], b["gray_levels"], of_a, of_b)
    return Cell(number(distance.score), (f"{distance.gray_levels:.3f} + {number(distance.prevalence)}",))


def _is_synthetic(card: SiteCard) -> bool:
    """Whether a client's images are phantoms."""
    return Origin(card["data"]) is Origin.SYNTHETIC


def _label_table(card: SiteCard, place: int) -> Grid:
    rows = []
    for disease, numbers in card["diseases"].items():
        counts = (f"{count:,}" for count in (numbers["positives"], numbers["negatives"], numbers["missing"]))
        rows.append((format_title(disease), (*counts, number(numbers["prevalence"]))))
    images = "training images" if card["role"] == "client" else "images"
    columns = ("disease", "positive", "negative", "missing", "prevalence")
    return make_grid(f"site-{place}", f"{card['name']}: labels of its {images}", columns, rows)


def _counts(card: SiteCard, place: int, *, target_first: bool) -> str:
    text = f"{card['images']:,} images"
    if card["role"] == "client":
        target = ", the target" if place == 0 and target_first else ""
        text = f"Client {place + 1}{target}: {text}, {card['rows']:,} training rows"
    return text + (f"; {card['unreadable']:,} unreadable images left out" if card["unreadable"] else "")


def _thumbnails(run: RunFolder, card: SiteCard, place: int) -> list[dict[str, str]]:
    thumbnails = []
    kind = "synthetic radiograph" if _is_synthetic(card) else "image"
    for pixels, positive in zip(run.thumbnails.get(str(place), ()), card["shown"], strict=False):
        signs = ", ".join(map(format_title, positive)) or "no positive label"
        thumbnails.append({"uri": thumbnail(pixels), "alt": f"Small {kind} of {card['name']}: {signs}", "label": signs})
    return thumbnails
