"""A server that asks one hospital whatever it likes, in this process; every parcel passes as text and bytes."""

from __future__ import annotations

import json
from typing import Any

import torch
from torch import Tensor

from chestfed.learning.algorithms.variables import Point
from chestfed.learning.engines.messages.requests import Request, Start, Work
from chestfed.learning.engines.messages.wire import Packed, pack, unpack
from chestfed.leaves.federation import handshake
from chestfed.leaves.federation.hospital.log import open_log
from chestfed.leaves.federation.hospital.participant import Participant
from chestfed.leaves.federation.parcels import Parcel
from chestfed.leaves.federation.records import Beginning, Counts, Network
from chestfed.leaves.federation.settings import Hospital
from chestfed.studies.experiment.device import prepare_machine
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.experiment.resolved import shareable
from chestfed.studies.training.pretrain import new_network
from tests.leaves.federation.straight_line import as_sent


class FreeServer:
    """Knows the pipeline, and its first weights. `shown` is what the hospital shows, `log` the logger of its file."""

    def __init__(self, hospital: Hospital, pipeline: Pipeline) -> None:
        self.hospital, self.pipeline, self.shown = hospital, pipeline, list[str]()
        self.study = handshake.study_digest(pipeline)
        self.network = new_network(pipeline, prepare_machine(pipeline.runtime))
        self.start_hospital()

    def start_hospital(self) -> None:
        """Start the hospital anew."""
        self.log = open_log(self.hospital)
        self.participant = Participant(self.hospital, self.log.info, self.shown.append)

    def ask(self, kind: str, packed: Packed | None = None, **values: Any) -> Parcel:
        """The reply to a question."""
        about = {"nonce": "n", "kind": kind, "to": self.hospital.file.hospital, "study": self.study, **values}
        return as_sent(self.participant(as_sent(Parcel(about, packed or Packed(b"", {})))))

    def refusal(self, kind: str, packed: Packed | None = None, **values: Any) -> str:
        """Why a question is refused; empty if it is answered."""
        return str(self.ask(kind, packed, **values).values.get("refused", ""))

    def greet(self) -> str:
        """A greeting with this pipeline."""
        return self.refusal("greet", passport=handshake.passport(self.pipeline), pipeline=shareable(self.pipeline))

    def begin(self, *members: str, weights: Tensor | None = None) -> str:
        """Greet, open and begin stage 2 of K=3 with these members, of whom all others are invented."""
        if refused := self.greet():
            return refused
        opened = self.ask("open")
        if "refused" in opened.values:
            return str(opened.values["refused"])
        counts, own = unpack(opened.packed, Counts.like(len(self.pipeline.tasks)), "it"), self.hospital.file.hospital
        ratios, labeled = (torch.full((len(members), len(self.pipeline.tasks)), 0.5).double() for _ in range(2))
        ratios[members.index(own)], labeled[members.index(own)] = counts.ratios, counts.labeled
        rows = [[name, opened.values["rows"] if name == own else 50] for name in members]
        parameters = self.network.parameters() if weights is None else weights
        refused = self.refusal(
            "begin", pack(Beginning(ratios, labeled, parameters, self.network.buffers())), k=3, rows=rows
        )
        return refused or self.request(Start(0, 0, Point(parameters, torch.zeros(0))))

    def request(self, request: Request[Any]) -> str:
        """A request to the hospital's client."""
        return self.refusal("ask", pack(request), k=3)

    def work(self, weights: Tensor | None = None, steps: int = 0) -> str:
        """The first round, with weights of the server's choice."""
        point = Point(self.network.parameters() if weights is None else weights, torch.zeros(0))
        return self.request(Work(1, point, self.network.buffers(), steps))

    def score(self, weights: Tensor) -> str:
        """A model on the hospital's own test images."""
        return self.refusal("score", pack(Network(weights, self.network.buffers())), test="own")

    def overflow(self) -> Tensor:
        """Weights with which a step, and every output, is not finite."""
        last, weights = list(self.network.module.parameters())[-2:], self.network.parameters().clone()
        weights[-sum(part.numel() for part in last) :] = 3e38
        return weights

    @property
    def usage(self) -> dict[str, Any]:
        """What the hospital has counted of the study."""
        usage: dict[str, Any] = json.loads((self.hospital.path("state") / self.study / "usage.json").read_text())
        return usage
