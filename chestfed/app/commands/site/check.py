"""`chestfed site check` and `chestfed site card`: the same report with names and without."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chestfed.app.commands import options
from chestfed.core.console import open_console, say, show_answer

if TYPE_CHECKING:
    from rich.console import Console

    from chestfed.data.sites import SiteConfig
    from chestfed.reports.pages.site_report import SiteReport

Labels = Annotated[Path | None, options.optional(help="Read this label file; the images are not checked.")]
FixSplits = Annotated[
    bool,
    typer.Option(
        "--fix-splits",
        help="Write splits by patient and a YAML that uses them, beside CONFIG. Patients of an earlier such file stay.",
    ),
]
Images = Annotated[bool, typer.Option("--images/--no-images", help="Check every image file.")]
Out = Annotated[Path | None, options.optional(help="Folder for check.json and check.md, which name files and rows.")]


def site_check(
    config: options.Config,
    data: options.Data = None,
    labels: Labels = None,
    against: options.Against = None,
    fix_splits: FixSplits = False,
    images: Images = True,
    out: Out = None,
    cache: options.Cache = options.AUTO,
    workers: options.Workers = None,
) -> None:
    """Check a site's labels and images, and report all problems at once, with file and row.

    What to look at first, then everything: unreadable files, duplicate images, patients in two splits, labels that
    the YAML does not list; counts per split, views, ages, sexes, sizes and formats; with --against, patients and images
    that two sites share, and how far their gray levels and prevalences are apart. Exit code 0: passed; 1: errors
    found, or the site cannot be read. To resume an interrupted check, run it again.

    Example:

        chestfed site check st-anne --data data --against chexpert --out st_anne_check
    """
    from chestfed.reports.pages.site_report import print_report, write_files
    from chestfed.reports.pages.site_report.render import NOTE

    console = open_console()
    sites = _load(config, against)
    root = options.data_root(data, sites[bool(labels) :], ", or give the site's label file with --labels FILE")
    check = partial(_report, console, sites[1:], root, labels=labels, images=images, cache=cache, workers=workers)
    report = check(config)
    if fix_splits:
        if report.check.inspection.survey.table.frame.empty:
            print_report(console, report)
        fixed = _write_splits(console, report, sites[0], root, config, out or config.parent)
        before, report = report.check.errors.kinds, check(fixed)
        gone = [f"{kind} ({len(rows):,})" for kind, rows in before.items() if kind not in report.check.errors.kinds]
        say(console, f"Fixed by these files: {', '.join(gone) or 'no error'}.\n" if before else "")
    print_report(console, report)
    if out is not None:
        files = " and ".join(str(file) for file in write_files(report, out))
        say(console, f"written to {files}. {NOTE}")
    inspected = report.check
    numbers = {"passed": inspected.passed, "errors": len(inspected.errors), "warnings": len(inspected.warnings)}
    show_answer(console, f"{inspected.title} ({inspected.site}): {report.verdict}", **numbers)
    raise typer.Exit(0 if report.check.passed else 1)


def _write_splits(
    console: Console, report: SiteReport, site: SiteConfig, data_root: Path, config: Path, out: Path
) -> Path:
    """Write splits by patient, and return the YAML that uses them."""
    from chestfed.data.checks.splits import describe_splits, name_file, patient_splits, read_kept, write_fixed

    kept, inspection = read_kept(site, data_root, name_file(config, out)), report.check.inspection
    splits = patient_splits(inspection, kept)
    table, fixed = write_fixed(splits, config, out)
    say(console, f"splits by patient: {table}\nthe site with them: {fixed}")
    say(console, f"or write into your YAML:  splits: {{file: {table.name}}}")
    say(console, "\n".join(describe_splits(splits, kept, inspection, table.name)))
    return fixed


Page = Annotated[
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
    out: Page = None,
    pictures: Pictures = None,
    cache: options.Cache = options.AUTO,
    workers: options.Workers = None,
) -> None:
    """Write a card of a site as an HTML page and as Markdown, without names of patients and images.

    The result of `site check`: problems by kind, splits, prevalences, views, ages, sexes, formats; with --against, gray
    levels of both sites and a drift score. A site that fails its check also gets a card, which says so. To resume an
    interrupted command, run it again.

    Example:

        chestfed site card st_anne.yaml --data data --against site_configs/chexpert.yaml --out st_anne_card.html
    """
    from chestfed.reports.pages.site_report import check_page, write_card

    console = open_console()
    if out is not None:
        check_page(out)
    site, *others = _load(config, against)
    root = options.data_root(data, [site, *others])
    report = _report(console, others, root, config, cache=cache, workers=workers)
    page, text = write_card(report, out or Path(f"{site.site}_card.html"), pictures=pictures)
    say(console, f"{report.check.title} ({site.site}): check {report.verdict}")
    say(console, f"written to {page} ({page.stat().st_size / 1e6:.1f} MB; open it in a browser) and {text}")
    if pictures and not report.check.synthetic:
        say(console, "The page shows images of real patients: check the license of the data set before you share it.")
    result = {"page": str(page), "markdown": str(text), "passed": report.check.passed}
    show_answer(console, f"{report.check.title}: check {report.verdict}; card: {page}", **result)


def _load(config: Path, against: Sequence[Path] | None) -> list[SiteConfig]:
    """The site, and behind it those that it is compared with."""
    from chestfed.data.sites import load_site_config

    return [load_site_config(path) for path in (config, *(against or ()))]


def _report(
    console: Console,
    others: Sequence[SiteConfig],
    root: Path,
    config: Path,
    *,
    labels: Path | None = None,
    images: bool = True,
    cache: Path,
    workers: int | None,
) -> SiteReport:
    """Report of the card and the check, with a bar while images are read."""
    from chestfed.app.commands.progress import StepBars
    from chestfed.data.sites import load_site_config
    from chestfed.reports.pages.site_report import make_report

    with StepBars(console) as bars:
        return make_report(
            load_site_config(config),
            root,
            against=others,
            labels_file=labels,
            images=images,
            cache_root=cache,
            workers=workers,
            progress=bars.show,
        )
