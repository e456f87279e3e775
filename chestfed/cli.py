"""The command line: arguments in, printed tables out. Heavy imports wait until a command runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import chestfed
from chestfed.errors import ChestfedError

if TYPE_CHECKING:
    from rich.console import Console

DEFAULT_PIPELINE = "source_addition_samples.yaml"

app = typer.Typer(
    name="chestfed",
    help="Federated AUC maximization on the chest X-rays of five hospitals.\n\n"
    "Start with `chestfed study`: it runs the source-addition study on synthetic sample hospitals, in minutes, "
    "without a download or a GPU.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
site_app = typer.Typer(help="Describe a new hospital; look at the sites' label files.", no_args_is_help=True)
app.add_typer(site_app, name="site")


def main() -> None:
    """Entry point: an error that a user can mend is printed as one message, without a traceback."""
    try:
        app()
    except ChestfedError as error:
        _console(stderr=True).print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(1)
    except KeyboardInterrupt:
        note = "stopped. What was finished is kept: the same command goes on from there."
        _console(stderr=True).print(note, markup=False)
        sys.exit(130)


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        print(f"chestfed {chestfed.__version__}")
        raise typer.Exit


@app.command()
def study(
    pipeline: Annotated[
        Path | None,
        typer.Argument(help=f"Pipeline YAML. Default: pipelines/{DEFAULT_PIPELINE}.", show_default=False),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder that holds the sites' folders; before data_root and $CHESTFED_DATA."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for runs, tables and the MLflow store.")] = Path("runs"),
    cache: Annotated[Path, typer.Option(help="Folder for decoded images.")] = Path("cache"),
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a key, e.g. --set federated.window=8. Repeatable."),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Say what would run (images, steps, bytes, time); write nothing."),
    ] = False,
    skip_unreadable: Annotated[
        bool, typer.Option("--skip-unreadable", help="Leave unreadable images out, and count them.")
    ] = False,
    tracking_uri: Annotated[
        str | None, typer.Option(help="MLflow tracking URI. Default: a sqlite store in the output folder.")
    ] = None,
    tracking: Annotated[bool, typer.Option(help="Record the study in MLflow.")] = True,
    algorithms: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,C",
            help="Compare algorithms on the same data, weights and number of steps, with the largest K.",
            show_default=False,
        ),
    ] = None,
    windows: Annotated[
        str | None,
        typer.Option(metavar="I,J", help="Compare windows (local steps per round), e.g. 1,32,128.", show_default=False),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(min=1, help="Compare over this many seeds, counted up from `seed`.", show_default=False),
    ] = None,
    add_site: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="SITE.yaml",
            help="Add this hospital behind the pipeline's, so that K=1 to 5 becomes K=1 to 6. Repeatable.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Run the source-addition study: does adding hospitals raise the AUC at one hospital?

    Stage 1 trains on the target hospital; stage 2 trains with the first K hospitals, for each K of the pipeline.
    Stopped at any moment, the same command goes on where it was. The tables are printed, and written to the run
    folder as CSV and JSON. With --algorithms, --windows or --seeds, or with a pipeline that lists them, it is a
    comparison instead: a table, and plots of the mean AUC against rounds, bytes and images.
    """
    from chestfed.commands.study import run_command

    run_command(
        _console(),
        pipeline or bundled("pipelines") / DEFAULT_PIPELINE,
        data,
        out,
        cache,
        set_ or [],
        dry_run=dry_run,
        skip_unreadable=skip_unreadable,
        tracking_uri=tracking_uri,
        tracking=tracking,
        algorithms=[name.strip() for name in algorithms.split(",")] if algorithms else [],
        windows=_numbers(windows),
        seeds=seeds,
        added=add_site or [],
    )


