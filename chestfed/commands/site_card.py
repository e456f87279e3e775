"""`chestfed site card`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from chestfed.commands.progress import StepBars
from chestfed.core.errors import ConfigError


def run_command(
    console: Console,
    config_path: Path,
    data: Path | None,
    against: Sequence[Path],
    out: Path | None,
    cache: Path,
    workers: int | None,
    *,
    pictures: bool | None,
) -> int:
    """Write the card of a site, and say where it is; returns the exit code: 0, or 2 for a call that cannot be followed.

    A site that fails its check has a card all the same, which says so.
    """
    from chestfed.report.site_card import make_card, write_card
    from chestfed.report.site_card.problems import verdict
    from chestfed.sites import load_site_config

    try:
        if out is not None and out.suffix.lower() not in (".html", ".htm"):
            raise ConfigError(f"--out {out}: the page is HTML, so its name ends in .html; the Markdown goes beside it")
        config = load_site_config(config_path)
        others = [load_site_config(other) for other in against]
        if data is None and not all(site.has_place for site in (config, *others)):
            raise ConfigError(
                "where are the sites' files? Give the folder that holds their folders with --data DIR or $CHESTFED_DATA"
            )
    except ConfigError as error:
        console.print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        return 2
    with StepBars(console) as bars:
        card = make_card(
            config,
            data or Path(),
            against=others,
            pictures=pictures,
            cache_root=cache,
            workers=workers,
            progress=bars.show,
        )
    page, text = write_card(card, out or Path(f"{config.site}_card.html"))
    console.print(f"{card.report.title} ({config.site}): check {verdict(card)}", markup=False, highlight=False)
    size = page.stat().st_size / 1e6
    told = f"written to {page} ({size:.1f} MB; open it in a browser) and {text}"
    console.print(told, markup=False, highlight=False, soft_wrap=True)
    if card.thumbnails and not card.synthetic:
        console.print("The page shows pictures of real patients: mind who gets it, and the licence of the data set.")
    return 0
