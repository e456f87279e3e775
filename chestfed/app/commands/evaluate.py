"""`chestfed evaluate`."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from chestfed.app.commands import options
from chestfed.app.commands.shell import RARE
from chestfed.core.console import open_console, say, show_answer
from chestfed.results.evaluation.intervals import DEFAULT

if TYPE_CHECKING:
    from rich.console import Console

    from chestfed.studies.experiment.device import Machine
    from chestfed.studies.scoring.evaluate import Evaluation
    from chestfed.studies.scoring.scorers import Declared, Scorer

RUNS = Path("runs")

_foreign = partial(options.optional, rich_help_panel="Models from elsewhere")
_rare = partial(options.optional, rich_help_panel=RARE)

Model = Annotated[
    str,
    typer.Argument(
        callback=options.run_name,
        autocompletion=options.known_runs,
        help="Name or folder of a run, one of its kN folders, a model file (.safetensors, .pth, .ckpt, .onnx), or "
        "an MLflow URI (runs:/ID of one K, models:/NAME/VERSION).",
        show_default=False,
    ),
]
Site = Annotated[
    Path,
    typer.Option(
        "--site",
        callback=options.site_files,
        autocompletion=options.known_sites,
        metavar="SITE",
        help="YAML of the site, or its name, such as chexpert.",
        show_default=False,
    ),
]
Split = Annotated[
    Literal["train", "valid", "test", "held-out"],
    typer.Option(help="Images to score; held-out: of the patients that the model's own study held out."),
]
Protocol = Annotated[
    Literal["frontal-image", "all-image", "study-max", "study-mean"],
    typer.Option(help="Score frontal images, all images, or studies (maximum or mean over a study's images)."),
]
Out = Annotated[Path | None, options.optional(help="Folder for the results. Default: one in runs/evaluations.")]
OutputNames = Annotated[
    str | None, _foreign(metavar="A,B,C", help="Diseases of the model's outputs, in order; '-' skips one.")
]
OutputType = Annotated[
    Literal["logits", "probabilities", "scores"] | None,
    _foreign(help="Type of the outputs; scores: a ranking only, without calibration. Default: logits."),
]
ModelConfig = Annotated[
    Path | None,
    _foreign(
        exists=True,
        dir_okay=False,
        metavar="MODEL.yaml",
        help="YAML that describes a model: model, diseases, preprocess, input, output.",
    ),
]
Network = Annotated[
    str | None, _foreign(metavar="NAME", help="Network for the weights, instead of the one that the file names.")
]
InputSize = Annotated[
    int | None, _foreign(min=1, help="Side of the input images in pixels. Default: as in the model file, or 320.")
]
BatchNorm = Annotated[
    Literal["own", "stored"] | None,
    _rare(
        help="Batch-norm statistics to score with: of the site's own training images, or as stored in the model file. "
        "Default: as the model's study scored the site; stored for a model without a study."
    ),
]
BatchSize = Annotated[int, typer.Option(min=1, rich_help_panel=RARE, help="Images per forward pass.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
Set = Annotated[
    list[str] | None,
    _rare("--set", metavar="KEY=VALUE", help="Set a key of the site's YAML, e.g. --set views=all. Repeatable."),
]


def evaluate(
    model: Model,
    site: Site,
    data: options.Data = None,
    split: Split = "valid",
    protocol: Protocol = "frontal-image",
    out: Out = None,
    cache: options.Cache = options.AUTO,
    k: options.K = None,
    output_names: OutputNames = None,
    output_type: OutputType = None,
    model_config: ModelConfig = None,
    network: Network = None,
    input_size: InputSize = None,
    threshold: options.Thresholds = None,
    interval: options.Interval = None,
    resamples: options.Resamples = 2000,
    batch_norm: BatchNorm = None,
    batch_size: BatchSize = 64,
    device: Device = "auto",
    skip_unreadable: options.SkipUnscorable = False,
    allow_trained: options.AllowTrained = False,
    tracking_uri: options.TrackingUri = None,
    set_: Set = None,
) -> None:
    r"""Score a model on a site: AUC with intervals, operating points, calibration, subgroups.

    The model is a run of `chestfed study` or your own: an ONNX file, or weights with a YAML that describes
    the network. The results are written to a folder as JSON, CSV and Parquet.

    Example:

        chestfed evaluate model.onnx --site site_configs/chexpert.yaml --data /data/hospitals \
            --output-names cardiomegaly,edema,consolidation,atelectasis,pleural_effusion
    """
    options.refuse_no_model(model)
    started, console = time.monotonic(), open_console()
    with options.quick_imports():
        from chestfed.app.commands.progress import Bars
        from chestfed.core.disk import making_folder
        from chestfed.data.sites import load_site_config, open_site
        from chestfed.results.evaluation.intervals.methods import Intervals
        from chestfed.studies.experiment.device import machine_with
        from chestfed.studies.scoring.evaluate import evaluate_split
        from chestfed.studies.scoring.scorers import Declared

    order = None if output_names is None else tuple(name.strip() for name in output_names.split(","))
    config = load_site_config(site, set_ or [])
    root, machine = options.data_root(data, [config]), machine_with(device)
    declared = Declared(k, order, model_config, input_size, output_type, network)
    scorer = _open_scorer(model, declared, machine, tracking_uri, config.site)
    table = open_site(config, root)
    settings: dict[str, Any] = {"how": Intervals(interval or DEFAULT, resamples), "batch_size": batch_size}
    settings |= {"thresholds": threshold or (), "skip_unreadable": skip_unreadable, "batch_norm": batch_norm}
    settings |= {"allow_trained": allow_trained}
    with making_folder(out or RUNS / "evaluations", "--out"):
        with Bars(console) as bars:
            settings |= {"progress": partial(bars.decoding, table.name), "scored": bars.scoring}
            done = evaluate_split(model, scorer, table, split, protocol, cache, machine, **settings)
        _show(console, done, out or RUNS / "evaluations" / done.name, time.monotonic() - started)


def _open_scorer(model: str, declared: Declared, machine: Machine, tracking_uri: str | None, site: str) -> Scorer:
    from chestfed.reports.tracking.store import local_model, local_store
    from chestfed.studies.scoring.scorers import open_scorer

    if tracking_uri is None and (RUNS / "mlflow.db").is_file():
        tracking_uri = local_store(RUNS)
    with local_model(model, tracking_uri) as path:
        return open_scorer(path, declared, machine, None if path == model else model, site)


def _show(console: Console, done: Evaluation, folder: Path, seconds: float) -> None:
    from chestfed.studies.scoring.evaluation_output import render, write

    write(done, folder)
    console.print(render(done))
    more = "" if done.decisions is None else "confusion.csv, decision_curve.csv, "
    files = f"evaluation.json, metrics.csv, subgroups.csv, reliability.csv, {more}predictions.parquet, methods.md"
    say(console, f"written to {folder}: {files}\ntook {seconds:.0f} s")
    say(console, "an evaluation has no page: metrics.csv has every number, methods.md the statistics for a paper")
    show_answer(console, done.answer, folder=str(folder), **done.numbers)
