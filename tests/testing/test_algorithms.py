"""`check_algorithm` and `check_objective`: every built-in part keeps its contract, and a broken one is found."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from chestfed.core.checkpoint import load_checkpoint
from chestfed.core.errors import ConfigError
from chestfed.learning.algorithms import ALGORITHMS
from chestfed.learning.algorithms.minimization.fedprox import FedProx
from chestfed.learning.algorithms.personal.local_parts import Client, LocalParts, Shared
from chestfed.learning.algorithms.variables import LocalStepAlgorithm, Point, byte_count, weighted_mean
from chestfed.learning.exchange.step import Arrived, Step
from chestfed.learning.objectives import OBJECTIVES
from chestfed.learning.objectives.cross_entropy import CrossEntropy
from chestfed.learning.objectives.declaration import labeled_mean
from chestfed.testing import algorithms, objectives
from chestfed.testing.algorithms import check_algorithm
from chestfed.testing.contract import ContractError
from chestfed.testing.objectives import check_objective
from tests.cases import assert_refused
from tests.studies.training.test_resume_algorithms import make_pipeline, train

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples" / "own_method"
FEDAVG, FEDREP, ENTROPY = ALGORITHMS.find("fedavg"), ALGORITHMS.find("fedrep"), OBJECTIVES.find("cross_entropy")


@pytest.mark.slow
@pytest.mark.parametrize("name", ALGORITHMS.built_in)
def test_built_in_algorithms_conform(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(algorithms, "TOLERANCE", 1e-3)  # tests/invariants looks at the last digits
    monkeypatch.setattr(algorithms, "ROUNDS", 200)
    assert len(check_algorithm(name)) >= 7


def test_built_in_objectives_conform() -> None:
    for name in OBJECTIVES.built_in:
        assert len(check_objective(name)) == (12 if name in ("sopa_s", "soap", "pool_partial_auc") else 11)


class InPlace(FedProx):
    def local_round(self, message: Point, client: Any, gradients: Any) -> tuple[Point, Any]:
        message.primal.sub_(self.local_lr * gradients(message.primal, message.dual)[0])
        return Point(message.primal, message.dual[:0]), client


class OneStepMore(FedProx):
    def local_round(self, message: Point, client: Any, gradients: Any) -> tuple[Point, Any]:
        gradients(message.primal, message.dual)
        return super().local_round(message, client, gradients)


class Random(FedProx):
    def server_round(self, server: Point, updates: Any, weights: Any) -> Point:
        return Point(updates[0].primal * random.random(), server.dual)


class Largest(FedProx):
    def server_round(self, server: Point, updates: Any, weights: Any) -> Point:
        return Point(torch.stack([update.primal for update in updates]).amax(dim=0), server.dual)


@dataclass(frozen=True)
class Counter:
    rounds: int = 0


@dataclass(frozen=True)
class Momentum(Point):
    momentum: Tensor


class WithoutMessage(FedProx):
    """Sends its momentum down and up."""

    def start_stage(self, point: Point) -> Any:
        return Momentum(point.primal, point.dual, torch.zeros_like(point.primal))

    def local_round(self, message: Any, client: Any, gradients: Any) -> tuple[Any, Any]:
        update, client = super().local_round(message, client, gradients)
        return replace(message, primal=update.primal, dual=update.dual), client

    def server_round(self, server: Any, updates: Any, weights: Any) -> Any:
        return replace(server, primal=weighted_mean([update.primal for update in updates], weights))


class NumberAsState(FedProx):
    def start_client(self, point: Point) -> Any:
        return Counter()


class Forgetful(FedProx):
    """Keeps a state that no checkpoint sees."""

    def local_round(self, message: Point, client: Any, gradients: Any) -> tuple[Point, Any]:
        update, client = super().local_round(message, client, gradients)
        calls = self.__dict__.setdefault("calls", [])
        calls.append(1)
        return Point(update.primal * (1 + 1e-3 * len(calls)), update.dual), client


class Ascending(FedProx):
    def local_round(self, message: Point, client: Any, gradients: Any) -> tuple[Point, Any]:
        return super().local_round(message, client, lambda *at: tuple(-gradient for gradient in gradients(*at)))


class WithoutWeights(FedProx):
    def server_round(self, server: Point, updates: Any, weights: Any) -> Point:
        return super().server_round(server, updates, [1 / len(updates)] * len(updates))


class First(FedProx):
    def server_round(self, server: Point, updates: Any, weights: Any) -> Point:
        return Point(server.primal + weights[0] * (updates[0].primal - server.primal), server.dual)


class KeepsGradients(FedProx):
    def local_round(self, message: Point, client: Any, gradients: Any) -> tuple[Point, Any]:
        slopes, w = [], message.primal
        for _ in range(self.window):
            slopes.append(gradients(w, message.dual)[0])
            w = w - self.local_lr * slopes[-1]
        return Point(message.primal - self.local_lr * torch.stack(slopes).sum(dim=0), message.dual[:0]), client


class InPlaceOfUpdates(FedProx):
    def server_round(self, server: Point, updates: Any, weights: Any) -> Point:
        total = updates[0].primal.mul_(weights[0])
        for update, weight in zip(updates[1:], weights[1:], strict=True):
            total += weight * update.primal
        return Point(total, server.dual)


class ShortState(FedProx):
    def start_stage(self, point: Point) -> Any:
        return Momentum(point.primal, point.dual, point.primal[:2])

    def message(self, server: Any) -> Point:
        return Point(server.primal, server.dual)

    def server_round(self, server: Any, updates: Any, weights: Any) -> Any:
        return replace(server, momentum=server.momentum + updates[0].primal)


class Changes(FedProx):
    def local_round(self, message: Point, client: Any, gradients: Any) -> tuple[Point, Any]:
        update, client = super().local_round(message, client, gradients)
        return Point(update.primal - message.primal, update.dual), client

    def server_round(self, server: Point, updates: Any, weights: Any) -> Point:
        return Point(server.primal + super().server_round(server, updates, weights).primal, server.dual)


class OwnStep(FedProx):
    def local_round(self, message: Point, client: Any, gradients: Any) -> tuple[Point, Any]:
        return FedProx(self.window, 0.07).local_round(message, client, gradients)


class ReadsScores(FedProx):
    def local_round(self, message: Point, client: Any, gradients: Any) -> tuple[Point, Any]:
        update, client = super().local_round(message, client, gradients)
        return Point(update.primal + 0 * gradients.logits.sum(), update.dual), client


class HeadStays(LocalParts):
    """FedRep without the steps of the head."""

    def local_round(self, message: Shared, client: Client, gradients: Any) -> tuple[Shared, Client]:
        return super().local_round(message, client, gradients)[0], client


class Unseeded(FedProx):
    def start_stage(self, point: Point) -> Point:
        return Point(
            point.primal + torch.from_numpy(np.random.default_rng().normal(size=len(point.primal))), point.dual
        )


@dataclass(frozen=True)
class Weights:
    weights: Tensor


class OtherName(FedProx):
    def local_round(self, message: Point, client: Any, gradients: Any) -> tuple[Any, Any]:
        update, client = super().local_round(message, client, gradients)
        return Weights(update.primal), client


class Twice(Step):
    """An update is longer than the weights until it is decoded."""

    def at_client(self, update: Point, message: Point, kept: Any, draw: Any) -> tuple[Point, Any]:
        return Point(torch.cat([update.primal, update.primal]), update.dual), kept

    def at_server(self, arrived: Arrived) -> Arrived:
        size = len(arrived.before.update.primal)
        halves = [Point(part.update.primal[:size], part.update.dual) for part in arrived.parts]
        parts = [replace(part, update=half) for part, half in zip(arrived.parts, halves, strict=True)]
        return replace(arrived, parts=parts)


@dataclass(frozen=True)
class LeftOver:
    change: Tensor


class LargestChange(Step):
    """The largest change is sent; the others are kept at the client, and added to the next."""

    key = "largest"

    def start_client(self, message: Point) -> LeftOver:
        return LeftOver(torch.zeros_like(message.primal))

    def at_client(self, update: Point, message: Point, kept: LeftOver, draw: Any) -> tuple[Point, LeftOver]:
        change = update.primal - message.primal + kept.change
        sent = torch.zeros_like(change)
        place = change.abs().argmax()
        sent[place] = change[place]
        return Point(message.primal + sent, update.dual), LeftOver(change - sent)


def broken(rule: type[FedProx], **changes: Any) -> list[str]:
    spec = replace(FEDAVG, name="x", build=lambda options, setting: rule(setting.window, setting.local_lr), **changes)
    with pytest.raises(ContractError) as caught:
        check_algorithm(spec)
    return caught.value.broken


@pytest.mark.slow
def test_what_an_algorithm_breaks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(algorithms, "ROUNDS", 20)
    for rule, name in (
        (InPlace, "a round changes no tensor that it was given"),
        (InPlaceOfUpdates, "a round changes no tensor that it was given"),
        (KeepsGradients, "a gradient that is kept is cloned: the next one overwrites it"),
        (OneStepMore, "a round takes the gradients of the formula"),
        (WithoutWeights, algorithms.COUNTS),
        (First, algorithms.COUNTS),
        (OwnStep, "the step size, and every option with a range to search, has an effect"),
        (Ascending, algorithms.NEARER),
        (Unseeded, "a saved state resumes bit by bit"),
        (OtherName, algorithms.TENSORS),
        (Random, "no global generator is used"),
        (NumberAsState, algorithms.TENSORS),
        (Forgetful, "a saved state resumes bit by bit"),
        (Largest, algorithms.MEAN),
        (ReadsScores, "scores of images are read only where `SCORES` is declared"),
        (Changes, algorithms.MEAN),
    ):
        assert name in broken(rule, exact="no"), rule
    for wrong in ({"exact": "always"}, {"pace": "slow"}, {"objective": "auc"}, {"objective": "none_such"}):
        problems = broken(FedProx, **{"exact": "no", **wrong})
        assert problems[0].startswith("the declaration has known values"), wrong
    assert broken(FedProx, exact="no", sends="2d") == ["the bytes sent are those of the formula"]


def test_state_of_another_shape_is_said_once() -> None:
    spec = replace(FEDAVG, name="x", exact="no", build=lambda options, setting: ShortState(1, 0.1))
    with pytest.raises(ContractError) as caught:
        check_algorithm(spec)
    assert caught.value.broken == [algorithms.TENSORS]
    assert "`start_stage`: primal [5], dual [0], momentum [2]" in str(caught.value)


def test_state_that_goes_up_whole_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(algorithms, "ROUNDS", 20)
    spec = replace(FEDAVG, name="x", exact="no", build=lambda options, setting: WithoutMessage(setting.window, 0.1))
    with pytest.raises(ContractError) as caught:
        check_algorithm(spec)
    assert "the bytes sent are those of the formula" in caught.value.broken
    assert "Without a method `message`" in str(caught.value)
    assert "momentum" in str(caught.value)


@dataclass(frozen=True)
class Velocity(Point):
    velocity: Any


@pytest.mark.parametrize(
    ("state", "part"),
    [
        (Velocity(torch.zeros(2), torch.zeros(0), 0.0), "Velocity.velocity"),
        (Velocity(torch.zeros(2), torch.zeros(0), (None,)), "velocity.0"),
        (0.0, "a state or message"),
    ],
)
def test_state_that_is_a_number_is_named(state: object, part: str) -> None:
    with assert_refused(ConfigError, "not tensors", part=part):
        byte_count(state)  # type: ignore[arg-type]


def test_rule_without_steps_is_named() -> None:
    @dataclass(frozen=True)
    class Still(LocalStepAlgorithm[Any, Any, Any]):
        window: int = 1

    with assert_refused(ConfigError, "method missing", rule="Still"):
        Still().local_round(Point(torch.zeros(2), torch.zeros(0)), None, None)


def test_objective_that_needs_options_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(algorithms, "ROUNDS", 20)
    monkeypatch.chdir(EXAMPLES)
    problems = broken(FedProx, exact="no", objective="fedproto:PROTOTYPES", takes=("prototypes",))
    assert problems[0].startswith("the declaration has known values")


def test_head_that_is_never_trained_is_named() -> None:
    spec = replace(FEDREP, build=lambda options, setting: HeadStays(1, 0.1, setting.groups["classifier"], 1))
    with pytest.raises(ContractError) as caught:
        check_algorithm(spec)
    assert algorithms.TRAINED in caught.value.broken


@pytest.mark.slow
def test_scores_are_exchanged_by_a_plug_in(tmp_path: Path) -> None:
    package = "tests.testing.outside_fedxl1"
    assert len(check_objective(f"{package}:PAIRS")) == 11
    assert len(check_algorithm(f"{package}:FEDXL1")) == 14
    trained = train(make_pipeline(f"{package}:FEDXL1", "federated.stages=1"), tmp_path)
    assert not trained.point.dual.numel()
    state, _ = load_checkpoint(tmp_path / "stage2" / "state.safetensors")
    assert int((state["shared"] > 0).sum()) == 3 * 2 * 4  # clients, steps, images of a batch


def test_updates_are_decoded_for_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(algorithms, "ROUNDS", 20)
    spec = replace(FEDAVG, name="x", sends="2d", exact="no", steps=lambda options: (Twice(),))
    assert {algorithms.COUNTS, algorithms.MEAN} <= set(check_algorithm(spec))


def test_a_step_may_keep_a_state_at_a_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(algorithms, "ROUNDS", 20)
    spec = replace(FEDAVG, name="x", exact="no", steps=lambda options: (LargestChange(),))
    assert {algorithms.TENSORS, algorithms.TRAINED} <= set(check_algorithm(spec))


@pytest.mark.slow
def test_biased_method_is_not_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(algorithms, "STAGES", 1)
    monkeypatch.setattr(algorithms, "ROUNDS", 250)
    assert broken(FedProx, exact="any window") == ["window 8: it ends at the optimum"]


class Unmasked(CrossEntropy):
    def loss(self, logits: Tensor, labels: Tensor, extra: Tensor, dual: Tensor) -> Tensor:
        return torch.nn.functional.binary_cross_entropy_with_logits(logits, labels.nan_to_num())


class NotFinite(CrossEntropy):
    def loss(self, logits: Tensor, labels: Tensor, extra: Tensor, dual: Tensor) -> Tensor:
        known = ~labels.isnan()
        return (torch.where(known, logits - labels.nan_to_num(), 0.0) ** 2).sum() / known.sum(dim=0).prod()


class ReturnsNothing(CrossEntropy):
    def loss(self, logits: Tensor, labels: Tensor, extra: Tensor, dual: Tensor) -> Any:
        super().loss(logits, labels, extra, dual)


class Unreduced(CrossEntropy):
    def loss(self, logits: Tensor, labels: Tensor, extra: Tensor, dual: Tensor) -> Tensor:
        return torch.nn.functional.binary_cross_entropy_with_logits(logits, labels, reduction="none")


class KeepsNan(CrossEntropy):
    def loss(self, logits: Tensor, labels: Tensor, extra: Tensor, dual: Tensor) -> Tensor:
        return torch.nn.functional.binary_cross_entropy_with_logits(logits, labels)


class LogOfSigmoid(CrossEntropy):
    def loss(self, logits: Tensor, labels: Tensor, extra: Tensor, dual: Tensor) -> Tensor:
        signs = torch.where(labels == 1, logits, -logits)
        return labeled_mean(-torch.log(torch.sigmoid(signs)), labels).mean()


class DividedByCount(CrossEntropy):
    def loss(self, logits: Tensor, labels: Tensor, extra: Tensor, dual: Tensor) -> Tensor:
        known = ~labels.isnan()
        terms = torch.nn.functional.binary_cross_entropy_with_logits(logits, labels.nan_to_num(), reduction="none")
        return torch.where(known, terms, 0.0).sum() / known.sum()


class WithoutGradient(CrossEntropy):
    def loss(self, logits: Tensor, labels: Tensor, extra: Tensor, dual: Tensor) -> Tensor:
        return super().loss(logits.detach(), labels, extra, dual)


class Detached(CrossEntropy):
    def loss(self, logits: Tensor, labels: Tensor, extra: Tensor, dual: Tensor) -> Tensor:
        return super().loss(logits, labels, extra, dual) + (logits.detach() ** 2).sum()


class WithDual(CrossEntropy):
    @property
    def dual_size(self) -> int:
        return 3


class Ascent(CrossEntropy):
    def loss(self, logits: Tensor, labels: Tensor, extra: Tensor, dual: Tensor) -> Tensor:
        return -super().loss(logits, labels, extra, dual)


def test_unknown_option_lists_the_known() -> None:
    with assert_refused(ConfigError, "invalid options", part="fedprox") as caught:
        check_algorithm("fedprox", porx=1, prox="big")
    assert "porx is not an option" in str(caught.value)
    assert "prox should be a number, found 'big'" in str(caught.value)


def test_what_an_objective_breaks_is_named() -> None:
    for loss, name in (
        (Unmasked, "a missing label counts for nothing"),
        (NotFinite, "a disease without labels in the batch is legal"),
        (Detached, "its gradients are those of finite differences"),
        (Ascent, "descent on it ranks positive images above negative ones"),
        (WithDual, "its variables are those of its kind"),
    ):
        spec = replace(ENTROPY, name="x", build=lambda options, population, loss=loss: loss())  # type: ignore[misc]
        with pytest.raises(ContractError) as caught:
            check_objective(spec)
        assert name in caught.value.broken, loss
    with pytest.raises(ContractError) as caught:  # the server would send ratios, 2 per disease
        check_objective(
            replace(ENTROPY, name="x", kind="server-weighted", build=lambda options, population: WithDual())
        )
    assert caught.value.broken == ["its variables are those of its kind"]


def refuse_loss(loss: type[CrossEntropy]) -> ContractError:
    with pytest.raises(ContractError) as caught:
        check_objective(replace(ENTROPY, name="x", build=lambda options, population: loss()))
    return caught.value


@pytest.mark.parametrize(
    ("loss", "words"),
    [(ReturnsNothing, "None"), (Unreduced, "[12, 3]"), (WithoutGradient, "no gradient reaches the logits")],
)
def test_what_is_no_loss_is_said_once(loss: type[CrossEntropy], words: str) -> None:
    error = refuse_loss(loss)
    assert error.broken == [objectives.SCALAR]
    assert words in str(error)
    assert len(str(error).splitlines()) == 2


def test_loss_without_a_nan_mask_is_told() -> None:
    error = refuse_loss(KeepsNan)
    assert "a missing label counts for nothing" in error.broken
    assert "a missing label is NaN in `labels`" in str(error)


@pytest.mark.parametrize(
    ("loss", "broken_rule", "words"),
    [
        (LogOfSigmoid, "logits of 120 in float32, the type of training, are legal", "functional.logsigmoid"),
        (DividedByCount, "a batch without any label is legal", ".clamp(min=1)"),
    ],
)
def test_loss_not_finite_in_training_is_told(loss: type[CrossEntropy], broken_rule: str, words: str) -> None:
    error = refuse_loss(loss)
    assert error.broken == [broken_rule]
    assert words in str(error)


def test_dangling_reference_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLES)
    for reference, words in (
        ("nowhere:X", ["nowhere"]),
        ("fedexp:FedExb", ["fedexp", "FedExb"]),
        ("fedexp:weighted_mean", ["fedexp"]),
        ("codasc", ["codasca"]),
    ):
        with pytest.raises(ConfigError) as caught:
            check_algorithm(reference)
        assert all(word in str(caught.value) for word in words)
