"""`chestfed site check`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chestfed.commands import options
from chestfed.core.console import open_console, say

if TYPE_CHECKING:
    from rich.console import Console

    from chestfed.report.site_report import SiteReport

Labels = Annotated[Path | None, options.optional(help="Read this label file; the images are not checked.")]
FixSplits = Annotated[
    bool, typer.Option("--fix-splits", help="Write splits by patient and a YAML that uses them, beside CONFIG.")
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
    cache: options.Cache = Path("cache"),
    workers: options.Workers = None,
) -> None:
    """Check a site's labels and images, and report all problems at once, with file and row.

    What to look at first, then everything: unreadable files, duplicate images, patients in two splits, labels that
    the YAML does not know; counts per split, views, ages, sexes, sizes and formats; with --against, patients and images
    that two sites share, and how far their gray levels and prevalences are apart. Exit code 0: passed; 1: errors
    found, or the site cannot be read. To resume an interrupted check, run it again.

    Example:

        chestfed site check st-anne --data data --against chexpert --out st_anne_check
    """
    from chestfed.commands.progress import StepBars
    from chestfed.report.site_report import make_report, print_report, write_files
    from chestfed.report.site_report.render import NOTE
    from chestfed.sites import load_site_config

    console = open_console()
    site, others = load_site_config(config), [load_site_config(other) for other in against or []]
    needed = others if labels else [site, *others]
    root = options.data_root(data, needed, ", or give the site's label file with --labels FILE")

    def check(path: Path) -> SiteReport:
        with StepBars(console) as bars:
            return make_report(
                load_site_config(path),
                root,
                against=others,
                labels_file=labels,
                images=images,
                cache_root=cache,
                workers=workers,
                progress=bars.show,
            )

    report = check(config)
    print_report(console, report)
    if fix_splits:
        report = check(_write_splits(console, report, config, out or config.parent))
        if report.check.passed:
            say(console, report.verdict)
        else:
            print_report(console, report)
    if out is not None:
        files = " and ".join(str(file) for file in write_files(report, out))
        say(console, f"written to {files}. {NOTE}")
    raise typer.Exit(0 if report.check.passed else 1)


def _write_splits(console: Console, report: SiteReport, config: Path, out: Path) -> Path:
    """Write splits by patient, and return the YAML that uses them."""
    from chestfed.inspection.splits import patient_splits, write_fixed

    table, fixed = write_fixed(patient_splits(report.check.inspection), config, out)
    say(console, f"\nsplits by patient: {table}\nthe site with them: {fixed}")
    say(console, f"or write into your YAML:  splits: {{file: {table.name}}}")
    return fixed
