"""`chestfed study`."""

from __future__ import annotations

import difflib
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from chestfed.commands import options
from chestfed.commands.algorithms import known_algorithms
from chestfed.commands.console import open_console
from chestfed.core.bundled import bundled
from chestfed.core.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from chestfed.commands.progress import Bars
    from chestfed.experiment.pipeline import Pipeline
    from chestfed.experiment.stage_2 import AlgorithmName
    from chestfed.training.clients import SiteTables, StudyData
    from chestfed.training.plan import Contents

DEFAULT_PIPELINE = "source_addition_samples.yaml"

_key = partial(options.optional, rich_help_panel="Change the experiment")
_compared = partial(options.optional, rich_help_panel="Compare algorithms, windows or seeds (one run for each)")

File = Annotated[
    Path | None, typer.Argument(help=f"Pipeline YAML. Default: pipelines/{DEFAULT_PIPELINE}.", show_default=False)
]
Data = Annotated[
    Path | None,
    options.optional(help="Folder that contains the sites' folders. Default: data_root, else $CHESTFED_DATA."),
]
Out = Annotated[Path, typer.Option(help="Folder for runs, tables and the MLflow store.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show what would run (images, steps, bytes, time); write nothing.")
]
Tracking = Annotated[bool, typer.Option(help="Record the study in MLflow.")]
Algorithm = Annotated[
    str | None,
    _key(
        metavar="NAME",
        autocompletion=known_algorithms,
        help="Same as --set federated.algorithm=NAME; `chestfed algorithms` lists them.",
    ),
]
Ks = Annotated[
    str | None, _key(metavar="K,K", help="Numbers of clients to train with, e.g. 1,5. Same as --set 'k=[1,5]'.")
]
Seed = Annotated[int | None, _key(min=0, help="Seed of everything except the samples. Same as --set seed=N.")]
Device = Annotated[str | None, _key(help="auto, cpu, cuda or cuda:N. Same as --set runtime.device=DEVICE.")]
AddSite = Annotated[
    list[Path] | None,
    _key(
        metavar="SITE.yaml",
        help="Append this hospital to the pipeline's sites, so that K=1 to 5 becomes K=1 to 6. Repeatable.",
    ),
]
Set = Annotated[
    list[str] | None,
    _key(
        "--set",
        metavar="KEY=VALUE",
        help="Set any key of the pipeline, e.g. --set federated.window=8 --set pretrain.epochs=1 --set 'k=[1,5]'. It "
        "holds for every algorithm. The keys: docs/study.md. Repeatable.",
    ),
]
Algorithms = Annotated[
    str | None,
    _compared(metavar="A,B,C", help="Algorithms on the same data, weights and number of steps, with the largest K."),
]
Windows = Annotated[str | None, _compared(metavar="I,J", help="Windows (local steps per round), e.g. 1,32,128.")]
Seeds = Annotated[int | None, _compared(min=1, metavar="N", help="This many seeds, counting up from `seed`.")]


def study(
    pipeline: File = None,
    data: Data = None,
    out: Out = Path("runs"),
    cache: options.Cache = Path("cache"),
    dry_run: DryRun = False,
    skip_unreadable: options.SkipUnreadable = False,
    tracking: Tracking = True,
    tracking_uri: options.TrackingUri = None,
    algorithm: Algorithm = None,
    k: Ks = None,
    seed: Seed = None,
    device: Device = None,
    add_site: AddSite = None,
    set_: Set = None,
    algorithms: Algorithms = None,
    windows: Windows = None,
    seeds: Seeds = None,
) -> None:
    """Run the source-addition study: does adding hospitals raise the AUC at one hospital?

    Stage 1 trains on the target hospital; stage 2 trains with the first K hospitals, for each K of the pipeline. The
    tables are printed, and written to the run folder as CSV and JSON. With --algorithms, --windows or --seeds, or with
    a pipeline that lists them, it runs a comparison instead: a table, and plots of the mean AUC against rounds, bytes
    and images. Interrupted at any point, the same command resumes.

    Example:

        chestfed study --algorithms codasca,scaffold --seeds 3 --dry-run
    """
    if algorithm is not None and algorithms is not None:
        raise typer.BadParameter("--algorithm chooses one, --algorithms compares several: use one of them")
    keys = {"federated.algorithm": algorithm, "k": k and f"[{k}]", "seed": seed, "runtime.device": device}
    run_command(
        open_console(),
        pipeline or bundled("pipelines") / DEFAULT_PIPELINE,
        data,
        out,
        cache,
        _overrides(set_ or [], keys),
        dry_run=dry_run,
        skip_unreadable=skip_unreadable,
        tracking_uri=tracking_uri,
        tracking=tracking,
        algorithms=[name.strip() for name in (algorithms or "").split(",") if name.strip()],
        windows=_numbers(windows),
        seeds=seeds,
        added=add_site or [],
    )