@app.command()
def evaluate(
    model: Annotated[
        str,
        typer.Argument(
            help="Run folder of a study, one of its kN folders, a model file (.safetensors, .pth, .pt, .pt2, .onnx), "
            "or an MLflow URI (runs:/ID, models:/NAME/VERSION)."
        ),
    ],
    on: Annotated[Path, typer.Option("--on", metavar="SITE.yaml", help="The site's YAML.")],
    data: Annotated[
        Path | None, typer.Option(help="Folder that holds the sites' folders.", envvar="CHESTFED_DATA")
    ] = None,
    split: Annotated[
        str, typer.Option(help="train, valid or test; held-out: the patients that the model's own study held out.")
    ] = "valid",
    protocol: Annotated[str, typer.Option(help="frontal-image, all-image, study-max or study-mean.")] = "frontal-image",
    out: Annotated[
        Path | None, typer.Option(help="Folder for the files. Default: one in runs/evaluations.", show_default=False)
    ] = None,
    cache: Annotated[Path, typer.Option(help="Folder for decoded images.")] = Path("cache"),
    k: Annotated[
        int | None, typer.Option(min=1, help="Which K of a study. Default: the largest.", show_default=False)
    ] = None,
    labels_order: Annotated[
        str | None,
        typer.Option(metavar="A,B,C", help="What a program's outputs are, in order; '-' for one to leave out."),
    ] = None,
    model_config: Annotated[
        Path | None, typer.Option(help="YAML that describes a file of weights: model, diseases, preprocess, output.")
    ] = None,
    input_size: Annotated[
        int | None, typer.Option(help="Side of a program's images. Default: what the program says, or 320.")
    ] = None,
    outputs: Annotated[
        str | None, typer.Option(help="logits or probabilities. Default: logits.", show_default=False)
    ] = None,
    delong: Annotated[bool, typer.Option("--delong", help="DeLong's intervals in place of the bootstrap's.")] = False,
    resamples: Annotated[int, typer.Option(min=0, help="Bootstrap resamples; 0: no interval.")] = 2000,
    batch_size: Annotated[int, typer.Option(min=1)] = 64,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    skip_unreadable: Annotated[
        bool, typer.Option("--skip-unreadable", help="Leave unreadable images out, and count them.")
    ] = False,
    tracking_uri: Annotated[
        str | None, typer.Option(help="Where runs:/ and models:/ are looked up. Default: runs/mlflow.db, if there.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a key of the site's YAML, e.g. --set views=all."),
    ] = None,
) -> None:
    """Score a model on a site: AUC with intervals, operating points, calibration, subgroups.

    Example:  chestfed evaluate model.onnx --on site_configs/chexpert.yaml --data /data/hospitals --protocol study-max
    --labels-order cardiomegaly,edema,consolidation,atelectasis,pleural_effusion
    """
    from chestfed.commands.evaluate import run_command

    run_command(
        _console(),
        model,
        on,
        data,
        split,
        protocol,
        out,
        cache,
        set_ or [],
        labels_order=labels_order,
        k=k,
        model_config=model_config,
        input_size=input_size,
        outputs=outputs,
        delong=delong,
        resamples=resamples,
        batch_size=batch_size,
        device=device,
        skip_unreadable=skip_unreadable,
        tracking_uri=tracking_uri,
    )


@app.command()
def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Run folders of studies, kN folders, folders of evaluations, predictions.parquet files."),
    ],
    k: Annotated[
        int | None, typer.Option(min=1, help="Which K of a study. Default: the largest.", show_default=False)
    ] = None,
    group: Annotated[
        bool, typer.Option("--group", help="Take runs that differ in their seed only as one model.")
    ] = False,
    resamples: Annotated[int, typer.Option(min=0, help="Bootstrap resamples; 0: no interval.")] = 2000,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the files. Default: one in runs/paired.", show_default=False)
    ] = None,
) -> None:
    """Compare models on the same test images, each with the first: differences of AUC, intervals, Holm's p values.

    Example:  chestfed compare runs/chestxray8_patients-0123456789ab runs/evaluations/chestxray8-test-frontal-image-ab01
    """
    from chestfed.commands.compare import run_command

    run_command(_console(), runs, k, out, group=group, resamples=resamples)


@app.command()
def report(
    run: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="Run folder of a finished study, as `chestfed study` prints it at its end."),
    ],
    out: Annotated[
        Path | None, typer.Option(help="The page. Default: report.html in the run folder.", show_default=False)
    ] = None,
    figures: Annotated[
        bool, typer.Option("--figures", help="Write every figure as PNG and SVG too, in PAGE-figures/ beside the page.")
    ] = False,
    pictures: Annotated[
        bool,
        typer.Option(
            "--pictures",
            help="Show a few small images per site even of real patients. Mind the licence of the data set.",
        ),
    ] = False,
) -> None:
    """Write one HTML page about a finished study, to read, print or pass on. It needs no network and no other file.

    AUC per K with intervals; K=1 against the larger K, paired, with corrected p values; ROC, precision-recall and
    calibration curves; AUC, bytes and client drift per round; a card per site; configuration, versions and digests.

    Example:  chestfed report runs/synthetic-source_addition_samples-0123456789ab --figures
    """
    from chestfed.commands.report import run_command

    run_command(_console(), run, out, figures=figures, pictures=pictures)


@app.command()
def algorithms(
    name: Annotated[str | None, typer.Argument(help="Describe this one.", show_default=False)] = None,
) -> None:
    """List the algorithms: paper, equations, what is sent, which objectives they take."""
    from chestfed.commands.algorithms import run_command

    run_command(_console(), name)


