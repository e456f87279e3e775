"""The section that shows the site beside others."""

from __future__ import annotations

import numpy as np

from chestfed.core.diseases import TITLES
from chestfed.inspection.problems import SITES_NEAR, SITES_SHARE_PATIENT, SITES_SHARE_PICTURE
from chestfed.report.html import Cell, Line, Table
from chestfed.report.site_card import figures
from chestfed.report.site_card.build import Profile, SiteCard
from chestfed.report.site_card.parts import Section, share


def beside_section(card: SiteCard) -> Section:
    """Grey levels and prevalences of the site and the others, and the drift to each."""
    own, others = card.profile, card.others
    everybody = (own, *others)
    with_pictures = [site for site in everybody if site.grey_levels is not None]
    pictures = (figures.grey_levels(card),) if own.grey_levels is not None else ()
    grey = Table(
        "grey",
        "Grey levels of the preprocessed pictures, 0 (black) to 255",
        tuple(map(Cell, ("site", "images", "mean", "standard deviation", "black, 0 to 3"))),
        tuple(_grey_line(card, site) for site in with_pictures),
    )
    tables = [grey] if with_pictures else []
    title = "Grey levels"
    if not others:
        words = ("No other site was given; --against OTHER.yaml puts others beside it.",)
        return Section("beside", title, words, tuple(tables), pictures)
    diseases = list(dict.fromkeys(name for site in everybody for name in site.prevalence))
    shares = Table(
        "shares",
        "Prevalence, all splits",
        (Cell("disease"), *(Cell(figures.label(card, site)) for site in everybody)),
        tuple(
            Line(TITLES[name], tuple(Cell(share(site.prevalence.get(name))) for site in everybody)) for name in diseases
        ),
    )
    tables += [_drift_table(card), shares]
    remark = (
        "Drift score = W + P, between 0 (alike) and 2. W: Wasserstein-1 distance of the histograms of grey levels, the "
        "whole range being 1: the mean over the 64 bins of |F − G|, F and G cumulative. P: mean over the diseases that "
        "both sites label of |p − q|, the difference of the prevalences. It describes the data and predicts nothing."
    )
    return Section("beside", "Beside the other sites", _shared(card), tuple(tables), pictures, (remark,))


def _shared(card: SiteCard) -> tuple[str, ...]:
    problems = [*card.report.errors, *card.report.warnings]
    kinds = (SITES_SHARE_PICTURE, SITES_NEAR, SITES_SHARE_PATIENT)
    found = {kind: sum(problem.kind == kind for problem in problems) for kind in kinds}
    return (
        f"Pictures that another site has too: {found[SITES_SHARE_PICTURE]:,}; nearly: {found[SITES_NEAR]:,}. "
        f"Patients with the name of one at another site: {found[SITES_SHARE_PATIENT]:,}.",
    )


def _drift_table(card: SiteCard) -> Table:
    lines = []
    for other in card.others:
        found, shared = card.profile.drift_to(other), card.profile.shared(other)
        cells = [Cell("-", ("no readable pictures",)), Cell("-"), Cell("-"), Cell("-")]
        if found is not None:
            numbers = (found.score, found.grey_levels, found.prevalence)
            cells = [*(Cell(share(number)) for number in numbers), Cell(str(len(shared)))]
        lines.append(Line(figures.label(card, other), tuple(cells)))
    columns = ("to", "drift score", "grey levels, W", "prevalence, P", "diseases in P")
    return Table("drift", f"Drift from {figures.label(card, card.profile)}", tuple(map(Cell, columns)), tuple(lines))


def _grey_line(card: SiteCard, site: Profile) -> Line:
    shares, middles = figures.shares(site), figures.MIDDLES
    mean = float(shares @ middles)
    spread = float(np.sqrt(shares @ (middles - mean) ** 2))
    cells = (f"{site.images:,}", f"{mean:.0f}", f"{spread:.0f}", f"{shares[0]:.1%}")
    return Line(figures.label(card, site), tuple(map(Cell, cells)))
