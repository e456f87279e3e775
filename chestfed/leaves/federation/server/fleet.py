"""The clients at hospitals, as the engine sees them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from chestfed.learning.algorithms.variables import Move, Record
from chestfed.learning.engines.fleet import Fleet
from chestfed.learning.engines.messages.requests import Answer, Request, Work, Worked
from chestfed.learning.engines.messages.shapes import Shapes
from chestfed.learning.engines.messages.wire import pack, unpack
from chestfed.leaves.federation.server.conversation import Conversation, Question, norms_out_of_line
from chestfed.leaves.federation.settings import Faults
from chestfed.studies.training.assemble import Federation


class HospitalFleet(Fleet):
    """The clients at the hospitals of K. Their states stay there; a checkpoint of the server holds none of them."""

    keeps_its_states = True

    def __init__(
        self,
        conversation: Conversation,
        faults: Faults,
        cohort: Federation,
        active: Sequence[str],
        shapes: Sequence[Shapes],
        device: torch.device,
    ) -> None:
        self.names = cohort.names
        self._present = [number for number, name in enumerate(cohort.names) if name in active]
        self._conversation, self._faults = conversation, faults
        self._k, self._shapes, self._device = cohort.k, shapes, device

    @property
    def present(self) -> Sequence[int]:
        return self._present

    def ask(self, requests: Mapping[int, Request[Answer]], enough: int | None = None) -> dict[int, Answer]:
        enough = None if enough is None else min(len(requests), max(enough, self._faults.least_hospitals))
        questions = {self.names[number]: self._question(number, request) for number, request in requests.items()}
        work = {self.names[number]: request for number, request in requests.items() if isinstance(request, Work)}

        def judge(answers: Mapping[str, Any]) -> dict[str, str]:
            sizes = {name: _distance(work[name], answers[name]) for name in work if name in answers}
            return norms_out_of_line(sizes, self._faults.largest_norm)

        answers = self._conversation.ask(questions, judge if work else None, enough)
        return {number: answers[self.names[number]] for number in requests if self.names[number] in answers}

    def exported(self, turns: Sequence[int], name: str) -> dict[str, Tensor]:
        """Nothing: each hospital keeps its own, by turn."""
        return {}

    def restore(self, tensors: Mapping[str, Tensor], name: str, turns: Sequence[int], stage: int, like: object) -> None:
        """Nothing to do: each request names the turn that it continues from."""

    def close(self) -> None:
        """Nothing: the hospitals stay as they are, for a run that is taken up again."""

    def _question(self, number: int, request: Request[Record]) -> Question:
        name, like = self.names[number], self._shapes[number].reply(request)
        return Question(
            "ask", {"k": self._k}, pack(request), lambda parcel: unpack(parcel.packed, like, name, self._device)
        )


def _distance(request: Work[Move], answer: Worked[Move]) -> float:
    """Distance of an update from the round's start, or its norm if that is smaller: some algorithms send changes."""
    update = answer.update.primal
    if update.shape != request.message.primal.shape:
        return float(update.norm())
    return min(float(update.norm()), float((update - request.message.primal).norm()))