@app.command()
def samples(
    out: Annotated[Path, typer.Option(help="Folder to write the five hospitals to.")] = Path("synthetic_hospitals"),
    seed: Annotated[int, typer.Option(help="Seed of patients and pictures.")] = 1,
    size: Annotated[str, typer.Option(help="default (some 3,000 images) or tiny (for tests).")] = "default",
    extra: Annotated[
        str | None,
        typer.Option(
            metavar="NAME/SHAPE",
            help="Write one further hospital instead, with a spreadsheet of its own, to try `chestfed site new` on: "
            "st-anne/onehot, or delimited, list, readers, long, dicom.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Write five synthetic sample hospitals in the layouts of the real sets. Phantoms: no patients, no clinic.

    Example:  chestfed samples --extra st-anne/onehot --out hospitals
    """
    from chestfed.commands.samples import extra_command, run_command

    if extra is not None:
        extra_command(_console(), out, extra, seed, size)
        return
    run_command(_console(), out, seed, size)


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

    stats_command(_console(), configs, labels, data, csv)


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
    out: Annotated[Path, typer.Option(help="Folder for NAME.yaml.")] = Path("site_configs"),
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
            help="What a cell means: positive, negative, uncertain or blank. Repeatable.",
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
    encoding: Annotated[str | None, typer.Option(help="utf-8, latin-1 or cp1252.")] = None,
    sheet: Annotated[str | None, typer.Option(help="Sheet of an xlsx. Default: the first.")] = None,
    separator: Annotated[str | None, typer.Option(help="Between the findings in a cell, e.g. '|'.")] = None,
    title: Annotated[str | None, typer.Option(help="Name in tables and plots.")] = None,
) -> None:
    """Describe a new hospital: looks at its images and its table, and writes a YAML that says how each thing was found.

    On a terminal it asks, with its guess as the default. What it cannot tell it says, with the candidates and the flag
    that settles it. Patients' names are neither shown nor written.

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
        separator=separator,
        title=title,
    )
    run_command(_console(), name, images, labels, out, choices, data=data, yes=yes, force=force)


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
        _console(),
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

    raise typer.Exit(run_command(_console(), config, data, against or [], out, cache, workers, pictures=pictures))


@app.command()
def key(
    new: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Make a new key in this file.", show_default=False)
    ] = None,
    names: Annotated[
        Path | None,
        typer.Option(metavar="SITE", help="Write the names of this site's patients under the key.", show_default=False),
    ] = None,
    data: Annotated[
        Path, typer.Option(help="With --names: folder that holds the site's root.", envvar="CHESTFED_DATA")
    ] = Path(),
    out: Annotated[Path, typer.Option(help="With --names: the file to write.")] = Path("names.json"),
    common: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="Count the patients that two such files share.")
    ] = None,
) -> None:
    """Show which key names patients and images in files that leave the site, or make one. The key is not shown.

    Example:  chestfed key --new ~/trial.key;  CHESTFED_KEY_FILE=~/trial.key chestfed evaluate ...

    Shared patients:  chestfed key --names st_anne.yaml --data data --out anne.json, at both hospitals with one key;
    then  chestfed key --common anne.json --common john.json
    """
    from chestfed.commands import key as body

    if sum(option is not None for option in (new, names, common or None)) > 1:
        raise ChestfedError("chestfed key: one of --new, --names and --common at a time")
    if names is not None:
        body.write_names(_console(), names, data, out)
    elif common:
        body.count_common(_console(), common)
    else:
        body.run_command(_console(), new)


@app.command()
def ui(
    out: Annotated[Path, typer.Option(help="The output folder of the studies.")] = Path("runs"),
    port: Annotated[int, typer.Option(help="Port on this machine.")] = 5000,
) -> None:
    """Open the MLflow page of the studies in an output folder."""
    from chestfed.commands.ui import run_command

    run_command(_console(), out, port)


def _numbers(text: str | None) -> list[int]:
    numbers = [part.strip() for part in text.split(",")] if text else []
    if not all(part.isdigit() and int(part) > 0 for part in numbers):
        raise ChestfedError(f"--windows: '{text}' is not a list of numbers of local steps, such as 1,32,128")
    return [int(part) for part in numbers]


def bundled(folder: str) -> Path:
    """`pipelines` or `site_configs`: in the repository, or in the installed package."""
    package = Path(chestfed.__file__).parent
    for candidate in (package.parent / folder, package / "bundled" / folder):
        if candidate.is_dir():
            return candidate
    raise ChestfedError(f"the folder '{folder}' is not with this installation; give the file's path")


def _console(**settings: Any) -> Console:
    from rich.console import Console

    console = Console(**settings)
    # A file or a pipe has no width of its own; tables need one that does not cut them.
    return console if console.is_terminal else Console(width=140, **settings)


if __name__ == "__main__":
    main()
