"""Executors that a leaf brings: where the studies of a command are trained, other than on this machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from chestfed.core.plugins import Catalogue, Options


@dataclass(frozen=True)
class ExecutorSpec:
    """Declaration of an executor: `make(file, at_once, tracking_uri)` is a `chestfed.studies.running.Executor`."""

    name: str
    make: Callable[..., Any]
    options: type[Options] = Options


EXECUTORS: Final[Catalogue[ExecutorSpec]] = Catalogue("executor", "chestfed.executors", ExecutorSpec, packages=())
