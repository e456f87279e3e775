"""`chestfed site ...`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from chestfed.commands.progress import StepBars
from chestfed.core.errors import ConfigError


def stats_command(
    console: Console, configs: Sequence[Path], labels: Path | None, data: Path | None, csv: Path | None
) -> None:
    """Print the dataset table of the given sites."""
    from chestfed.core.checkpoint import write_text
    from chestfed.sites import load_site_config, open_site
    from chestfed.sites.stats import dataset_table, render

    if labels is not None and len(configs) != 1:
        raise ConfigError("--labels is the label file of one site: give one configuration with it")
    loaded = [load_site_config(config) for config in configs]
    if labels is None and data is None and not all(config.has_place for config in loaded):
        raise ConfigError(
            "where are the sites' files? Give their folder with --data DIR or $CHESTFED_DATA, or --labels FILE"
        )
    root = data if data is not None else Path()
    tables = [open_site(config, root, labels_file=labels) for config in loaded]
    frame = dataset_table(tables)
    console.print(render(frame))
    for table in tables:
        for note in table.notes:
            console.print(f"{table.title}: {note}", markup=False, highlight=False, soft_wrap=True, style="yellow")
    if csv is not None:
        write_text(csv, frame.to_csv(index=False, float_format="%.4f"))
        console.print(f"written to {csv}", highlight=False, soft_wrap=True)


def check_command(
    console: Console,
    config_path: Path,
    data: Path | None,
    labels: Path | None,
    against: Sequence[Path],
    out: Path | None,
    cache: Path,
    workers: int | None,
    *,
    images: bool,
    fix_splits: bool,
) -> int:
    """Check a site; returns the exit code: 0 passed, 1 failed, 2 for a call that cannot be followed."""
    from chestfed.inspection import CheckReport, check_site
    from chestfed.inspection.splits import patient_splits, write_fixed
    from chestfed.inspection.text import NOTE, render, verdict, write_report
    from chestfed.sites import load_site_config

    def check(path: Path) -> CheckReport:
        with StepBars(console) as bars:
            return check_site(
                load_site_config(path),
                data if data is not None else Path(),
                labels_file=labels,
                against=others,
                images=images,
                cache_root=cache,
                workers=workers,
                progress=bars.show,
            )

    try:
        config, others = load_site_config(config_path), [load_site_config(other) for other in against]
        if data is None and not (labels or config.has_place):
            raise ConfigError(
                "where are the site's files? Give the folder that holds its folder with --data DIR or $CHESTFED_DATA, "
                "or its label file with --labels FILE"
            )
        if data is None and not all(other.has_place for other in others):
            raise ConfigError("--against needs the folder of the sites: --data DIR or $CHESTFED_DATA")
    except ConfigError as error:
        console.print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        return 2
    report = check(config_path)
    console.print(render(report))
    fixed = None
    if fix_splits:
        table, fixed = write_fixed(patient_splits(report.looked), config_path, out or config_path.parent)
        console.print(
            f"\nsplits by patient: {table}\nthe site with them: {fixed}", highlight=False, markup=False, soft_wrap=True
        )
        console.print("or write into your YAML:  splits: {file: " + table.name + "}", markup=False, soft_wrap=True)
        report = check(fixed)
        console.print(verdict(report), markup=False, highlight=False, soft_wrap=True)
        if not report.passed:
            console.print(render(report))
    if out is not None:
        files = " and ".join(str(file) for file in write_report(report, out))
        console.print(f"written to {files}. {NOTE}", markup=False, highlight=False, soft_wrap=True)
    return 0 if report.passed else 1
