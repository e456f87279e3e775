"""The command line: arguments in, printed tables out. Heavy imports wait until a command runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from chestfed._version import __version__
from chestfed.cli_site import site_app
from chestfed.commands.console import open_console
from chestfed.core.errors import ChestfedError

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
app.add_typer(site_app, name="site")


def main() -> None:
    """Entry point: an error that a user can mend is printed as one message, without a traceback."""
    try:
        app()
    except ChestfedError as error:
        open_console(stderr=True).print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(1)
    except KeyboardInterrupt:
        note = "stopped. What was finished is kept: the same command goes on from there."
        open_console(stderr=True).print(note, markup=False)
        sys.exit(130)


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        print(f"chestfed {__version__}")
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
        open_console(),
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
        typer.Option("--output-names", metavar="A,B,C", help="What a model's outputs are, in order; '-' ignores one."),
    ] = None,
    model_config: Annotated[
        Path | None, typer.Option(help="YAML that describes a model: model, diseases, preprocess, input, output.")
    ] = None,
    network: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Network to build for the weights, in place of the one the file names."),
    ] = None,
    input_size: Annotated[
        int | None, typer.Option(help="Side of a program's images. Default: what the program says, or 320.")
    ] = None,
    outputs: Annotated[
        str | None,
        typer.Option(
            "--output-type",
            help="logits, probabilities, or scores (an order, no calibration). Default: logits.",
            show_default=False,
        ),
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
    --output-names cardiomegaly,edema,consolidation,atelectasis,pleural_effusion
    """
    from chestfed.commands.evaluate import run_command

    run_command(
        open_console(),
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
        network=network,
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

    run_command(open_console(), runs, k, out, group=group, resamples=resamples)


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

    run_command(open_console(), run, out, figures=figures, pictures=pictures)


@app.command()
def algorithms(
    name: Annotated[str | None, typer.Argument(help="Describe this one.", show_default=False)] = None,
) -> None:
    """List the algorithms: paper, equations, what is sent, which objectives they take."""
    from chestfed.commands.algorithms import run_command

    run_command(open_console(), name)


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
        extra_command(open_console(), out, extra, seed, size)
        return
    run_command(open_console(), out, seed, size)


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
        body.write_names(open_console(), names, data, out)
    elif common:
        body.count_common(open_console(), common)
    else:
        body.run_command(open_console(), new)


@app.command()
def ui(
    out: Annotated[Path, typer.Option(help="The output folder of the studies.")] = Path("runs"),
    port: Annotated[int, typer.Option(help="Port on this machine.")] = 5000,
) -> None:
    """Open the MLflow page of the studies in an output folder."""
    from chestfed.commands.ui import run_command

    run_command(open_console(), out, port)


def _numbers(text: str | None) -> list[int]:
    numbers = [part.strip() for part in text.split(",")] if text else []
    if not all(part.isdigit() and int(part) > 0 for part in numbers):
        raise ChestfedError(f"--windows: '{text}' is not a list of numbers of local steps, such as 1,32,128")
    return [int(part) for part in numbers]


def bundled(folder: str) -> Path:
    """`pipelines` or `site_configs`: in the repository, or in the installed package."""
    package = Path(__file__).parent
    for candidate in (package.parent / folder, package / "bundled" / folder):
        if candidate.is_dir():
            return candidate
    raise ChestfedError(f"the folder '{folder}' is not with this installation; give the file's path")


if __name__ == "__main__":
    main()
