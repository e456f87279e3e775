"""The section that shows the site beside others."""

from __future__ import annotations

from chestfed.core.diseases import title_of
from chestfed.inspection.problems import SITES_NEAR, SITES_SHARE_PATIENT, SITES_SHARE_PICTURE
from chestfed.report.figures import Drawing, Picture, gray_levels, moments, shares
from chestfed.report.site_card.build import Profile, Section, SiteCard
from chestfed.results.grid import Cell, Grid, Rows, grid_of, number


def beside_section(card: SiteCard) -> Section:
    """Gray levels and prevalences of the site and the others, and the drift to each."""
    own, others = card.profile, card.others
    everybody = (own, *others)
    with_images = [site for site in everybody if site.gray_levels is not None]
    pictures = (_gray_levels(card),) if own.gray_levels is not None else ()
    heads: tuple[str, ...] = ("site", "images", "mean", "standard deviation", "black, 0 to 3")
    caption = "Gray levels of the preprocessed images, 0 (black) to 255"
    rows = ((_label(card, site), _gray_cells(site)) for site in with_images)
    tables = [grid_of("gray", caption, heads, rows)] if with_images else []
    if not others:
        words = ("No other site was given; --against OTHER.yaml adds one for comparison.",)
        return Section("beside", "Gray levels", words, tuple(tables), pictures)
    diseases = list(dict.fromkeys(name for site in everybody for name in site.prevalence))
    prevalences = ((title_of(name), (number(site.prevalence.get(name)) for site in everybody)) for name in diseases)
    heads = ("disease", *(_label(card, site) for site in everybody))
    tables += [_drift_table(card), grid_of("shares", "Prevalence, all splits", heads, prevalences)]
    remark = (
        "Drift score = W + P, between 0 (alike) and 2. W: Wasserstein-1 distance of the gray-level histograms, with "
        "the whole range as 1: the mean over the 64 bins of |F − G|, F and G cumulative. P: mean over the diseases "
        "that both sites label of |p − q|, the difference of the prevalences. It describes the data "
        "and predicts nothing."
    )
    return Section("beside", "Comparison with other sites", _shared(card), tuple(tables), pictures, (remark,))


def _shared(card: SiteCard) -> tuple[str, ...]:
    problems = [*card.report.errors, *card.report.warnings]
    kinds = (SITES_SHARE_PICTURE, SITES_NEAR, SITES_SHARE_PATIENT)
    found = {kind: sum(problem.kind == kind for problem in problems) for kind in kinds}
    return (
        f"Images that another site also has: {found[SITES_SHARE_PICTURE]:,}; near-duplicates: {found[SITES_NEAR]:,}. "
        f"Patients with the same name as one at another site: {found[SITES_SHARE_PATIENT]:,}.",
    )


def _drift_table(card: SiteCard) -> Grid:
    rows: Rows = []
    for other in card.others:
        if (found := card.profile.drift_to(other)) is None:
            rows.append((_label(card, other), [Cell("-", ("no readable images",)), "-", "-", "-"]))
            continue
        parts = map(number, (found.score, found.gray_levels, found.prevalence))
        rows.append((_label(card, other), [*parts, str(len(card.profile.shared(other)))]))
    columns = ("to", "drift score", "gray levels, W", "prevalence, P", "diseases in P")
    return grid_of("drift", f"Drift from {_label(card, card.profile)}", columns, rows)


def _gray_cells(site: Profile) -> tuple[str, ...]:
    part = shares(site.gray_levels)
    mean, spread = moments(part)
    return f"{site.images:,}", f"{mean:.0f}", f"{spread:.0f}", f"{part[0]:.1%}"


def _gray_levels(card: SiteCard) -> Picture:
    """The site's histogram as an area, the other sites' as lines."""
    sites = [card.profile, *(other for other in card.others if other.gray_levels is not None)]
    drawn = [(place, _label(card, site), shares(site.gray_levels)) for place, site in enumerate(sites)]
    with Drawing(card.origin, "gray-levels", "Gray levels", (5.6, 3.2)) as drawing:
        gray_levels(drawing.axes, drawn)
        for _, name, part in drawn:
            drawing.say(
                f"{name} has a mean of {moments(part)[0]:.0f} of 255, and {part[0]:.0%} of its pixels are black"
            )
    return drawing.picture("Histogram of the gray levels of the preprocessed images")


def _label(card: SiteCard, site: Profile) -> str:
    """A site's short name; on the card of a real site, a synthetic one is marked."""
    return f"{site.name} (synthetic)" if site.synthetic and not card.synthetic else site.name
