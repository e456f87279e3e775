"""Requests and replies as bytes: they come back bit by bit, and nothing else than what is expected comes in."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from chestfed.core.errors import ConfigError, TrainingError
from chestfed.learning.algorithms import ALGORITHMS
from chestfed.learning.algorithms.codasca import Codasca, State
from chestfed.learning.algorithms.codasca_minimal import CodascaMinimal
from chestfed.learning.algorithms.variables import Point, byte_count, named_tensors
from chestfed.learning.engines.fleet import LocalFleet
from chestfed.learning.engines.host import Host
from chestfed.learning.engines.messages.requests import Done, OwnRequest, Start, Work, Worked
from chestfed.learning.engines.messages.shapes import Shapes, make_blank
from chestfed.learning.engines.messages.wire import LARGEST_HEADER, Packed, WireError, count_bytes, pack, peek, unpack
from chestfed.learning.exchange.exchange import PLAIN, Exchange
from chestfed.learning.objectives import OBJECTIVES
from chestfed.learning.objectives.declaration import count_shared
from chestfed.leaves.decentralized.graph import build_graph
from chestfed.leaves.decentralized.peers import Node
from chestfed.testing.algorithms import check_algorithm
from chestfed.testing.quadratics import CLIENTS, DISEASES, PRIMAL, WEIGHTS, QuadraticClient, build_objective, problems
from tests.cases import assert_refused

RULE = Codasca(2, 0.1, 0.1)
SHAPES = Shapes(RULE, 6, 2, 3)


def worked(**changes: Any) -> Worked:
    update = State(torch.arange(6.0), torch.tensor([-0.0, 1e-40]), torch.ones(6), torch.ones(2))
    return replace(Worked(update, torch.zeros(3), torch.ones(6), 0.5, 2, 8), **changes)


WANTED = SHAPES.reply(Work(0, None, torch.zeros(3)))


class ThroughTheWire(LocalFleet):
    """Clients of this process whose requests and replies are packed, checked and unpacked on the way."""

    shapes: list[Shapes]

    def ask(self, requests: Any, enough: int | None = None) -> dict[int, Any]:
        answers = {}
        for number, request in requests.items():
            shapes, sent = self.shapes[number], pack(request)
            name, plain = peek(sent.header, "the server")
            arrived = unpack(sent, shapes.request(name, plain, "the server"), "the server")
            reply = pack(self.hosts[number].answer(arrived))
            shape = shapes.reply(arrived)
            assert reply.size == len(reply.header) + count_bytes(shape)
            answers[number] = unpack(reply, shape, self.names[number])
        return answers


@pytest.mark.slow_but("codasca", "mime", "pdmm", "local_scgdam")
@pytest.mark.parametrize("name", ALGORITHMS.built_in)
def test_algorithms_work_over_the_wire(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same checks as in memory; where the rounds end was looked at there."""

    def of(clients: Any, rule: Any, layout: Any = None, exchange: Exchange = PLAIN) -> ThroughTheWire:
        places = [layout.place(number) if layout else None for number in range(len(clients))]
        pairs = zip(clients, places, strict=True)
        hosts = [Host(client, lambda stage: rule, place, exchange) for client, place in pairs]
        fleet = ThroughTheWire(hosts)
        spec = ALGORITHMS.find(name)
        objective = build_objective(spec.objective)
        sizes = (PRIMAL, DISEASES) if objective.dual_size or "min-max" in spec.takes else (WEIGHTS, 0)
        more = {"shared": count_shared(objective), "exchange": exchange}
        more["oracle"] = make_blank(OBJECTIVES.find(spec.objective), objective, DISEASES)
        fleet.shapes = [Shapes(rule, *sizes, 0, 0, place, torch.float64, **more) for place in places]
        return fleet

    monkeypatch.setattr(LocalFleet, "of", of)
    monkeypatch.setattr("chestfed.testing.algorithms._Trial.solves", lambda *_: None)
    assert len(check_algorithm(name)) >= 7


def test_bits_and_sizes_survive_packing() -> None:
    sent = worked()
    packed = pack(sent)
    back = unpack(packed, WANTED, "a")
    assert (back.loss, back.gradients, back.images) == (0.5, 2, 8)
    for name, tensor in named_tensors(back.update).items():
        assert torch.equal(tensor.view(torch.int32), named_tensors(sent.update)[name].view(torch.int32)), name
    arrived = np.append(np.float32(0), packed.arrays["float32"])[1:]  # as it lies in a file or message
    assert arrived.ctypes.data % 64
    assert unpack(Packed(packed.header, {"float32": arrived}), WANTED, "a").update.primal.data_ptr() % 64 == 0
    assert list(packed.arrays) == ["float32"]
    assert packed.arrays["float32"].nbytes == byte_count(sent.update) + 4 * (3 + 6)


def altered(**changes: Any) -> Packed:
    """A good reply with other fields in its header."""
    packed = pack(worked())
    return Packed(json.dumps(json.loads(packed.header) | changes).encode(), packed.arrays)


def with_arrays(**arrays: Any) -> Packed:
    return Packed(pack(worked()).header, {name: np.asarray(array) for name, array in arrays.items()})


