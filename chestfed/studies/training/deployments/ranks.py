"""Clients on the ranks of torch.distributed: who hosts whom, and what the ranks do that do not lead."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

from torch import Tensor

from chestfed.core.errors import ChestfedError, ChestfedWarning, TrainingError
from chestfed.core.processes.stopping import ignore_signals
from chestfed.learning.engines.declaration import leave_reason, rank
from chestfed.learning.engines.fleet import Fleet
from chestfed.learning.engines.host import Host
from chestfed.learning.engines.messages.shapes import Shapes
from chestfed.learning.engines.messages.wire import Piece, count_pieces
from chestfed.learning.engines.parts import Parts
from chestfed.learning.engines.ranks.fleet import RankFleet, answer_requests, carry_messages
from chestfed.learning.engines.ranks.link import Link
from chestfed.learning.engines.ranks.parts import find_team, make_parts
from chestfed.learning.engines.torchrun import Options
from chestfed.learning.models import FlatModule
from chestfed.studies.experiment.device import Machine
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.training.assemble import (
    Deployment,
    Federation,
    form_federation,
    list_members,
    make_member_host,
    starting_network,
)
from chestfed.studies.training.data.clients import Outputs, TestSet
from chestfed.studies.training.data.experiment import Experiment
from chestfed.studies.training.deployments.agreement import agree, describe_data, describe_studies
from chestfed.studies.training.deployments.scores import gather_scores, list_tests, score_share, send_scores
from chestfed.studies.training.pretrain import Pretrained, StageOne, assist, new_network, pretrain
from chestfed.studies.training.reporting import warn


class Ranks(Deployment):
    """The clients on ranks, which share the batches of test images, and the parts of batches in stage 1.

    Of more ranks than clients each client has several, if batches have parts.
    """

    def __init__(self, options: Options, machine: Machine) -> None:
        self.link = Link.joined(options.timeout, machine.device, warn if not rank() else _warn_on_stderr)
        self._machine, self._studies = machine, tuple[Experiment, ...]()
        self.leads = self.link.rank == 0

    def __enter__(self) -> Self:
        if not self.leads:
            ignore_signals()  # a launcher signals all ranks: rank 0 ends at a safe point, and they with it
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        link = self.link
        if error is not None:
            leave_reason(str(error) if isinstance(error, ChestfedError) else type(error).__name__)
            link.fail(error)
        if self.leads:
            if error is None:
                with suppress(TrainingError):  # of a rank that has ended: all is done
                    link.announce({"do": "end"})
            link.close()
            return
        if error is not None:
            link.wait_for_rank0()
        link.close()
        if error is not None:
            raise SystemExit(1)  # rank 0 tells why

    def agree(self, pipelines: Mapping[str, Pipeline]) -> None:
        """See `Deployment.agree`: other settings or code are refused, another processor is reported."""
        mine = describe_studies(pipelines, self._machine)
        for text in agree(self.link, mine, timedelta(seconds=self.link.timeout)):
            warn(f"note: {text}. The last digits may not be those of one process")

    def begin(self, studies: Sequence[Experiment]) -> None:
        """See `Deployment.begin`: the images are in the cache; the other ranks read them and must find the same."""
        self._studies = tuple(studies)
        self.link.announce({"do": "load"})
        agree(self.link, describe_data(studies))

    def fleet(
        self, experiment: Experiment, pretrained: Pretrained, federation: Federation, network: FlatModule
    ) -> Fleet:
        """See `Deployment.fleet`: every rank makes hosts for its share of the clients, at the same start."""
        link, study = self.link, self._studies.index(experiment)
        start = [pretrained.weights, pretrained.buffers]
        link.announce({"do": "join", "study": study, "k": federation.k, "pieces": count_pieces(start)})
        for work in link.spread(start):
            link.finish(work, "the other ranks")
        hosts, teams = _hosts(link, experiment, federation, network)
        return RankFleet(link, federation.names, hosts, _shapes(federation, network), teams)

    def pretrain(self, experiment: Experiment, folder: Path, report: Callable[[int, float], None]) -> Pretrained:
        """See `Deployment.pretrain`: as many ranks as a batch has parts take the same steps."""
        link, study = self.link, self._studies.index(experiment)
        if experiment.pipeline.runtime.batch_parts == 1:
            return super().pretrain(experiment, folder, report)
        link.announce({"do": "team", "study": study})
        parts = _share_stage_1(link, experiment)

        def begin(stage: StageOne) -> None:
            tensors = stage.tensors()
            about = [(name, list(tensor.shape)) for name, tensor in tensors.items()]
            pieces = count_pieces(tensors.values())
            link.announce({"do": "pretrain", "study": study, "done": stage.done, "tensors": about, "pieces": pieces})
            for work in link.spread(tensors.values()):
                link.finish(work, "the other ranks")

        return pretrain(experiment, folder, report, parts, begin)

    def score(
        self, experiment: Experiment, network: FlatModule, parameters: Tensor, buffers: Tensor, test: TestSet
    ) -> Outputs:
        """See `Deployment.score`: every rank scores its share of the batches, which are those of one process."""
        link, point = self.link, [parameters[: network.size], buffers]
        place = next(place for place, other in enumerate(list_tests(experiment)) if other is test)
        numbers = {"study": self._studies.index(experiment), "test": place}
        link.announce({"do": "score", **numbers, "pieces": count_pieces(point)})
        works = link.spread(point)
        logits = score_share(link, experiment, network, parameters, buffers, test)
        for work in works:
            link.finish(work, "the other ranks")
        return gather_scores(link, experiment, logits, buffers if test.parts else network.buffers(), test)

    def serve(self, load: Callable[[], Sequence[Experiment]]) -> None:
        work = _Follower(self.link)
        while (note := self.link.hear())["do"] != "end":
            if note["do"] == "load":
                work.studies = load()
                agree(self.link, describe_data(work.studies))
            else:
                work.carry_out(note)


def _warn_on_stderr(text: str) -> None:
    """Warn from a rank whose reporters print nothing."""
    warnings.warn(text, ChestfedWarning, stacklevel=2)


class _Follower:
    """A rank that does what rank 0 asks: its clients with their hosts, and the network that it scores with."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.studies: Sequence[Experiment] = ()
        self._hosts, self._shapes, self._teams = dict[int, Host](), list[Shapes](), list[list[int]]()
        self._scoring: tuple[Experiment, FlatModule] | None = None

    def carry_out(self, note: Mapping[str, Any]) -> None:
        link = self._link
        if note["do"] == "ask":
            answer_requests(link, note, self._hosts, self._shapes, self._teams)
            return
        if note["do"] == "carry":
            carry_messages(link, note, self._hosts, self._shapes, self._teams)
            return
        experiment = self.studies[note["study"]]
        match note["do"]:
            case "team":
                _share_stage_1(link, experiment)
            case "pretrain":
                _assist(link, experiment, note)
            case "score":
                weights, buffers = _take_point(link, note["pieces"])
                network, test = self._make_scoring(experiment, weights), list_tests(experiment)[note["test"]]
                send_scores(link, score_share(link, experiment, network, weights, buffers, test))
            case "join":
                for host in self._hosts.values():
                    host.client.close()
                weights, buffers = _take_point(link, note["pieces"])
                network = starting_network(experiment.pipeline, experiment.machine, Pretrained(weights, buffers, []))
                federation = form_federation(experiment, note["k"])
                self._hosts, self._teams = _hosts(link, experiment, federation, network)
                self._shapes = _shapes(federation, network)

    def _make_scoring(self, experiment: Experiment, weights: Tensor) -> FlatModule:
        """A network of the study, for weights of this type; the last one is kept."""
        if self._scoring is None or self._scoring[0] is not experiment or self._scoring[1].grad.dtype != weights.dtype:
            kind = str(weights.dtype).removeprefix("torch.")
            machine = replace(experiment.machine, dtype=kind, compile=False)
            self._scoring = experiment, new_network(experiment.pipeline, machine)
        return self._scoring[1]


