"""`chestfed study`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from chestfed.commands.progress import Bars
from chestfed.errors import ChestfedError
from chestfed.study.data import load_images, open_tables, resolve_data_root
from chestfed.study.machine import prepare_machine
from chestfed.study.pipeline import Pipeline, load_pipeline
from chestfed.study.plan import plan_study
from chestfed.study.plan import render as render_plan
from chestfed.study.run import run_study
from chestfed.study.table import render as render_table
from chestfed.tracking import Tracker, local_store


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
) -> None:
    """Plan or run a study, and print its table."""
    pipeline = load_pipeline(pipeline_file, overrides)
    data_root = resolve_data_root(pipeline, data)
    machine = prepare_machine(pipeline.runtime)
    if dry_run:
        _require_samples(pipeline, data_root)
        tables = open_tables(pipeline, pipeline_file, data_root)
        console.print(render_plan(plan_study(pipeline, tables, machine), pipeline, tables, machine))
        return

    started = time.monotonic()
    console.print(f"{pipeline.title}\n{pipeline_file} on {machine.name}", highlight=False)
    with Bars(console) as bars:
        if pipeline.samples is not None:
            write_samples(console, data_root, pipeline.samples.seed, pipeline.samples.size, bars)
        tables = open_tables(pipeline, pipeline_file, data_root)
        study_data = load_images(tables, pipeline, cache, skip_unreadable=skip_unreadable, progress=bars.decoding)
        for site, problems in study_data.quarantined.items():
            console.print(f"{site}: {len(problems)} unreadable images left out", style="yellow")
        uri = (tracking_uri or local_store(out)) if tracking else None
        out.mkdir(parents=True, exist_ok=True)
        tracker = Tracker(uri, out / "mlflow-artifacts", lambda text: console.print(text, style="yellow"))
        study = run_study(pipeline, pipeline_file.stem, study_data, machine, out, tracker, bars)
    console.print(render_table(study.table))
    console.print(f"written to {study.folder}/table.csv and table.json", highlight=False, soft_wrap=True)
    if tracker.active and tracking_uri is None:
        console.print(f"see it in MLflow: chestfed ui --out {out}", highlight=False, soft_wrap=True)
    console.print(f"took {time.monotonic() - started:.0f} s")


def write_samples(console: Console, folder: Path, seed: int, size: str, bars: Bars) -> None:
    """Write the synthetic hospitals unless they are there."""
    from chestfed.samples import is_complete, write_hospitals

    if is_complete(folder, seed=seed, size=size):
        return
    console.print(f"writing five SYNTHETIC hospitals (phantoms, no patients) to {folder}", highlight=False)
    write_hospitals(folder, seed=seed, size=size, progress=bars.drawing)


def _require_samples(pipeline: Pipeline, data_root: Path) -> None:
    from chestfed.samples import is_complete

    wanted = pipeline.samples
    if wanted is not None and not is_complete(data_root, seed=wanted.seed, size=wanted.size):
        raise ChestfedError(
            f"the synthetic hospitals are not in {data_root} yet, and a dry run writes nothing: "
            f"write them first with `chestfed samples --out {data_root} --seed {wanted.seed} --size {wanted.size}`"
        )