GOOD = pack(worked()).arrays["float32"]
HOSTILE: dict[str, Packed] = {
    "another record": pack(Start(0, 0, Point(torch.ones(6), torch.ones(2)))),
    "another algorithm": pack(worked(update=Point(torch.ones(6), torch.ones(2)))),
    "another length": pack(worked(buffers=torch.zeros(4))),
    "another type of number": pack(worked(buffers=torch.zeros(3, dtype=torch.float64))),
    "one more tensor": altered(tensors=[*json.loads(pack(worked()).header)["tensors"], ["x", "float32", [1]]]),
    "an announced size of 10 GB": altered(tensors=[["update.primal", "float32", [2_500_000_000]]]),
    "a negative size": altered(tensors=[["update.primal", "float32", [-6]]]),
    "one more field": altered(plain={"loss": 0.5, "gradients": 2, "images": 8, "x": 1}),
    "a text for a number": altered(plain={"loss": 0.5, "gradients": "2", "images": 8}),
    "a loss that is not finite": altered(plain={"loss": float("nan"), "gradients": 2, "images": 8}),
    "NaN": pack(worked(slope=torch.full((6,), torch.nan))),
    "infinity": pack(worked(buffers=torch.full((3,), torch.inf))),
    "objects": with_arrays(float32=np.array([None] * len(GOOD), dtype=object)),
    "too few numbers": with_arrays(float32=GOOD[:-1]),
    "another array": with_arrays(float32=GOOD, int64=np.zeros(2, np.int64)),
    "wrong array": with_arrays(float32=GOOD.astype(np.float64)),
    "no JSON": Packed(b"\x80\x04}q\x00.", {"float32": GOOD}),
    "nested without end": Packed(b"[" * 100_000, {"float32": GOOD}),
    "a header without end": Packed(b" " * (LARGEST_HEADER + 1), {"float32": GOOD}),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_unexpected_record_names_its_sender(what: str) -> None:
    with pytest.raises(WireError) as caught:
        unpack(HOSTILE[what], WANTED, "hospital 3")
    assert caught.value.kind
    assert caught.value.fields["sender"] == "hospital 3"
    assert len(str(caught.value)) < 300


def test_unknown_requests_are_refused() -> None:
    ring = Node(build_graph("ring", CLIENTS), 0)
    for shapes, name, plain, kind in (
        (SHAPES, "Steps", {}, "unknown request"),
        (SHAPES, "__import__", {}, "unknown request"),
        (replace(SHAPES, place=ring), "Take", {"edges": [0, 7]}, "unknown edges"),
        (replace(SHAPES, place=ring), "Take", {"edges": [0, 0]}, "unknown edges"),
        (replace(SHAPES, place=ring), "Take", {"edges": "01"}, "unknown edges"),
        (replace(SHAPES, place=ring), "Take", {"edges": 5}, "unknown edges"),
    ):
        with assert_refused(WireError, kind, sender="the server"):
            shapes.request(name, plain, "the server")


class OnBatches(QuadraticClient):
    """Each batch scales the gradient by its number."""

    position = 0

    def __call__(self, primal: Tensor, dual: Tensor) -> tuple[Tensor, Tensor]:
        self.position += 1
        gradients = super().__call__(primal, dual)
        return gradients[0] * self.position, gradients[1]

    def positions(self) -> list[int]:
        return [self.position]

    def seek(self, positions: Any) -> None:
        (self.position,) = positions


def test_repeated_request_changes_nothing() -> None:
    host = Host(OnBatches("a", problems(PRIMAL, DISEASES)[0]), lambda stage: RULE)
    point = Point(torch.zeros(PRIMAL, dtype=torch.float64), torch.zeros(DISEASES, dtype=torch.float64))
    host.answer(Start(0, 0, point))
    request = Work(1, RULE.message(RULE.start_stage(point)), torch.zeros(0))
    first, again = host.answer(request), host.answer(request)
    assert torch.equal(first.update.primal, again.update.primal)  # type: ignore[union-attr]
    host.answer(replace(request, after=2))
    with assert_refused(TrainingError, "unexpected turn", client="a", turn=1):
        host.answer(request)


@pytest.mark.parametrize("rule", [Codasca, lambda *steps: CodascaMinimal(Codasca(*steps))])
def test_step_sizes_per_disease_have_shapes(rule: Any) -> None:
    shapes = Shapes(rule(2, 0.1, torch.tensor([0.1, 0.2])), 6, 2, 3)
    assert shapes.reply(Work(0, None, torch.zeros(3))).update.dual.shape == (2,)  # type: ignore[union-attr]


def test_rule_that_reads_values_is_refused() -> None:
    class Clipped(Codasca):
        def local_round(self, message: State, client: Any, gradients: Any) -> Any:
            return super().local_round(message, client, gradients) if message.primal.norm().item() < 1 else None

    with assert_refused(ConfigError, "shapes depend on values"):
        Shapes(Clipped(2, 0.1, 0.1), 6, 2, 3).reply(Work(0, None, torch.zeros(3)))


def test_incomplete_request_names_what_lacks() -> None:
    class Incomplete(OwnRequest[Done]):
        pass

    with pytest.raises(TypeError, match=r"Incomplete.*answer.*blank"):
        Incomplete()  # type: ignore[abstract]