def _overrides(assignments: Sequence[str], keys: Mapping[str, object]) -> list[str]:
    """The assignments of --set, and those that options of their own stand for."""
    given = {key: value for key, value in keys.items() if value is not None}
    twice = [key for text in assignments if (key := text.partition("=")[0]) in given]
    if twice:
        raise typer.BadParameter(f"--set {twice[0]} and the option for the same key: use one of them")
    return [*assignments, *(f"{key}={value}" for key, value in given.items())]


def _numbers(text: str | None) -> list[int]:
    numbers = [part.strip() for part in text.split(",")] if text else []
    if not all(part.isdigit() and int(part) > 0 for part in numbers):
        raise typer.BadParameter(f"'{text}' is not a list of numbers of local steps, such as 1,32,128 (--windows)")
    return [int(part) for part in numbers]


def run_command(
    console: Console,
    pipeline_file: Path,
    data: Path | None,
    out: Path,
    cache: Path,
    overrides: Sequence[str],
    *,
    dry_run: bool,
    skip_unreadable: bool,
    tracking_uri: str | None,
    tracking: bool,
    algorithms: Sequence[str] = (),
    windows: Sequence[int] = (),
    seeds: int | None = None,
    added: Sequence[Path] = (),
) -> None:
    """Plan or run a study, or one per algorithm, window and seed, and print its table."""
    from chestfed.commands.progress import Bars
    from chestfed.commands.samples import write_samples
    from chestfed.experiment.device import prepare_machine
    from chestfed.experiment.pipeline import load_pipeline
    from chestfed.experiment.preflight import check_runs
    from chestfed.results import compare
    from chestfed.results.significance import render as render_significance
    from chestfed.results.table import render as render_table
    from chestfed.tracking.store import Tracker, local_store
    from chestfed.training.plan import plan_study
    from chestfed.training.plan import render as render_plan
    from chestfed.training.run import run_study

    pipeline = load_pipeline(pipeline_file, overrides, added)
    if pipeline.held_out is not None:
        from chestfed.commands.held_out import run_held_out

        if algorithms or windows or seeds is not None:
            raise ConfigError(
                "--algorithms, --windows and --seeds compare; a pipeline with held_out runs once per site"
            )
        run_held_out(
            console,
            pipeline,
            pipeline_file,
            data,
            out,
            cache,
            dry_run=dry_run,
            skip_unreadable=skip_unreadable,
            tracking_uri=tracking_uri,
            tracking=tracking,
        )
        return
    wanted = pipeline.comparison
    if wanted is not None:
        algorithms, windows, seeds = algorithms or wanted.algorithms, windows or wanted.windows, seeds or wanted.seeds
    comparing = bool(algorithms or windows or (seeds or 1) > 1)
    variants = _variants(pipeline, algorithms, windows, seeds or 1) if comparing else [pipeline.for_algorithm()]
    check_runs(variants)
    data_root = _data_root(pipeline, data)
    machine = prepare_machine(pipeline.runtime)
    if dry_run:
        contents = _contents(console, pipeline, pipeline_file, data_root)
        console.print(render_plan(plan_study(variants[0], contents, machine), variants[0], machine))
        if len(variants) > 1:
            names = "; ".join(map(_name, variants))
            console.print(f"That is the first of {len(variants)} runs: {names}.", highlight=False)
        return

    started = time.monotonic()
    console.print(f"{pipeline.title}\n{pipeline_file} on {machine.name}", highlight=False)
    with Bars(console) as bars:
        if pipeline.samples is not None and data_root is not None:
            write_samples(console, data_root, pipeline.samples.seed, pipeline.samples.size, bars)
        study_data = _load(console, pipeline, pipeline_file, data_root, cache, bars, skip_unreadable=skip_unreadable)
        for site, problems in study_data.quarantined.items():
            console.print(f"{site}: {len(problems)} unreadable images left out", style="yellow")
        uri = (tracking_uri or local_store(out)) if tracking else None
        out.mkdir(parents=True, exist_ok=True)
        tracker = Tracker(uri, out / "mlflow-artifacts", lambda text: console.print(text, style="yellow"))
        studies = []
        for number, variant in enumerate(variants, start=1):
            if len(variants) > 1:
                console.print(f"{number}/{len(variants)}: {_name(variant)}", highlight=False)
            studies.append(run_study(variant, pipeline_file.stem, study_data, machine, out, tracker, bars))
    if comparing:
        runs = []
        for variant, study in zip(variants, studies, strict=True):
            settings = variant.federated
            label = compare.label_of(settings.algorithm, settings.window, windows)
            runs.append(compare.Run(label, settings.algorithm, settings.window, variant.seed, study))
        comparison = compare.collect(runs, pipeline.title, pipeline.published)
        folder = compare.write(comparison, runs, out)
        console.print(compare.render(comparison))
        console.print(f"written to {folder}: results.csv, curves.csv, curves.png", highlight=False, soft_wrap=True)
    else:
        (study,) = studies
        console.print(render_table(study.table))
        if study.significance is not None:
            console.print(render_significance(study.significance, "Does it help?"))
        console.print(f"written to {study.folder}/table.csv and table.json", highlight=False, soft_wrap=True)
        console.print(f"as a page, with figures: chestfed report {study.folder}", highlight=False, soft_wrap=True)
    if tracker.active and tracking_uri is None:
        console.print(f"see it in MLflow: chestfed ui --out {out}", highlight=False, soft_wrap=True)
    console.print(f"took {time.monotonic() - started:.0f} s")


