"""What `chestfed federation run` does."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from chestfed.commands.progress import Bars
from chestfed.core.console import say
from chestfed.core.disk import check_folder
from chestfed.experiment.loading import load_pipeline
from chestfed.federation.flower.line import FlowerLine, server_of
from chestfed.federation.settings import read_federation
from chestfed.federation.study import run_over_hospitals
from chestfed.results.significance import render as render_significance
from chestfed.results.table import render as render_table
from chestfed.tracking.recording import MlflowRecord
from chestfed.tracking.store import local_store
from chestfed.training.reporting import Reporters


def run(
    console: Console,
    file: Path,
    overrides: Sequence[str],
    folder: Path,
    out: Path,
    tracking_uri: str | None,
    *,
    tracking: bool,
    insecure: bool,
) -> None:
    """Run the study, and print its table."""
    started, federation = time.monotonic(), read_federation(folder)
    pipeline = load_pipeline(file, overrides)
    pipeline = pipeline.for_algorithm()
    say(console, f"{pipeline.title}\n{file} over the hospitals of {federation.file.federation}")
    with Bars(console) as bars:
        check_folder(out, "--out")
        record = MlflowRecord(tracking_uri or local_store(out), out / "mlflow-artifacts")
        reporters = Reporters([bars, record] if tracking else [bars], lambda text: say(console, text, "yellow"))

        def tell(text: str) -> None:
            say(console, text)

        line = FlowerLine(server_of(federation, insecure=insecure))
        study = run_over_hospitals(pipeline, file.stem, federation, line, out, reporters, tell)
    console.print(render_table(study.table))
    if study.significance is not None:
        console.print(render_significance(study.significance, "Does it help?"))
    say(console, f"written to {study.folder}/table.csv and table.json")
    say(console, f"as a page, with figures: chestfed report {study.folder}")
    say(console, f"took {time.monotonic() - started:.0f} s")