def _take_point(link: Link, pieces: Sequence[Piece]) -> tuple[Tensor, Tensor]:
    """The weights and buffers that rank 0 spreads."""
    (kind, size), _ = pieces
    weights, buffers = link.take(0, pieces, "rank 0")[kind].split([size, sum(length for _, length in pieces) - size])
    return weights, buffers


def _shapes(federation: Federation, network: FlatModule) -> list[Shapes]:
    sizes = network.size, network.buffers().numel()
    return [federation.shapes(*sizes, number) for number in range(len(federation.names))]


def _hosts(
    link: Link, experiment: Experiment, federation: Federation, network: FlatModule
) -> tuple[dict[int, Host], list[list[int]]]:
    """The hosts of the clients that this rank computes, alone or with others, and the ranks of every client."""
    members, runtime = list_members(experiment, federation.k), experiment.pipeline.runtime
    teams = [find_team(number, len(members), link.size, runtime.batch_parts) for number in range(len(members))]
    hosts = {}
    for number, member in enumerate(members):
        parts = make_parts(runtime.batch_parts, link, teams[number], synchronized=runtime.sync_batch_norm)
        if parts is not None:
            hosts[number] = make_member_host(experiment, federation, number, member, network, parts)
    return hosts, teams


def _share_stage_1(link: Link, experiment: Experiment) -> Parts | None:
    """Parts of the batches of stage 1 that this rank computes; None if there are more ranks than parts."""
    runtime = experiment.pipeline.runtime
    ranks = range(min(link.size, runtime.batch_parts))
    return make_parts(runtime.batch_parts, link, ranks, synchronized=runtime.sync_batch_norm)


def _assist(link: Link, experiment: Experiment, note: Mapping[str, Any]) -> None:
    """Compute this rank's parts of stage 1, if it has any."""
    runs = link.take(0, note["pieces"], "rank 0")
    tensors, places = dict[str, Tensor](), dict.fromkeys(runs, 0)
    for (name, shape), (kind, length) in zip(note["tensors"], note["pieces"], strict=True):
        tensors[name] = runs[kind][places[kind] : places[kind] + length].clone().view(shape)
        places[kind] += length
    if (parts := _share_stage_1(link, experiment)) is not None:
        assist(experiment, parts, tensors, note["done"])
