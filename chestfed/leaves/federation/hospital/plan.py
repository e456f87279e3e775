"""Requests that a pipeline that was agreed upon lets the server make of this hospital, one by one.

The server follows a schedule that the pipeline describes; here each request is compared with it, whoever sends it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, Literal

from chestfed.learning.algorithms.variables import Finishing, Personal, Preparing, Restarting
from chestfed.learning.engines.messages import requests
from chestfed.learning.engines.messages.requests import Request
from chestfed.learning.engines.server import STATISTICS_BATCHES
from chestfed.leaves.federation import handshake
from chestfed.leaves.federation.parcels import Refused
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.experiment.rules import build_layout
from chestfed.studies.experiment.stage_2 import Federated
from chestfed.studies.training.assemble import Federation

Role = Literal["target", "member", "scored"]

#: Requests to the hospital with the study's test images, to one that trains, and to one whose held-out patients alone
#: are scored, because it is beyond the largest K.
REQUESTS: Final[dict[Role, frozenset[str]]] = {
    "target": frozenset({"open", "pretrain", "begin", "ask", "score"}),
    "member": frozenset({"open", "begin", "ask", "score"}),
    "scored": frozenset({"open", "score"}),
}
#: Times that a scheduled request may be made, because hospitals, servers and connections fail; and requests on top.
REPEATS, MORE = 3, 10


@dataclass(frozen=True)
class Turn:
    """Where a client stands at a turn: the history of its state, the stage from 0, the turn at which that began.

    Before the first stage it is -1; after the last stage its number is that of the stages.
    """

    lineage: str
    stage: int = -1
    began: int = 0


@dataclass
class History:
    """The turns of a client, from that on at which its state is new; kept beside its state."""

    turns: dict[int, Turn] = field(default_factory=dict)

    def plain(self) -> dict[str, list[Any]]:
        """As JSON data."""
        return {str(number): [turn.lineage, turn.stage, turn.began] for number, turn in self.turns.items()}

    @classmethod
    def of(cls, plain: dict[str, list[Any]], root: str) -> History:
        """The inverse, if it goes on from the beginning `root`; else that beginning alone."""
        turns = {int(number): Turn(*values) for number, values in plain.items()}
        first = Turn(root)
        return cls(turns if turns.get(0) == first else {0: first})

    def at(self, number: int) -> Turn:
        """The turn of this number; raises `Refused` if there is none."""
        if number not in self.turns:
            text = "the server goes on from a turn that this hospital has not reached; train this run again"
            raise Refused(text, kind="unexpected turn", turn=number)
        return self.turns[number]


def role_of(pipeline: Pipeline, place: int) -> Role:
    """The role of the hospital at a place in the order of addition."""
    return "target" if place == 0 else "member" if place < max(pipeline.k) else "scored"


def check_kind(pipeline: Pipeline, place: int, kind: str, test: object) -> None:
    """Refuse a question that this hospital's role does not answer; raises `Refused`."""
    role = role_of(pipeline, place)
    if kind not in REQUESTS[role]:
        raise Refused(f"{kind} is not asked of a hospital that is {role} in this study", kind="another role", role=role)
    if kind in ("open", "score") and test == "study" and role != "target":
        raise Refused("the study's test images are at the target", kind="another role", role=role)


def check_k(pipeline: Pipeline, k: int) -> None:
    """Refuse a K that the pipeline does not have; raises `Refused`."""
    if k not in pipeline.k:
        raise Refused("the pipeline has no such number of hospitals", kind="hospitals of stage 2")


