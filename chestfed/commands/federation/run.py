"""What `chestfed federation run` does."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rich.console import Console

from chestfed.commands.progress import Bars
from chestfed.commands.study.run import show_study
from chestfed.core.console import say
from chestfed.core.disk import check_folder
from chestfed.experiment.loading import load_pipeline
from chestfed.federation.flower.line import FlowerLine, server_of
from chestfed.federation.settings import read_federation
from chestfed.federation.study import run_over_hospitals
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
    pipeline = load_pipeline(file, overrides).for_algorithm()
    say(console, f"{pipeline.title}\n{file} over the hospitals of {federation.file.federation}")
    with Bars(console) as bars:
        check_folder(out, "--out")
        record = MlflowRecord(tracking_uri or local_store(out), out / "mlflow-artifacts")
        reporters = Reporters([bars, record] if tracking else [bars], lambda text: say(console, text, "yellow"))
        line = FlowerLine(server_of(federation, insecure=insecure))
        study = run_over_hospitals(pipeline, file.stem, federation, line, out, reporters, partial(say, console))
    show_study(console, study)
    say(console, f"took {time.monotonic() - started:.0f} s")
