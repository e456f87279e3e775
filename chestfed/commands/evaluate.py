"""`chestfed evaluate`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import cast, get_args

from rich.console import Console

from chestfed.commands.progress import Bars
from chestfed.core.errors import ConfigError
from chestfed.experiment.device import prepare_machine
from chestfed.experiment.pipeline import Runtime
from chestfed.scoring import evaluate
from chestfed.scoring.evaluation_files import write
from chestfed.scoring.evaluation_table import render
from chestfed.scoring.held_out_patients import check_held_out, held_out_patients
from chestfed.scoring.scorers import Declared, Output, open_scorer
from chestfed.sites import load_site_config, open_site
from chestfed.sites.config import SPLITS
from chestfed.tracking.models import local_model
from chestfed.tracking.store import local_store

#: The test images of the model's own study, where it held patients out itself.
HELD_OUT = "held-out"


def run_command(
    console: Console,
    model: str,
    site: Path,
    data: Path | None,
    split: str,
    protocol: str,
    out: Path | None,
    cache: Path,
    overrides: Sequence[str],
    *,
    labels_order: str | None,
    k: int | None,
    model_config: Path | None,
    network: str | None = None,
    input_size: int | None,
    outputs: str | None,
    delong: bool,
    resamples: int,
    batch_size: int,
    device: str,
    skip_unreadable: bool,
    tracking_uri: str | None,
) -> None:
    """Open the model and the site, score, print and write."""
    started = time.monotonic()
    _one_of("--split", split, (*SPLITS, HELD_OUT))
    chosen = evaluate.protocol_named(protocol)
    if outputs is not None:
        _one_of("--output-type", outputs, get_args(Output))
    config = load_site_config(site, overrides)
    if data is None and not config.has_place:
        raise ConfigError("where are the site's files? Give the folder that holds its root with --data DIR")
    runs = Path("runs")
    if tracking_uri is None and (runs / "mlflow.db").is_file():
        tracking_uri = local_store(runs)
    declared = Declared(
        k,
        tuple(name.strip() for name in labels_order.split(",")) if labels_order else None,
        model_config,
        input_size,
        cast(Output | None, outputs),
        network,
    )
    machine = prepare_machine(Runtime(device=device))
    with local_model(model, tracking_uri, k) as path:
        scorer = open_scorer(path, declared, machine, name=None if path == model else model)
    table = open_site(config, data if data is not None else Path())
    held_out = split == HELD_OUT
    if held_out:
        table, split = held_out_patients(model, table), "test"
    with Bars(console) as bars:
        done = evaluate.evaluate_model(
            scorer,
            table,
            split,
            chosen,
            cache,
            machine,
            method="delong" if delong else "bootstrap",
            resamples=resamples,
            batch_size=batch_size,
            skip_unreadable=skip_unreadable,
            check=partial(check_held_out, model) if held_out else None,
            progress=lambda finished, total: bars.decoding(table.name, finished, total),
            scored=bars.scoring,
        )
    folder = out or runs / "evaluations" / done.name
    write(done, folder)
    console.print(render(done))
    files = "evaluation.json, metrics.csv, subgroups.csv, reliability.csv, predictions.parquet"
    console.print(f"written to {folder}: {files}", highlight=False, soft_wrap=True)
    console.print(f"took {time.monotonic() - started:.0f} s")


def _one_of(option: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise ConfigError(f"{option}: '{value}' is none of {', '.join(known)}")
