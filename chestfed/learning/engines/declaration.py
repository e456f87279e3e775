"""The engines that a study may choose, and the processes that a launcher such as torchrun started with this one."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from chestfed.core.errors import ConfigError
from chestfed.core.plugins import Catalogue, Options


class EngineOptions(Options):
    """Options of an engine."""

    def problems(self, run: Any) -> list[str]:
        """Why the pipeline `run` cannot be trained with these options: key, reason."""
        return []

    def share(self, clients: int) -> float:
        """Share of the steps of so many clients in stage 2 at the busiest process: all."""
        return 1.0


@dataclass(frozen=True)
class EngineSpec:
    """One engine; `deployment` is `module:name` of what makes a `Deployment` from options and machine."""

    name: str
    text: str
    deployment: str
    options: type[EngineOptions] = EngineOptions


ENGINES: Final[Catalogue[EngineSpec]] = Catalogue("engine", "chestfed.engines", EngineSpec, packages=(__package__,))

IN_PROCESS = EngineSpec(
    "in-process", "all clients in one process, one after the other", "chestfed.studies.training.assemble:in_process"
)


def engine_for(chosen: EngineOptions | None) -> EngineOptions:
    """The engine's options; where none is chosen torchrun's if it, or a launcher like it, started this process."""
    name = chosen.name if chosen is not None else "torchrun" if is_launched() else IN_PROCESS.name
    if name != "torchrun":
        refuse_several(f"engine: {name}")
    return chosen if chosen is not None else ENGINES.find(name).options(name=name)


#: Variables that such a launcher sets for each process.
_SET = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def is_launched() -> bool:
    """Whether a launcher started this process."""
    return all(name in os.environ for name in _SET)


def rank() -> int:
    """The number of this process among all; 0 without a launcher."""
    return _number("RANK", 0)


def processes() -> int:
    """Number of processes that the launcher started on all machines."""
    return _number("WORLD_SIZE", 1)


def place_here() -> int:
    """The number of this process among those of this machine."""
    return _number("LOCAL_RANK", 0)


def count_local_processes() -> int:
    """Number of processes that the launcher started on this machine."""
    return _number("LOCAL_WORLD_SIZE", 1)


def leave_reason(text: str) -> None:
    """Have torchrun print why this process ends, at the end of its own report."""
    file = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if file and not Path(file).exists():  # the first reason is the cause
        with suppress(OSError):
            extra = {"py_callstack": text, "timestamp": str(int(time.time()))}
            Path(file).write_text(json.dumps({"message": {"message": text, "extraInfo": extra}}), encoding="utf-8")


def refuse_several(what: str) -> None:
    """Raise ConfigError if the launcher started several processes: this is for one."""
    if processes() > 1:
        raise ConfigError(
            f"{what} is for one process, and a launcher started {os.environ['WORLD_SIZE']}: start it without torchrun",
            kind="one process only",
        )


def _number(name: str, alone: int) -> int:
    try:
        return int(os.environ.get(name, alone)) if is_launched() else alone
    except ValueError:
        raise ConfigError(f"${name}: '{os.environ[name]}' is not a number; who set it?") from None
