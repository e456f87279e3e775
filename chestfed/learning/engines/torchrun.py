"""The engine of torch.distributed and its options."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from chestfed.learning.engines.declaration import EngineOptions, EngineSpec, processes


class Options(EngineOptions):
    """Options of the engine of torch.distributed."""

    timeout: float = Field(
        1800.0,
        gt=0,
        description="seconds that a rank may take for the local round of a client; then the run ends and the message "
        "names client and rank",
    )

    def share(self, clients: int) -> float:
        return -(-clients // processes()) / clients

    def problems(self, run: Any) -> list[str]:
        if run.federated.absent == "wait":
            return []
        return ["federated.absent: with torchrun a run ends with the first rank that does; leave it out"]


TORCHRUN = EngineSpec(
    "torchrun",
    "clients on the processes that torchrun started, on one machine or several, each with its own GPU",
    "chestfed.studies.training.deployments.ranks:Ranks",
    Options,
)