def check_request(pipeline: Pipeline, cohort: Federation, number: int, turn: Turn, request: Any) -> None:
    """Refuse a request to this hospital's client that is not in the schedule.

    `turn` is that which it goes on from; `number` is the client's.

    Raises
    ------
    Refused
        With what is not as the pipeline says.
    """
    settings, stage = cohort.settings, turn.stage
    stages = settings.schedule
    rule: Any = cohort.rule(max(stage, 0))
    if type(request) not in _requests_of(pipeline, rule):
        raise Refused(f"{type(request).__name__} is no part of this pipeline", kind="not in the plan")
    begins = isinstance(request, requests.Start)
    if begins and (stage + 1 > len(stages) or request.stage != min(stage + 1, len(stages) - 1)):
        raise Refused("stages begin one after the other", kind="not in the plan")
    done, planned = request.after - turn.began, stages[stage].rounds if 0 <= stage < len(stages) else 0
    if begins:
        ended = planned + (stage >= 0 and isinstance(rule, Restarting))  # the dual variables are a turn of their own
        if done > ended or (done < ended and not may_miss_rounds(settings)):
            raise Refused(f"the stage has {planned} rounds, and another may begin after them", kind="not in the plan")
        return
    if isinstance(request, requests.BestDual) and done < planned and not may_miss_rounds(settings):
        raise Refused("the dual variables are estimated at the end of a stage", kind="not in the plan")
    if done > planned or (done == planned and request.trains):
        raise Refused(f"the stage has {planned} rounds", kind="not in the plan")
    if isinstance(request, requests.Work):
        least, most = compute_step_bounds(settings, cohort.rows[number], cohort.places[number])
        if settings.local_steps is None and request.steps:
            raise Refused("the pipeline has no other steps than its window", kind="not in the plan")
        if settings.local_steps is not None and not least <= request.steps <= most:
            raise Refused(f"the pipeline has {least} to {most} steps per round here", kind="not in the plan")
    batches = {requests.Statistics: STATISTICS_BATCHES, requests.BestDual: getattr(rule, "dual_batches", 0)}
    if getattr(request, "batches", 0) != batches.get(type(request), 0):
        raise Refused("the pipeline has another number of batches", kind="not in the plan")


def _requests_of(pipeline: Pipeline, rule: Any) -> set[type[Request[Any]]]:
    """The requests to a client that belong to a pipeline, beside `Export` and `Import`, which never do."""
    settings = pipeline.federated
    if layout := build_layout(settings, max(pipeline.k)):
        return {requests.Start, *layout.place(0).requests.values()}
    averaged = settings.stage_output in ("average", "algorithm") or pipeline.evaluation.compare_outputs
    there = {
        requests.Prepare: isinstance(rule, Preparing),
        requests.Locate: isinstance(rule, Personal),
        requests.Finish: settings.stage_output == "algorithm" and isinstance(rule, Finishing),
        requests.Statistics: averaged,
        requests.BestDual: isinstance(rule, Restarting),
    }
    return {requests.Start, requests.Work, *(kind for kind, is_there in there.items() if is_there)}


def is_round(request: Request[Any]) -> bool:
    """Whether a request is the local work of a round, of which a client's state is another one afterwards."""
    return request.trains and not isinstance(request, requests.Prepare)


def may_miss_rounds(settings: Federated) -> bool:
    """Whether a hospital may take part in fewer rounds than a stage has."""
    return settings.absent != "wait" or settings.clients_per_round is not None


def least_between_answers(settings: Federated, rows: int, place: int) -> int:
    """Fewest steps of a round, or by which two answers from one model and the same images may differ.

    Two rounds of unequal numbers of steps that go on from one turn have their first steps in common: their difference
    is the work of the others alone.
    """
    least, most = compute_step_bounds(settings, rows, place)
    if settings.local_steps is not None:
        return least if least == most else 1
    windows = sorted({stage.window for stage in settings.schedule})
    gaps = [after - before for before, after in pairwise(windows)] if may_miss_rounds(settings) else []
    return min([least, *gaps])


def compute_step_bounds(settings: Federated, rows: int, place: int) -> tuple[int, int]:
    """Fewest and most local steps of a client in a round; `place` in the order of addition, whoever has left."""
    chosen = settings.local_steps
    if chosen is None:
        windows = [stage.window for stage in settings.schedule]
        return min(windows), max(windows)
    whole = [float(stage.window) for stage in settings.schedule]
    if chosen.per_client is not None:
        whole = [chosen.per_client[place]]
    elif chosen.epochs is not None:
        whole = [chosen.epochs * rows / settings.images_per_step]
    least = chosen.least if chosen.stragglers else 1.0
    return max(1, round(min(whole) * least)), max(1, round(max(whole)))


def extend_lineage(lineage: str, request: str) -> str:
    """The history of a client's state after a request, from that before it and the request's hash."""
    return hashlib.sha256(f"{lineage} {request}".encode()).hexdigest()


def planned_rounds(pipeline: Pipeline, place: int) -> int:
    """Local rounds of a hospital over all K that it takes part in."""
    return pipeline.federated.rounds * sum(place < k for k in pipeline.k)


def planned_models(pipeline: Pipeline) -> int:
    """Models that are scored at a hospital, at most: in every K those of evaluated rounds, and of other outputs."""
    return 1 + len(pipeline.k) * (len(pipeline.evaluated_rounds) + 4)


def beginning(study: str, k: int, rows: dict[str, int], start: str) -> str:
    """The root of the history of a stage 2: the approved study, K, the hospitals with their rows, and the start."""
    return handshake.digest([study, k, list(rows.items()), start])
