"""Clients on the ranks of torch.distributed: who hosts whom, and what the ranks do that do not lead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self

from chestfed.core.processes.stopping import ignore_signals
from chestfed.learning.engines.fleet import Fleet
from chestfed.learning.engines.host import Host
from chestfed.learning.engines.messages.shapes import Shapes
from chestfed.learning.engines.ranks.fleet import RankFleet, answer_requests, find_host_rank
from chestfed.learning.engines.ranks.link import Link
from chestfed.learning.engines.torchrun import Options
from chestfed.learning.models import FlatModule
from chestfed.studies.experiment.device import Machine
from chestfed.studies.training.assemble import (
    Deployment,
    Federation,
    form_federation,
    list_members,
    make_member_host,
    starting_network,
)
from chestfed.studies.training.data.experiment import Experiment
from chestfed.studies.training.pretrain import Pretrained


class Ranks(Deployment):
    """The clients on ranks. Stage 1 and scoring of test images are rank 0's; the others wait."""

    def __init__(self, options: Options, machine: Machine) -> None:
        self.link = Link.joined(options.timeout, machine.device)
        self._studies = tuple[Experiment, ...]()
        self.leads = self.link.rank == 0

    def __enter__(self) -> Self:
        if not self.leads:
            ignore_signals()  # a launcher signals all ranks: rank 0 ends at a safe point, and they with it
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        link = self.link
        if error is not None:
            link.fail(error)
        if self.leads:
            for rank in range(1, link.size) if error is None else ():
                link.post(rank, {"do": "end"})
            link.close()
            return
        if error is not None:
            link.wait_for_rank0()
        link.close()
        if error is not None:
            raise SystemExit(1)  # rank 0 tells why

    def begin(self, studies: Sequence[Experiment]) -> None:
        """See `Deployment.begin`: the images are in the cache, the other ranks may read them."""
        self._studies = tuple(studies)
        for rank in range(1, self.link.size):
            self.link.post(rank, {"do": "load"})

    def fleet(
        self, experiment: Experiment, pretrained: Pretrained, federation: Federation, network: FlatModule
    ) -> Fleet:
        """See `Deployment.fleet`: every rank makes hosts for its share of the clients, at the same start."""
        link, study = self.link, self._studies.index(experiment)
        start = [pretrained.weights, pretrained.buffers]
        sizes, kind = [tensor.numel() for tensor in start], experiment.machine.dtype
        for rank in range(1, link.size):
            link.post(rank, {"do": "join", "study": study, "k": federation.k, "sizes": sizes, "dtype": kind})
        works = [(rank, work) for rank in range(1, link.size) for work in link.push(rank, start)]
        for rank, work in works:
            link.finish(work, f"rank {rank}")
        hosts = _hosts(link, experiment, federation, network)
        return RankFleet(link, federation.names, hosts, _shapes(federation, network))

    def serve(self, load: Callable[[], Sequence[Experiment]]) -> None:
        studies: Sequence[Experiment] = ()
        hosts, shapes = dict[int, Host](), list[Shapes]()
        while (note := self.link.fetch(0, None, "rank 0"))["do"] != "end":
            if note["do"] == "load":
                studies = load()
                continue
            if note["do"] == "ask":
                answer_requests(self.link, note, hosts, shapes)
                continue
            for host in hosts.values():
                host.client.close()
            experiment = studies[note["study"]]
            pieces = [(note["dtype"], size) for size in note["sizes"]]
            start = self.link.pull(0, pieces, "rank 0")[note["dtype"]].split(note["sizes"])
            network = starting_network(experiment.pipeline, experiment.machine, Pretrained(start[0], start[1], []))
            federation = form_federation(experiment, note["k"])
            hosts = _hosts(self.link, experiment, federation, network)
            shapes = _shapes(federation, network)


def _shapes(federation: Federation, network: FlatModule) -> list[Shapes]:
    sizes = network.size, network.buffers().numel()
    return [federation.shapes(*sizes, number) for number in range(len(federation.names))]


def _hosts(link: Link, experiment: Experiment, federation: Federation, network: FlatModule) -> dict[int, Host]:
    """The hosts of the clients that this rank has."""
    members = list_members(experiment, federation.k)
    return {
        number: make_member_host(experiment, federation, number, member, network)
        for number, member in enumerate(members)
        if find_host_rank(number, len(members), link.size) == link.rank
    }
