"""`chestfed study` of a pipeline with `held_out`."""

from __future__ import annotations

import json
import time
from pathlib import Path

from rich.console import Console

from chestfed.commands.progress import Bars
from chestfed.commands.study import hospitals_to_look_at, write_samples
from chestfed.core.checkpoint import write_json
from chestfed.core.provenance import Origin
from chestfed.experiment.device import Machine, prepare_machine
from chestfed.experiment.pipeline import Pipeline
from chestfed.experiment.preflight import check_runs
from chestfed.models import title_of
from chestfed.results import held_out_table
from chestfed.tracking.store import Tracker, local_store
from chestfed.training import held_out, held_out_plan
from chestfed.training.clients import resolve_data_root
from chestfed.training.run import run_study


def run_held_out(
    console: Console,
    pipeline: Pipeline,
    pipeline_file: Path,
    data: Path | None,
    out: Path,
    cache: Path,
    *,
    dry_run: bool,
    skip_unreadable: bool,
    tracking_uri: str | None,
    tracking: bool,
) -> None:
    """Plan or run one study per held-out site, and print the table of all."""
    clients = sum(entry.clients for entry in pipeline.sites)
    others = sorted({clients - entry.clients for entry in pipeline.sites})
    check_runs([pipeline.for_algorithm().model_copy(update={"k": others})])
    data_root = resolve_data_root(pipeline, data)
    machine = prepare_machine(pipeline.runtime)
    if dry_run:
        with hospitals_to_look_at(console, pipeline, data_root) as root:
            rows = held_out.open_rows(pipeline, pipeline_file, root)
            plans = held_out_plan.plan_folds(pipeline, rows, machine)
        console.print(held_out_plan.render(plans, pipeline, machine))
        return
    started = time.monotonic()
    console.print(f"{pipeline.title}\n{pipeline_file} on {machine.name}", highlight=False)
    with Bars(console) as bars:
        if pipeline.samples is not None:
            write_samples(console, data_root, pipeline.samples.seed, pipeline.samples.size, bars)
        sites = held_out.load_images(
            held_out.open_rows(pipeline, pipeline_file, data_root),
            pipeline,
            cache,
            skip_unreadable=skip_unreadable,
            progress=bars.decoding,
        )
    for site in sites:
        if site.quarantined:
            console.print(f"{site.name}: {len(site.quarantined)} unreadable images left out", style="yellow")
    out.mkdir(parents=True, exist_ok=True)
    uri = (tracking_uri or local_store(out)) if tracking else None
    tracker = Tracker(uri, out / "mlflow-artifacts", lambda text: console.print(text, style="yellow"))
    names = held_out.held_out_sites(pipeline, [site.name for site in sites])
    folds = []
    for number, name in enumerate(names, start=1):
        this = held_out.fold(sites, name, pipeline)
        console.print(f"{number}/{len(names)}: {name} held out", highlight=False)
        folds.append(_run_fold(console, this, pipeline_file.stem, machine, out, tracker))
    table = held_out_table.HeldOutTable(
        title=pipeline.title,
        model=title_of(pipeline.model),
        protocol=pipeline.evaluation.protocol,
        origin=Origin.of(site.synthetic for site in sites),
        folds=tuple(folds),
    )
    folder = held_out_table.write(table, out)
    _track(tracker, table, folder, pipeline_file.stem)
    console.print(held_out_table.render(table))
    console.print(f"written to {folder}: held_out.csv, held_out.json", highlight=False, soft_wrap=True)
    for fold in folds:
        page = f"chestfed report {out / fold.folder}"
        console.print(f"{fold.site} as a page, with figures: {page}", highlight=False, soft_wrap=True)
    if tracker.active and tracking_uri is None:
        console.print(f"see it in MLflow: chestfed ui --out {out}", highlight=False, soft_wrap=True)
    console.print(f"took {time.monotonic() - started:.0f} s")


def _run_fold(
    console: Console, this: held_out.Fold, name: str, machine: Machine, out: Path, tracker: Tracker
) -> held_out_table.FoldResult:
    with Bars(console) as bars:
        study = run_study(this.pipeline, f"{name}-{this.site}", this.data, machine, out, tracker, bars)
    seen = held_out.score_seen(this, study.folder, machine)
    (row,) = study.table.rows
    return held_out_table.FoldResult(this.site, study.table.images, study.folder.name, row, seen, this.reasons)


def _track(tracker: Tracker, table: held_out_table.HeldOutTable, folder: Path, name: str) -> None:
    """One run for the table of all folds; the folds' own runs are there already."""
    known, file = None, folder / "mlflow.json"
    if file.exists():
        known = json.loads(file.read_text(encoding="utf-8"))["run"]
    mark = f"{table.origin} " if table.origin.any_synthetic else ""
    run = tracker.start_run(f"{mark}{name}, all held-out sites", table.origin.tags(), known)
    if run:
        write_json(file, {"run": run})
    tracker.log_params(run, {f"run.{fold.site}": fold.folder for fold in table.folds})
    tracker.log_metrics(run, held_out_table.metrics(table), step=0)
    for part in ("held_out.csv", "held_out.json"):
        tracker.log_file(run, folder / part)
    tracker.end_run(run)
