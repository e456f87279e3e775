"""`chestfed site card`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from chestfed.commands import options
from chestfed.core.console import open_console, say

Out = Annotated[
    Path | None,
    typer.Option(metavar="FILE.html", help="The page; FILE.md is written beside it. Default: SITE_card.html."),
]
Pictures = Annotated[
    bool | None,
    typer.Option(
        "--pictures/--no-pictures",
        help="Show a few small images. Default: of synthetic sites only. Check the license of the data set first.",
    ),
]


def site_card(
    config: options.Config,
    data: options.Data = None,
    against: options.Against = None,
    out: Out = None,
    pictures: Pictures = None,
    cache: options.Cache = Path("cache"),
    workers: options.Workers = None,
) -> None:
    """Write a card of a site as an HTML page and as Markdown, without names of patients and images.

    The result of `site check`: problems by kind, splits, prevalences, views, ages, sexes, formats; with --against, gray
    levels of both sites and a drift score. A site that fails its check also gets a card, which says so. To resume an
    interrupted command, run it again.

    Example:

        chestfed site card st_anne.yaml --data data --against site_configs/chexpert.yaml --out st_anne_card.html
    """
    from chestfed.commands.progress import StepBars
    from chestfed.report.site_report import check_page, make_report, write_card
    from chestfed.sites import load_site_config

    console = open_console()
    if out is not None:
        check_page(out)
    site, others = load_site_config(config), [load_site_config(other) for other in against or []]
    root = options.data_root(data, [site, *others])
    with StepBars(console) as bars:
        report = make_report(site, root, against=others, cache_root=cache, workers=workers, progress=bars.show)
    page, text = write_card(report, out or Path(f"{site.site}_card.html"), pictures=pictures)
    say(console, f"{report.check.title} ({site.site}): check {report.verdict}")
    say(console, f"written to {page} ({page.stat().st_size / 1e6:.1f} MB; open it in a browser) and {text}")
    if pictures and not report.check.synthetic:
        say(console, "The page shows images of real patients: check the license of the data set before you share it.")
