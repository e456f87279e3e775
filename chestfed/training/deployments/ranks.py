"""Clients on the ranks of torch.distributed: who hosts whom, and what the ranks do that do not lead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import torch

from chestfed.core.errors import ConfigError
from chestfed.core.stopping import ignored
from chestfed.engines.fleet import Fleet
from chestfed.engines.host import Host
from chestfed.engines.shapes import Shapes
from chestfed.engines.torch_distributed import Link, Options, RankFleet, answer_requests, rank_hosting
from chestfed.experiment.device import Machine
from chestfed.experiment.pipeline import Pipeline
from chestfed.models import FlatModule
from chestfed.training.assemble import (
    Cohort,
    Deployment,
    Loaded,
    cohort_of,
    host_of,
    members_of,
    starting_network,
)
from chestfed.training.clients import StudyData
from chestfed.training.pretrain import Pretrained


class Ranks(Deployment):
    """The clients on ranks. Stage 1 and the scoring of test images are rank 0's; the others wait meanwhile."""

    def __init__(self, options: Options, machine: Machine) -> None:
        self._link, self._machine = Link.joined(options.timeout, machine.device), machine
        self._studies: Loaded = ()
        self.leads = self._link.rank == 0

    def __enter__(self) -> Self:
        if not self.leads:
            ignored()  # a launcher sends signals to all ranks: rank 0 ends at a safe point, and the others with it
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        link = self._link
        if error is not None:
            link.fail(error)
        if self.leads:
            for rank in range(1, link.size) if error is None else ():
                link.post(rank, {"do": "end"})
            link.close()
            return
        if error is not None:
            link.await_the_end()
        link.close()
        if error is not None:
            raise SystemExit(1)  # rank 0 tells why

    def begin(self, studies: Loaded) -> None:
        """See `Deployment.begin`: the images are in the cache, the other ranks may read them."""
        self._studies = studies
        for rank in range(1, self._link.size):
            self._link.post(rank, {"do": "load"})

    def fleet(
        self,
        pipeline: Pipeline,
        data: StudyData,
        machine: Machine,
        pretrained: Pretrained,
        cohort: Cohort,
        network: FlatModule,
    ) -> Fleet:
        """See `Deployment.fleet`: every rank makes hosts for its share of the clients, at the same start."""
        link = self._link
        if pipeline.federated.absent != "wait":
            raise ConfigError("federated.absent: with torchrun a run ends with the first rank that does; leave it out")
        (study,) = [number for number, its in enumerate(self._studies) if its[0] is pipeline and its[1] is data]
        start = {"float32": torch.cat([pretrained.weights, pretrained.buffers])}
        sizes = [pretrained.weights.numel(), pretrained.buffers.numel()]
        for rank in range(1, link.size):
            link.post(rank, {"do": "join", "study": study, "k": cohort.k, "sizes": sizes})
        works = [(rank, work) for rank in range(1, link.size) for work in link.push(rank, start)]
        for rank, work in works:
            link.finish(work, f"rank {rank}")
        own = _share(link, pipeline, cohort, data, network, machine)
        shapes = [cohort.shapes(network, number) for number in range(len(cohort.names))]
        return RankFleet(link, cohort.names, own, shapes)

    def serve(self, load: Callable[[], Loaded]) -> None:
        """See `Deployment.serve`."""
        studies: Loaded = ()
        hosts, shapes = dict[int, Host](), list[Shapes]()
        while (note := self._link.fetch(0, None, "rank 0"))["do"] != "end":
            if note["do"] == "load":
                studies = load()
                continue
            if note["do"] == "ask":
                answer_requests(self._link, note, hosts, shapes)
                continue
            for host in hosts.values():
                host.client.close()
            pipeline, data = studies[note["study"]]
            start = self._link.pull(0, {"float32": sum(note["sizes"])}, "rank 0")["float32"].split(note["sizes"])
            network = starting_network(pipeline, self._machine, Pretrained(start[0], start[1], []))
            cohort = cohort_of(pipeline, data, note["k"], self._machine.device)
            hosts = _share(self._link, pipeline, cohort, data, network, self._machine)
            shapes = [cohort.shapes(network, number) for number in range(len(cohort.names))]


def _share(
    link: Link, pipeline: Pipeline, cohort: Cohort, data: StudyData, network: FlatModule, machine: Machine
) -> dict[int, Host]:
    """The hosts of the clients that this rank has."""
    members = members_of(pipeline, data, cohort.k)
    return {
        number: host_of(pipeline, cohort, number, member, network, machine)
        for number, member in enumerate(members)
        if rank_hosting(number, len(members), link.size) == link.rank
    }
