"""The engine of torch.distributed: its options, and which of them change results."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from chestfed.engines.declaration import EngineOptions, EngineSpec, processes


class Options(EngineOptions):
    """Options of the engine of torch.distributed."""

    timeout: float = Field(
        1800.0,
        gt=0,
        description="seconds that a rank may take for the local round of a client; then the run ends and the message "
        "names client and rank",
    )
    all_reduce: bool = Field(
        False,
        description="sum the clients' updates on each rank, and these sums by all-reduce, instead of gathering "
        "every update: fewer bytes at rank 0, but the last digits depend on the number of ranks. For algorithms whose "
        "server takes the weighted mean of the updates",
    )
    split_batches: bool = Field(
        False,
        description="split every batch of stage 1 over all ranks instead of training on rank 0 alone: the last digits, "
        "and with batch normalization more, depend on the number of ranks",
    )
    split_rounds: bool = Field(
        False,
        description="split every batch of stage 2 over all ranks, one client after another, instead of training "
        "the clients in parallel: for networks or batches that do not fit on one rank, or more ranks than clients. "
        "Results depend on the number of ranks as with split_batches. For losses that are sums over images",
    )

    def changes(self) -> dict[str, int]:
        return {name: processes() for name in ("all_reduce", "split_batches", "split_rounds") if getattr(self, name)}

    def shares(self, clients: int) -> tuple[float, float]:
        ranks = processes()
        most = clients / ranks if self.split_rounds else -(-clients // ranks)
        return 1 / ranks if self.split_batches else 1.0, most / clients

    def problems(self, run: Any) -> list[str]:
        federated, spec, found = run.federated, run.federated.spec, list[str]()
        if federated.absent != "wait":
            found.append("federated.absent: with torchrun a run ends with the first rank that does; leave it out")
        if self.all_reduce:
            reasons = {
                "algorithm": not (spec.takes_mean or spec.averages)
                and "its server does not take the mean of updates alone",
                "aggregation": federated.aggregation != "mean" and "it takes every update",
                "privacy": federated.privacy is not None and "it shortens every update",
                "engine.split_rounds": self.split_rounds and "no update is on another rank",
            }
            found += [f"engine.all_reduce: not with this {key}: {why}" for key, why in reasons.items() if why]
        if self.split_rounds and not federated.objective_spec.sums_images:
            name = federated.objective_spec.name
            found.append(f"engine.split_rounds: not with the objective {name}: its loss may not be a sum over images")
        for option, key, size in (
            (self.split_batches and "split_batches", "pretrain.batch_size", run.pretrain.batch_size),
            (self.split_rounds and "split_rounds", "images per step of stage 2", federated.images_per_step),
        ):
            if option and size < processes():
                found.append(f"engine.{option}: a batch of {size} ({key}) is not for {processes()} ranks")
        return found


TORCHRUN = EngineSpec(
    "torchrun",
    "clients on the processes that torchrun started, on one machine or several, each with its own GPU",
    "chestfed.training.deployments.ranks:Ranks",
    Options,
)
