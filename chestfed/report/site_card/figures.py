"""The card's figures, in the style of the report's; each has a text that says what is seen in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np

from chestfed.inspection.facts import BINS
from chestfed.report.figures import COLOURS, Drawing, Picture

if TYPE_CHECKING:
    from chestfed.report.site_card.build import Profile, SiteCard

#: Grey level in the middle of each bin.
MIDDLES: Final = (np.arange(BINS) + 0.5) * 256 / BINS


def ages(card: SiteCard, decades: Mapping[str, int]) -> Picture:
    """Images per group of ages."""
    with Drawing(card, "ages", "Ages", size=(4.8, 2.6)) as drawing:
        drawing.axes.bar(range(len(decades)), list(decades.values()), color=COLOURS[0], width=0.85)
        drawing.axes.set_xticks(range(len(decades)), list(decades), rotation=30 if len(decades) > 8 else 0)
        drawing.axes.set_xlim(-0.6, max(len(decades), 5) - 0.4)  # a single bar is no wall
        drawing.axes.grid(axis="x", visible=False)
        drawing.axes.set(xlabel="years", ylabel="images")
        drawing.say(", ".join(f"{group} years {number:,}" for group, number in decades.items()))
    return drawing.picture("Bars of the number of images by age")


def grey_levels(card: SiteCard) -> Picture:
    """The site's histogram as an area, the other sites' as lines."""
    own = card.profile
    sites = [own, *(other for other in card.others if other.grey_levels is not None)]
    with Drawing(card, "grey-levels", "Grey levels", size=(5.6, 3.2)) as drawing:
        highest = 0.0
        for number, site in enumerate(sites):
            share = shares(site)
            highest = max(highest, float(share[1:].max()))
            name = label(card, site)
            if number == 0:
                drawing.axes.fill_between(
                    MIDDLES, 100 * share, step="mid", color=COLOURS[0], alpha=0.55, linewidth=0, label=name
                )
                drawing.drawn += 1
            else:
                drawing.line(number, MIDDLES, 100 * share, name)
            drawing.say(
                f"{name} has a mean of {share @ MIDDLES:.0f} of 255, and {share[0]:.0%} of its pixels are black"
            )
        drawing.axes.set(xlim=(0, 256), ylim=(0, 115 * highest))  # black margins would flatten everything else
        drawing.label("grey level", "% of the pixels", "", "best")
    return drawing.picture("Histogram of the grey levels of the preprocessed pictures")


def label(card: SiteCard, site: Profile) -> str:
    """A site's short name; on the card of a real site it says of a synthetic one that it is."""
    return f"{site.name} (synthetic)" if site.synthetic and not card.synthetic else site.name


def shares(site: Profile) -> np.ndarray:
    """Share of a site's pixels per bin, float64 `[64]`."""
    assert site.grey_levels is not None
    return site.grey_levels / max(1, int(site.grey_levels.sum()))
