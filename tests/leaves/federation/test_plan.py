"""The deed is compared with the plan: every request, at every role, and what the schedule does not have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from chestfed.learning.algorithms.variables import Point
from chestfed.learning.engines.messages import requests
from chestfed.learning.engines.server import STATISTICS_BATCHES
from chestfed.leaves.decentralized import peers
from chestfed.leaves.federation.hospital.log import KINDS
from chestfed.leaves.federation.hospital.plan import (
    History,
    Turn,
    check_k,
    check_kind,
    check_request,
    compute_step_bounds,
    least_between_answers,
    planned_rounds,
)
from chestfed.leaves.federation.parcels import Refused
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.training.assemble import Federation
from tests.cases import assert_refused
from tests.leaves.federation.test_participant import pipeline

BUFFERS, POINT = torch.zeros(0), Point(torch.zeros(1), torch.zeros(0))
FEDAVG = "methods=[{algorithm: fedavg}]"
#: Place in the order of addition -> the questions that are answered there, of a study of K=3.
ANSWERED = {
    0: {"open", "open study", "pretrain", "begin", "ask", "score", "score study"},
    2: {"open", "begin", "ask", "score"},
    4: {"open", "score"},
}


@pytest.mark.parametrize("place", ANSWERED)
@pytest.mark.parametrize("question", [*sorted({*KINDS} - {"greet"}), "open study", "score study"])
def test_role_answers_its_questions(place: int, question: str) -> None:
    kind, _, test = question.partition(" ")
    asked = pipeline("k=[3]")
    if question in ANSWERED[place]:
        check_kind(asked, place, kind, test or "own")
        return
    with assert_refused(Refused, "another role"):
        check_kind(asked, place, kind, test or "own")


def test_k_is_of_the_pipeline() -> None:
    check_k(pipeline("k=[3,5]"), 5)
    with assert_refused(Refused, "hospitals of stage 2"):
        check_k(pipeline("k=[3,5]"), 4)


def cohort_of(asked: Pipeline, k: int = 3) -> Federation:
    counts, shape = {f"hospital{place}": 100 + place for place in range(k)}, (k, len(asked.tasks))
    return Federation.of(asked, counts, np.full(shape, 0.5), torch.ones(shape), torch.device("cpu"), k)


def plan_of(*settings: str) -> Pipeline:
    """Two stages of four rounds with a window of two."""
    steps = ["federated.stages=2", "federated.window=2", "federated.stage_steps=8", "model.norm=group"]
    return pipeline(*steps, *settings)


def work(after: int, steps: int = 0) -> Any:
    return requests.Work(after, POINT, BUFFERS, steps)


#: What is asked for, at turn and stage -> whether it belongs to the plan of CODASCA.
ASKED: dict[str, tuple[Any, Turn, bool]] = {
    "first stage": (requests.Start(0, 0, POINT), Turn("", -1, 0), True),
    "second stage first": (requests.Start(0, 1, POINT), Turn("", -1, 0), False),
    "first round": (work(1), Turn("", 0, 1), True),
    "last round": (work(4), Turn("", 0, 1), True),
    "round after the last": (work(5), Turn("", 0, 1), False),
    "next stage": (requests.Start(5, 1, POINT), Turn("", 0, 1), True),
    "next stage before any round": (requests.Start(1, 1, POINT), Turn("", 0, 1), False),
    "next stage before the last round": (requests.Start(4, 1, POINT), Turn("", 0, 1), False),
    "the stage from its beginning": (requests.Start(0, 0, POINT), Turn("", -1, 0), True),
    "the same stage again": (requests.Start(5, 0, POINT), Turn("", 0, 1), False),
    "end of the last stage": (requests.Start(10, 1, POINT), Turn("", 1, 6), True),
    "one more stage": (requests.Start(11, 1, POINT), Turn("", 2, 11), False),
    "round after all": (work(11), Turn("", 2, 11), False),
    "round before all": (work(0), Turn("", -1, 0), False),
    "one step": (work(1, 1), Turn("", 0, 1), False),
    "the window as steps": (work(1, 2), Turn("", 0, 1), False),
    "steps without end": (work(1, 1 << 40), Turn("", 0, 1), False),
    "negative steps": (work(1, -1), Turn("", 0, 1), False),
    "a node's steps": (peers.Steps(1, BUFFERS, ()), Turn("", 0, 1), False),
    "a node's exchange": (peers.Take(1, (), ()), Turn("", 0, 1), False),
    "preparation": (requests.Prepare(1, POINT, BUFFERS), Turn("", 0, 1), False),
    "own point": (requests.Locate(1, POINT), Turn("", 0, 1), False),
    "end of a stage": (requests.Finish(5), Turn("", 0, 1), False),
    "best dual": (requests.BestDual(1, POINT, BUFFERS, 1), Turn("", 0, 1), False),
    "own state": (requests.Export(1), Turn("", 0, 1), False),
    "foreign state": (requests.Import(1, 0, POINT, BUFFERS, BUFFERS), Turn("", 0, 1), False),
    "statistics": (requests.Statistics(5, BUFFERS, BUFFERS, STATISTICS_BATCHES), Turn("", 0, 1), True),
    "statistics of one batch": (requests.Statistics(5, BUFFERS, BUFFERS, 1), Turn("", 0, 1), False),
}


@pytest.mark.parametrize("name", ASKED)
def test_request_lies_in_the_schedule(name: str) -> None:
    request, turn, is_planned = ASKED[name]
    asked = plan_of("evaluation.compare_outputs=true")
    if is_planned:
        check_request(asked, cohort_of(asked), 1, turn, request)
        return
    with assert_refused(Refused, "not in the plan"):
        check_request(asked, cohort_of(asked), 1, turn, request)


def test_stage_ends_with_its_dual_variables() -> None:
    """CODA: four rounds, the estimate at the turn after them, then the next stage; nothing else is a round."""
    asked = plan_of("methods=[{algorithm: coda}]")
    cohort, turn = cohort_of(asked), Turn("", 0, 1)
    batches = getattr(cohort.rule(0), "dual_batches", 0)
    for request, is_planned in (
        (requests.BestDual(4, POINT, BUFFERS, batches), False),
        (requests.BestDual(5, POINT, BUFFERS, batches), True),
        (requests.Start(5, 1, POINT), False),
        (requests.Start(6, 1, POINT), True),
    ):
        if is_planned:
            check_request(asked, cohort, 1, turn, request)
            continue
        with assert_refused(Refused, "not in the plan"):
            check_request(asked, cohort, 1, turn, request)


def test_missed_rounds_may_be_fewer() -> None:
    """Where a round does without a hospital, its stage ends with fewer; windows then differ by many steps, or none."""
    asked = plan_of("methods=[{algorithm: fedavg, absent: drop}]")
    check_request(asked, cohort_of(asked), 1, Turn("", 0, 1), requests.Start(3, 1, POINT))
    with assert_refused(Refused, "not in the plan"):
        check_request(asked, cohort_of(asked), 1, Turn("", 0, 1), requests.Start(6, 1, POINT))


@pytest.mark.parametrize(
    ("settings", "least"),
    [
        ("{algorithm: fedavg}", 2),
        ("{algorithm: fedavg, absent: drop}", 1),
        ("{algorithm: fedavg, clients_per_round: 2}", 1),
        ("{algorithm: fedavg, local_steps: {per_client: [4, 4, 4]}}", 4),
        ("{algorithm: fedavg, local_steps: {stragglers: 0.5, least: 0.5}}", 1),
    ],
)
def test_difference_of_answers_has_least_steps(settings: str, least: int) -> None:
    asked = plan_of(f"methods=[{settings}]", "federated.window_growth=1.5")
    assert least_between_answers(asked.federated, 100, 1) == least


@pytest.mark.parametrize(
    ("settings", "request_", "is_planned"),
    [
        (FEDAVG, requests.Statistics(1, BUFFERS, BUFFERS, STATISTICS_BATCHES), False),
        (FEDAVG, work(1), True),
        ("methods=[{algorithm: pdmm}]", peers.Steps(1, BUFFERS, ()), True),
        ("methods=[{algorithm: pdmm}]", work(1), False),
        ("methods=[{algorithm: fedper}]", requests.Locate(1, POINT), True),
        ("methods=[{algorithm: mime}]", requests.Prepare(1, POINT, BUFFERS), True),
        ("methods=[{algorithm: coda_plus, stage_output: algorithm}]", requests.Finish(1), True),
        ("methods=[{algorithm: coda}]", requests.BestDual(1, POINT, BUFFERS, 99), False),
    ],
)
def test_algorithm_has_its_requests(settings: str, request_: Any, is_planned: bool) -> None:
    asked = plan_of(settings)
    if is_planned:
        check_request(asked, cohort_of(asked), 1, Turn("", 0, 1), request_)
        return
    with assert_refused(Refused, "not in the plan"):
        check_request(asked, cohort_of(asked), 1, Turn("", 0, 1), request_)


@pytest.mark.parametrize(
    ("steps", "bounds"),
    [
        ("{per_client: [1, 7, 3]}", (7, 7)),
        ("{epochs: 1}", (101, 101)),
        ("{stragglers: 0.5, least: 0.5}", (1, 2)),
        ("{per_client: [1, 8, 3], stragglers: 0.5, least: 0.25}", (2, 8)),
    ],
)
def test_unequal_steps_have_bounds(steps: str, bounds: tuple[int, int]) -> None:
    asked = plan_of("methods=[{algorithm: fedavg}]", f"federated.local_steps={steps}", "federated.batch_size=1")
    assert compute_step_bounds(asked.federated, 101, 1) == bounds
    cohort, turn = cohort_of(asked), Turn("", 0, 1)
    for number in bounds:
        check_request(asked, cohort, 1, turn, work(1, number))
    for number in (0, bounds[0] - 1, bounds[1] + 1):
        with assert_refused(Refused, "not in the plan"):
            check_request(asked, cohort, 1, turn, work(1, number))


def test_rounds_are_planned_for_members() -> None:
    asked = plan_of("k=[1,3]")
    assert [planned_rounds(asked, place) for place in (0, 2, 3)] == [16, 8, 0]


def test_history_of_another_start_is_dropped() -> None:
    history = History({0: Turn("root"), 1: Turn("a", 0, 1), 2: Turn("b", 0, 1)})
    assert History.of(history.plain(), "root") == history
    assert History.of(history.plain(), "other").turns == {0: Turn("other")}
    with assert_refused(Refused, "unexpected turn", turn=3):
        history.at(3)
    assert replace(history.at(1), stage=1) == Turn("a", 1, 1)
