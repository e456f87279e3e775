"""`chestfed site stats` and `chestfed site table`: counts of a site, and some of its rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from chestfed.app.commands import options
from chestfed.core.console import open_console, say, show_answer


def site_stats(
    configs: Annotated[
        list[Path],
        typer.Argument(
            callback=options.site_files, help="YAMLs of the sites, e.g. site_configs/chexpert.yaml.", show_default=False
        ),
    ],
    labels: Annotated[
        Path | None, options.optional(help="Read this label file; the images need not exist. One site only.")
    ] = None,
    data: options.Data = None,
    csv: Annotated[Path | None, options.optional(help="Also write the table to this file, with four decimals.")] = None,
) -> None:
    """Count images and positives per disease, beside the source paper's dataset table. Reads labels only.

    Example:

        chestfed site stats site_configs/chexpert.yaml site_configs/vindr.yaml --data /data/hospitals
    """
    if labels is not None and len(configs) != 1:
        raise typer.BadParameter("--labels is the label file of one site: give only one YAML with it")
    from chestfed.core.checkpoint import write_text
    from chestfed.core.errors import SiteError
    from chestfed.data.sites import load_site_config
    from chestfed.data.sites.opening import open_all_views, survey_site
    from chestfed.data.sites.stats import dataset_table, describe_test_split, render
    from chestfed.results.evaluation.labeled import LEAST_PATIENTS

    console, sites = open_console(), [load_site_config(config) for config in configs]
    root = options.data_root(data, [] if labels else sites, ", or give a label file with --labels FILE")
    surveys = [survey_site(site, root, labels, keep_going=False) for site in sites]
    for site, survey in zip(sites, surveys, strict=True):
        if survey.problems:
            raise SiteError(site.site, survey.problems)
    all_views = [open_all_views(survey, site) for survey, site in zip(surveys, sites, strict=True)]
    frame = dataset_table([survey.table for survey in surveys], all_views)
    console.print(render(frame))
    for table in (survey.table for survey in surveys):
        for note in table.notes:
            say(console, f"{table.title}: {note}", "yellow")
    for site, survey in zip(sites, surveys, strict=True):
        for sentence in describe_test_split(survey.table, site, LEAST_PATIENTS):
            say(console, f"{survey.table.title}: {sentence}", "yellow")
    if csv is not None:
        write_text(csv, frame.to_csv(index=False, float_format="%.4f"))
        say(console, f"written to {csv}")
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    images = {survey.table.name: len(survey.table.frame) for survey in surveys}
    counted = ", ".join(f"{name} {number:,} images" for name, number in images.items())
    show_answer(console, counted, images=images, rows=rows)


def site_table(
    config: options.Config,
    data: options.Data = None,
    sample: Annotated[int, typer.Option(min=1, help="Rows to show, drawn at random.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draw.")] = 1,
    csv: Annotated[Path | None, options.optional(help="Also write the rows to this file.")] = None,
    sheet: Annotated[
        Path | None, options.optional(help="Write a contact sheet (PNG): images with their labels.")
    ] = None,
) -> None:
    """Show rows of a site: the image, its view and split, sex, the cells of the label columns, findings and labels.

    For a radiologist to compare with the images. Patients have keyed names, as in predictions. The output quotes cells
    and names images: keep it at the site.

    Example:

        chestfed site table st_anne.yaml --data data --sample 20 --sheet st_anne_sheet.png
    """
    from chestfed.core.checkpoint import write_text
    from chestfed.data.checks.label_rows import contact_sheet, label_rows
    from chestfed.data.sites import load_site_config

    console = open_console()
    site = load_site_config(config)
    root = options.data_root(data, [site])
    survey, places, rows = label_rows(site, root, sample, seed)
    for row in rows.to_dict("records"):
        say(console, f"{row.pop('file')}:{row.pop('row')}  {row.pop('image')}")
        for name, text in row.items():
            say(console, f"    {name}: {text}")
    if csv is not None:
        write_text(csv, rows.to_csv(index=False))
        say(console, f"written to {csv}; keep it at the site")
    if sheet is not None:
        unread = contact_sheet(survey, places, sheet)
        lost = f"; {unread:,} images cannot be read" if unread else ""
        say(console, f"written to {sheet}{lost}; it shows images of the site: keep it at the site")
    text = f"{len(rows):,} of {len(survey.table.frame):,} images. Names images and quotes cells: keep it at the site"
    show_answer(console, text, shown=len(rows), images=len(survey.table.frame))
