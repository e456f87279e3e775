"""`chestfed ui`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from rich.console import Console

from chestfed.errors import ChestfedError
from chestfed.experiment_page import page_of
from chestfed.tracking import experiment_id, local_store


def run_command(console: Console, out: Path, port: int) -> None:
    """Serve the MLflow page of an output folder on this machine until it is stopped."""
    if not (out / "mlflow.db").exists():
        raise ChestfedError(f"{out} holds no MLflow store yet: run `chestfed study` first, or give its --out folder")
    address = f"http://127.0.0.1:{port}{page_of(experiment_id(local_store(out)))}"
    console.print(
        f"MLflow on {address}\n(it takes some seconds to start; Ctrl-C stops it)", highlight=False, soft_wrap=True
    )
    artifacts = (out / "mlflow-artifacts").resolve().as_uri()
    command = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", local_store(out)]
    command += ["--default-artifact-root", artifacts, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--workers", "1"]  # one reader: more processes would only start later and take more memory
    result = subprocess.run(command, env={**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true"}, check=False)
    if result.returncode not in (0, -2, 130):
        raise ChestfedError(
            f"MLflow stopped with status {result.returncode}; is port {port} taken? Choose another with --port"
        )
