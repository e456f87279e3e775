"""Arguments that several commands of a federation take, and the check that Flower is there."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Annotated

import typer

from chestfed.core.bundled import install_command
from chestfed.core.errors import ConfigError

Folder = Annotated[Path, typer.Argument(help="Folder of the federation.", show_default=False)]
HospitalFolder = Annotated[Path, typer.Argument(help="Folder of the hospital.", show_default=False)]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Without TLS, to inspect messages; loopback only. Keys are still needed.")
]


def require_flower() -> None:
    """Raise ConfigError without Flower; switch off its telemetry."""
    if importlib.util.find_spec("flwr") is None:
        how = install_command("flower")
        then = (
            "then run federation/bin/chestfed in place of chestfed" if how.startswith("CHESTFED_VENV") else "then rerun"
        )
        text = "a federation needs Flower, which this environment does not have. Install it, in some minutes"
        raise ConfigError(f"{text}: {how}; {then} (docs/deployment.md)", kind="no Flower")
    os.environ["FLWR_TELEMETRY_ENABLED"], os.environ["FLWR_DISABLE_UPDATE_CHECK"] = "0", "1"
