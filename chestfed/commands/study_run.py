"""What `chestfed study` does: plan or run the studies of a pipeline, and print their tables."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from chestfed.commands.console import say
from chestfed.commands.progress import Bars
from chestfed.commands.samples import hospitals_to_look_at, write_samples
from chestfed.core.provenance import Origin
from chestfed.experiment.device import Machine, prepare_machine
from chestfed.experiment.loading import load_pipeline
from chestfed.experiment.pipeline import Pipeline
from chestfed.experiment.preflight import check_runs
from chestfed.experiment.variants import Variant, is_comparison, variants_of
from chestfed.public_datasets.opening import COLLECTIONS
from chestfed.report.run_figures import comparison_curves
from chestfed.results import compare, held_out_table
from chestfed.results.run_folder import RunFolder
from chestfed.results.significance import render as render_significance
from chestfed.results.table import render as render_table
from chestfed.tracking.recording import MlflowRecord
from chestfed.tracking.store import local_store
from chestfed.training.clients import StudyData, load_images
from chestfed.training.plan import (
    Contents,
    contents_of_data,
    contents_of_tables,
    plan_study,
    render,
    render_held_out,
    time_steps,
)
from chestfed.training.public_clients import load_collection
from chestfed.training.reporting import Reporters
from chestfed.training.run import StudyResult, run_study
from chestfed.training.study_tables import StudyTables, open_sites, resolve_data_root, study_tables


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
    """Plan or run a study, or several of a pipeline, and print the table."""
    pipeline = load_pipeline(pipeline_file, overrides, added)
    wanted = pipeline.comparison
    if wanted is not None:
        algorithms, windows, seeds = algorithms or wanted.algorithms, windows or wanted.windows, seeds or wanted.seeds
    variants = variants_of(pipeline, pipeline_file, algorithms, windows, seeds)
    check_runs([variant.pipeline for variant in variants])
    root, machine = _data_root(pipeline, data), prepare_machine(pipeline.runtime)
    if dry_run:
        _show_plan(console, pipeline, variants, _contents(console, pipeline, variants, pipeline_file, root), machine)
        return
    started = time.monotonic()
    say(console, f"{pipeline.title}\n{pipeline_file} on {machine.name}")
    with Bars(console) as bars:
        if pipeline.samples is not None and root is not None:
            write_samples(console, root, pipeline.samples.seed, pipeline.samples.size, bars)
        studies_data = _load(console, pipeline, variants, pipeline_file, root, cache, bars, skip=skip_unreadable)
        for site, problems in studies_data[0].quarantined.items():
            say(console, f"{site}: {len(problems)} unreadable images left out", "yellow")
        out.mkdir(parents=True, exist_ok=True)
        record = MlflowRecord(tracking_uri or local_store(out), out / "mlflow-artifacts")
        reporters = Reporters([bars, record] if tracking else [bars], lambda text: say(console, text, "yellow"))
        studies = []
        for number, (variant, its) in enumerate(zip(variants, studies_data, strict=True), start=1):
            if len(variants) > 1:
                say(console, f"{number}/{len(variants)}: {variant.label}")
            name = pipeline_file.stem + variant.suffix
            studies.append(run_study(variant.pipeline, name, its, machine, out, reporters))
    if pipeline.held_out is not None:
        table, folder = _show_held_out(console, pipeline, studies_data, studies, out)
        reporters.tell(lambda reporter: reporter.held_out_done(pipeline_file.stem, table, folder))
    elif is_comparison(algorithms, windows, seeds):
        _show_comparison(console, pipeline, studies, windows, out)
    else:
        _show_study(console, *studies)
    if record in reporters and tracking_uri is None:
        say(console, f"see it in MLflow: chestfed ui --out {out}")
    console.print(f"took {time.monotonic() - started:.0f} s")


def _data_root(pipeline: Pipeline, data: Path | None) -> Path | None:
    """Where the files are; None for a collection that has none."""
    entry = pipeline.collection
    if entry is not None and not COLLECTIONS[entry.name].needs_root:
        return None
    return resolve_data_root(pipeline, data)


def _load(
    console: Console,
    pipeline: Pipeline,
    variants: Sequence[Variant],
    pipeline_file: Path,
    root: Path | None,
    cache: Path,
    bars: Bars,
    *,
    skip: bool,
) -> list[StudyData]:
    """The images of every variant."""
    if pipeline.collection is not None or root is None:
        return [load_collection(pipeline, root, bars.decoding)] * len(variants)
    tables = _tables(console, pipeline, variants, pipeline_file, root)
    return load_images(tables, pipeline, cache, skip_unreadable=skip, progress=bars.decoding)


def _tables(
    console: Console, pipeline: Pipeline, variants: Sequence[Variant], pipeline_file: Path, root: Path
) -> list[StudyTables]:
    """The rows of every variant, all cut from the same sites."""
    sites = open_sites(pipeline, pipeline_file, root)
    real = [site.name for site in sites if not site.whole.synthetic]
    if real and len(real) < len(sites):  # what comes out is data of patients, though it means nothing
        text = (
            f"note: {', '.join(real)} is not synthetic, other sites are: the results say PARTLY SYNTHETIC. "
            "The models have seen real patients: keep them as you keep other data of patients."
        )
        say(console, text, "yellow")
    return [study_tables(variant.pipeline, sites) for variant in variants]


def _contents(
    console: Console, pipeline: Pipeline, variants: Sequence[Variant], pipeline_file: Path, root: Path | None
) -> list[Contents]:
    """What every variant would read; variants that are compared read the same."""
    if pipeline.collection is not None or root is None:
        return [contents_of_data(load_collection(pipeline, root))]
    shown = variants if pipeline.held_out is not None else variants[:1]
    with hospitals_to_look_at(console, pipeline, root) as place:
        return [contents_of_tables(tables) for tables in _tables(console, pipeline, shown, pipeline_file, place)]


def _show_plan(
    console: Console, pipeline: Pipeline, variants: Sequence[Variant], contents: Sequence[Contents], machine: Machine
) -> None:
    timings = time_steps(variants[0].pipeline, machine)
    plans = [
        plan_study(variant.label, variant.pipeline, found, timings)
        for variant, found in zip(variants, contents, strict=False)
    ]
    if pipeline.held_out is not None:
        console.print(render_held_out(plans, pipeline.title, machine))
        return
    console.print(render(plans[0], machine))
    if len(variants) > 1:
        names = "; ".join(variant.label for variant in variants)
        say(console, f"That is the first of {len(variants)} runs: {names}.")


def _show_study(console: Console, study: StudyResult) -> None:
    console.print(render_table(study.table))
    if study.significance is not None:
        console.print(render_significance(study.significance, "Does it help?"))
    say(console, f"written to {study.folder}/table.csv and table.json")
    say(console, f"as a page, with figures: chestfed report {study.folder}")


def _show_comparison(
    console: Console, pipeline: Pipeline, studies: Sequence[StudyResult], windows: Sequence[int], out: Path
) -> None:
    runs = [RunFolder(study.folder) for study in studies]
    comparison = compare.collect(runs, pipeline.title, pipeline.published, by_window=bool(windows))
    folder = compare.write(comparison, out)
    comparison_curves(comparison).save(folder)
    console.print(compare.render(comparison))
    say(console, f"written to {folder}: results.csv, curves.csv, curves.png")


def _show_held_out(
    console: Console, pipeline: Pipeline, data: Sequence[StudyData], studies: Sequence[StudyResult], out: Path
) -> tuple[held_out_table.HeldOutTable, Path]:
    folds = [
        held_out_table.FoldResult(
            str(its.held_out), study.table.images, study.folder.name, study.table.rows[0], study.seen, its.reasons
        )
        for its, study in zip(data, studies, strict=True)
    ]
    origin = Origin.together(its.origin for its in data)
    protocol = pipeline.evaluation.protocol
    table = held_out_table.HeldOutTable(pipeline.title, pipeline.model.title, protocol, origin, tuple(folds))
    folder = held_out_table.write(table, out)
    console.print(held_out_table.render(table))
    say(console, f"written to {folder}: held_out.csv, held_out.json")
    for study, fold in zip(studies, folds, strict=True):
        page = f"chestfed report {study.folder}"
        say(console, f"{fold.site} as a page, with figures: {page}")
    return table, folder
