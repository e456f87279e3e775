"""`chestfed site check`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chestfed.commands import options
from chestfed.core.console import open_console, say

if TYPE_CHECKING:
    from rich.console import Console

    from chestfed.inspection import CheckReport

Labels = Annotated[Path | None, options.optional(help="Read this label file; the images are not checked.")]
FixSplits = Annotated[
    bool, typer.Option("--fix-splits", help="Write splits by patient and a YAML that uses them, beside CONFIG.")
]
Images = Annotated[bool, typer.Option("--images/--no-images", help="Check every image file.")]
Checksums = Annotated[
    Path | None,
    options.optional(help="Compare images and label files with a release's SHA256SUMS.txt (reads every byte)."),
]
Out = Annotated[Path | None, options.optional(help="Folder for check.json and check.md, which name files and rows.")]


def site_check(
    config: options.Config,
    data: options.Data = None,
    labels: Labels = None,
    against: options.Against = None,
    fix_splits: FixSplits = False,
    images: Images = True,
    checksums: Checksums = None,
    out: Out = None,
    cache: options.Cache = Path("cache"),
    workers: options.Workers = None,
) -> None:
    """Check a site's labels and images, and report all problems at once, with file and row.

    Counts and prevalences per split, views, ages, sexes, sizes and formats; unreadable files, duplicate images,
    patients in two splits, labels that the YAML does not know; with --against, patients and images that two sites
    share. Exit code 0: passed; 1: errors found; 2: usage error. To resume an interrupted check, run it again.

    Example:

        chestfed site check st_anne.yaml --data data --against site_configs/chexpert.yaml --out st_anne_check
    """
    from chestfed.commands.progress import StepBars
    from chestfed.inspection import check_site
    from chestfed.inspection.text import NOTE, render, verdict, write_report
    from chestfed.sites import load_site_config

    console = open_console()
    with options.as_usage_error():
        site, others = load_site_config(config), [load_site_config(other) for other in against or []]
        needed = others if labels else [site, *others]
        root = options.data_root(data, needed, ", or give the site's label file with --labels FILE")

    def check(path: Path) -> CheckReport:
        with StepBars(console) as bars:
            return check_site(
                load_site_config(path),
                root,
                labels_file=labels,
                against=others,
                images=images,
                checksums=checksums,
                cache_root=cache,
                workers=workers,
                progress=bars.show,
            )

    report = check(config)
    console.print(render(report))
    if fix_splits:
        report = check(_write_splits(console, report, config, out or config.parent))
        say(console, verdict(report))
        if not report.passed:
            console.print(render(report))
    if out is not None:
        files = " and ".join(str(file) for file in write_report(report, out))
        say(console, f"written to {files}. {NOTE}")
    raise typer.Exit(0 if report.passed else 1)


def _write_splits(console: Console, report: CheckReport, config: Path, out: Path) -> Path:
    """Write splits by patient, and return the YAML that uses them."""
    from chestfed.inspection.splits import patient_splits, write_fixed

    table, fixed = write_fixed(patient_splits(report.looked), config, out)
    say(console, f"\nsplits by patient: {table}\nthe site with them: {fixed}")
    say(console, f"or write into your YAML:  splits: {{file: {table.name}}}")
    return fixed
