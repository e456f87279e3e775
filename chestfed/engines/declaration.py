"""The engines that a study may choose: a name, options, and what deploys its clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from chestfed.core.launcher import launched, refuse_several
from chestfed.core.plugins import Catalogue, Options


@dataclass(frozen=True)
class EngineSpec:
    """One engine; `deployment` is `module:name` of what makes a `Deployment` from options and machine."""

    name: str
    text: str
    deployment: str
    options: type[Options] = Options


ENGINES: Final[Catalogue[EngineSpec]] = Catalogue("engine", "chestfed.engines", EngineSpec)

IN_PROCESS = EngineSpec(
    "in-process", "all clients in one process, one after the other", "chestfed.training.assemble:in_process"
)


def engine_for(chosen: Options | None) -> Options:
    """The engine's options; where none is chosen torchrun's if it, or a launcher like it, started this process.

    Raises
    ------
    ConfigError
        If a launcher started several processes, and the engine is another.
    """
    name = chosen.name if chosen is not None else "torchrun" if launched() else IN_PROCESS.name
    if name != "torchrun":
        refuse_several(f"engine: {name}")
    return chosen if chosen is not None else ENGINES.find(name).options(name=name)
