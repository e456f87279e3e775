"""The commands `chestfed site ...`: arguments in, printed tables out. Heavy imports wait until a command runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from chestfed.commands.console import open_console

site_app = typer.Typer(
    help="Describe a new hospital, check it, make its card; count what the sites' label files say.",
    no_args_is_help=True,
)


@site_app.command("new")
def site_new(
    name: Annotated[str, typer.Argument(help="Short name of the hospital, such as st-anne.")],
    images: Annotated[Path, typer.Option(help="Folder of the images: PNG, JPEG or DICOM, in sub-folders or not.")],
    labels: Annotated[
        Path | None,
        typer.Option(
            help="The table: csv, tsv (also as .gz), xlsx or parquet. Without it the labels are looked for in the "
            "headers of the DICOM files.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for NAME.yaml and NAME.terms.csv.")] = Path("site_configs"),
    data: Annotated[
        Path | None,
        typer.Option(help="Write the site's root relative to this folder, to give it as --data to other commands."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing: take the guesses, or stop.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the YAML if it is there.")] = False,
    image_column: Annotated[str | None, typer.Option(help="Column of the images.", show_default=False)] = None,
    patient_column: Annotated[
        str | None, typer.Option(help="Column of the patients; none: there is no such column.", show_default=False)
    ] = None,
    study_column: Annotated[str | None, typer.Option(help="As the next five: a column, or none.")] = None,
    view_column: Annotated[str | None, typer.Option()] = None,
    split_column: Annotated[str | None, typer.Option()] = None,
    sex_column: Annotated[str | None, typer.Option()] = None,
    age_column: Annotated[str | None, typer.Option()] = None,
    reader_column: Annotated[str | None, typer.Option(help="Who says so, with a row per reader.")] = None,
    findings_column: Annotated[
        str | None, typer.Option(help="The findings as words: one, or several in a cell.")
    ] = None,
    value_column: Annotated[str | None, typer.Option(help="What is said of the finding of a row.")] = None,
    layout: Annotated[str | None, typer.Option(help="onehot, delimited, list, long or readers.")] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DISEASE=NAME",
            help="Your column, or term, for a disease, or none. Repeatable.",
            show_default=False,
        ),
    ] = None,
    value: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CELL=MEANING",
            help="What a cell of a label column means: positive, negative, uncertain or blank. Repeatable.",
            show_default=False,
        ),
    ] = None,
    uncertain: Annotated[
        str | None, typer.Option(help="What an uncertain label counts as: positive, negative, missing.")
    ] = None,
    blank: Annotated[
        str | None, typer.Option(help="What a disease of which nothing is said counts as: negative, missing.")
    ] = None,
    raters: Annotated[str | None, typer.Option(help="any, majority, all, or a reader's name.")] = None,
    delimiter: Annotated[str | None, typer.Option(help="Between the cells of a csv, e.g. ';' or tab.")] = None,
    encoding: Annotated[str | None, typer.Option(help="utf-8, latin-1, cp1252 or utf-16.")] = None,
    sheet: Annotated[str | None, typer.Option(help="Sheet of an xlsx. Default: the first.")] = None,
    header_row: Annotated[
        int | None, typer.Option(min=1, help="The row that names the columns, if others stand above it.")
    ] = None,
    separator: Annotated[str | None, typer.Option(help="Between the findings in a cell, e.g. '|'.")] = None,
    title: Annotated[str | None, typer.Option(help="Name in tables and plots.")] = None,
) -> None:
    """Describe a new hospital: looks at its images and its table, and writes a YAML that says how each thing was found.

    On a terminal it asks, with its guess as the default. When it cannot decide, it lists the candidates and the flag
    that settles it. Findings in words go into a mapping table, NAME.terms.csv, where a person says what they mean.

    Example:  chestfed site new st-anne --images hospitals/st-anne/images --labels hospitals/st-anne/labels.csv --yes
    """
    from chestfed.commands.new_site import choices_of, run_command

    columns = {
        "image": image_column,
        "patient": patient_column,
        "study": study_column,
        "view": view_column,
        "split": split_column,
        "sex": sex_column,
        "age": age_column,
        "reader": reader_column,
        "findings": findings_column,
        "value": value_column,
    }
    choices = choices_of(
        columns,
        label or [],
        value or [],
        layout=layout,
        uncertain=uncertain,
        blank=blank,
        raters=raters,
        delimiter=delimiter,
        encoding=encoding,
        sheet=sheet,
        header_row=header_row,
        separator=separator,
        title=title,
    )
    run_command(open_console(), name, images, labels, out, choices, data=data, yes=yes, force=force)


@site_app.command("check")
def site_check(
    config: Annotated[Path, typer.Argument(help="The site's YAML, e.g. site_configs/chexpert.yaml.")],
    data: Annotated[
        Path | None, typer.Option(help="Folder that holds the sites' folders.", envvar="CHESTFED_DATA")
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(help="Read this label file; then no image is looked at.", show_default=False)
    ] = None,
    against: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="OTHER.yaml", help="Another site, whose patients and pictures are looked for; repeatable."
        ),
    ] = None,
    fix_splits: Annotated[
        bool,
        typer.Option("--fix-splits", help="Write splits by patient, and a YAML that takes them, beside CONFIG."),
    ] = False,
    images: Annotated[bool, typer.Option("--images/--no-images", help="Look at every image file.")] = True,
    out: Annotated[
        Path | None, typer.Option(help="Folder for check.json and check.md. They name files and rows.")
    ] = None,
    cache: Annotated[Path, typer.Option(help="Folder that keeps what was found of the images.")] = Path("cache"),
    workers: Annotated[int | None, typer.Option(min=1, help="Processes that decode. Default: one per core.")] = None,
) -> None:
    """Check a hospital's labels and images, and report all that is wrong at once, with file and row.

    Counts and prevalences per split, views, ages, sexes, sizes and formats; unreadable files, pictures that stand
    there twice, patients in two splits, labels that the YAML does not know. Exit code 0: passed; 1: there are errors;
    2: a wrong call. Stopped, the same command goes on where it was.

    Example:  chestfed site check st_anne.yaml --data data --against site_configs/chexpert.yaml --out st_anne_check
    """
    from chestfed.commands.site import check_command

    code = check_command(
        open_console(),
        config,
        data,
        labels,
        against or [],
        out,
        cache,
        workers,
        images=images,
        fix_splits=fix_splits,
    )
    raise typer.Exit(code)


@site_app.command("card")
def site_card(
    config: Annotated[Path, typer.Argument(help="The site's YAML, e.g. site_configs/chexpert.yaml.")],
    data: Annotated[
        Path | None, typer.Option(help="Folder that holds the sites' folders.", envvar="CHESTFED_DATA")
    ] = None,
    against: Annotated[
        list[Path] | None,
        typer.Option(metavar="OTHER.yaml", help="Another site, to be shown beside it; repeatable.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="The page; FILE.md goes beside. Default: SITE_card.html."),
    ] = None,
    pictures: Annotated[
        bool | None,
        typer.Option(
            "--pictures/--no-pictures",
            help="Show a few small pictures. Default: of synthetic sites only. Mind the licence of the data set.",
        ),
    ] = None,
    cache: Annotated[Path, typer.Option(help="Folder that keeps what was found of the images.")] = Path("cache"),
    workers: Annotated[int | None, typer.Option(min=1, help="Processes that decode. Default: one per core.")] = None,
) -> None:
    """Write a card of a site: one HTML page and the same as Markdown, without names of patients and images.

    What `site check` finds, counted: splits, prevalences, views, ages, sexes, formats, problems; text in the pictures;
    grey levels beside the other sites', and a drift score to each. Stopped, the same command goes on where it was.

    Example:  chestfed site card st_anne.yaml --data data --against site_configs/chexpert.yaml --out st_anne_card.html
    """
    from chestfed.commands.site_card import run_command

    raise typer.Exit(run_command(open_console(), config, data, against or [], out, cache, workers, pictures=pictures))


@site_app.command("stats")
def site_stats(
    configs: Annotated[list[Path], typer.Argument(help="Site YAMLs, e.g. site_configs/chexpert.yaml.")],
    labels: Annotated[
        Path | None,
        typer.Option(help="Read this label file; then the images need not be there. One site only."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder that holds the sites' folders.", envvar="CHESTFED_DATA")
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="Write the table to this file too, with four decimals.")] = None,
) -> None:
    """Count images and positives per disease, with the source paper's dataset table beside. Reads labels only."""
    from chestfed.commands.site import stats_command

    stats_command(open_console(), configs, labels, data, csv)