def _data_root(pipeline: Pipeline, data: Path | None) -> Path | None:
    """Where the files are; None for a collection that has none."""
    from chestfed.public_datasets.opening import COLLECTIONS
    from chestfed.training.clients import resolve_data_root

    entry = pipeline.collection
    if entry is not None and not COLLECTIONS[entry.name].needs_root:
        return None
    return resolve_data_root(pipeline, data)


def _load(
    console: Console,
    pipeline: Pipeline,
    pipeline_file: Path,
    data_root: Path | None,
    cache: Path,
    bars: Bars,
    *,
    skip_unreadable: bool,
) -> StudyData:
    from chestfed.training.clients import load_images, open_tables
    from chestfed.training.public_clients import load_collection

    if pipeline.collection is not None or data_root is None:
        return load_collection(pipeline, data_root, bars.decoding)
    tables = open_tables(pipeline, pipeline_file, data_root)
    _say_if_mixed(console, tables)
    return load_images(tables, pipeline, cache, skip_unreadable=skip_unreadable, progress=bars.decoding)


def _contents(console: Console, pipeline: Pipeline, pipeline_file: Path, data_root: Path | None) -> Contents:
    from chestfed.commands.samples import hospitals_to_look_at
    from chestfed.training.clients import open_tables
    from chestfed.training.plan import contents_of_data, contents_of_tables
    from chestfed.training.public_clients import load_collection

    if pipeline.collection is not None or data_root is None:
        return contents_of_data(load_collection(pipeline, data_root))
    with hospitals_to_look_at(console, pipeline, data_root) as root:
        tables = open_tables(pipeline, pipeline_file, root)
        _say_if_mixed(console, tables)
        return contents_of_tables(tables)


def _say_if_mixed(console: Console, tables: SiteTables) -> None:
    """One real hospital among phantoms: what comes out is data of patients, though it means nothing."""
    real = [table.name for table in tables.whole if not table.synthetic]
    if real and len(real) < len(tables.whole):
        console.print(
            f"note: {', '.join(real)} is not synthetic, other sites are: the results say PARTLY SYNTHETIC. "
            "The models have seen real patients: keep them as you keep other data of patients.",
            style="yellow",
            soft_wrap=True,
        )


def _variants(pipeline: Pipeline, algorithms: Sequence[str], windows: Sequence[int], seeds: int) -> list[Pipeline]:
    """One variant per algorithm, window and seed, the seeds of an algorithm together."""
    from typing import get_args

    from chestfed.experiment.stage_2 import AlgorithmName

    known = get_args(AlgorithmName)
    chosen: list[AlgorithmName] = []
    for name in algorithms or [pipeline.federated.algorithm]:
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean '{close[0]}'?" if close else ""
            raise ConfigError(f"--algorithms: '{name}' is not one of {', '.join(known)}{hint}")
        chosen.append(cast("AlgorithmName", name))
    if len(set(chosen)) < len(chosen):
        raise ConfigError("--algorithms: name each algorithm once")
    try:
        return [
            pipeline.variant(name, pipeline.seed + number, chosen, window)
            for name in chosen
            for window in (windows or (None,))
            for number in range(seeds)
        ]
    except ValueError as error:
        raise ConfigError(f"--algorithms: {error}") from None


def _name(variant: Pipeline) -> str:
    from chestfed.training.plan import whole_rounds

    settings = variant.federated
    name = f"{settings.algorithm}, window {settings.window}, seed {variant.seed}, K={variant.k[-1]}"
    return name + whole_rounds(settings)
