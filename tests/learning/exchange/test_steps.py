"""The list of steps: its order, what it keeps where, and a step of one's own in one file."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from chestfed.core.checkpoint import load_checkpoint, load_state, save_checkpoint, save_state
from chestfed.core.errors import ConfigError, DamagedError
from chestfed.learning.abilities import Can, Demand, find_conflicts
from chestfed.learning.algorithms.minimization.fedprox import FedProx
from chestfed.learning.algorithms.variables import Point, named_tensors
from chestfed.learning.exchange.aggregation import RobustMean
from chestfed.learning.exchange.compression import Compressed
from chestfed.learning.exchange.exchange import Exchange, StatesAtClient, list_fields
from chestfed.learning.exchange.server_optimizer import Optimized
from chestfed.learning.exchange.statistics import Statistics
from chestfed.learning.exchange.step import Arrived, Package, Step
from tests.cases import assert_refused

START, NONE = Point(torch.arange(4.0), torch.zeros(0)), torch.zeros(0)
RULE = FedProx(1, 0.1)


@dataclass(frozen=True)
class Named(Step):
    """Writes its name on what passes."""

    name: str
    passed: list[str]

    def at_client(self, update: Any, message: Any, kept: Any, draw: Any) -> tuple[Any, Any]:
        self.passed.append(f"{self.name} at the client")
        return update, kept

    def at_server(self, arrived: Arrived) -> Arrived:
        self.passed.append(f"{self.name} at the server")
        return arrived


def slope(primal: torch.Tensor, dual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.ones_like(primal), dual


def test_what_is_encoded_last_is_decoded_first() -> None:
    passed: list[str] = []
    exchange = Exchange((Named("a", passed), Named("b", passed)))
    update, _ = exchange.local_round(RULE, START, exchange.start_client(RULE, START), slope)
    exchange.at_server(Arrived([Package(update, NONE)], [1.0], Package(START, NONE)))
    assert passed == ["b at the client", "a at the client", "a at the server", "b at the server"]


def test_places_give_the_order() -> None:
    steps = (Optimized("adam", 0.1), RobustMean("median"), Compressed(0.5))
    assert [type(step) for step in Exchange(steps).steps] == [Compressed, Statistics, RobustMean, Optimized]
    assert (Exchange().least, Exchange((RobustMean("trimmed_mean", 2),)).least) == (1, 5)


def test_state_is_bare_where_no_step_keeps() -> None:
    assert not isinstance(Exchange((Compressed(0.0), Optimized("adam", 0.1))).start_client(RULE, START), StatesAtClient)
    kept = Exchange((Compressed(0.5),)).start_client(RULE, START)
    assert list(named_tensors(kept, "client.0")) == ["client.0.step.0.primal", "client.0.step.0.dual"]
    assert Exchange.own_state(kept) == RULE.start_client(START)


def test_conflict_names_both_settings() -> None:
    first = Demand("first", frozenset({Can.EACH, Can.ROBUST}))
    second = Demand("second", takes={Can.EACH: "they are one"})
    found = list(find_conflicts("mine", frozenset(), [first, second], lambda ability: ["fedavg"]))
    assert [line.partition(":")[0] for line in found] == ["first", "first"]
    assert "mine" in found[0]
    assert "second: they are one" in found[1]


def test_key_of_another_is_refused() -> None:
    with assert_refused(ConfigError, "key taken", key="trim"):
        list_fields(["window", "trim"])


def test_state_of_another_release_is_named(tmp_path: Path) -> None:
    file = tmp_path / "state"
    save_state(file, {"a": torch.ones(2)}, {})
    tensors, values = load_checkpoint(file)
    save_checkpoint(
        file, tensors, {name: value for name, value in values.items() if name not in ("version", "checksum")}
    )
    with assert_refused(DamagedError, "state of another release"):
        load_state(file, torch.device("cpu"))


SIGNS = """
from dataclasses import dataclass, replace

import torch
from pydantic import Field

from chestfed.plugins import Can, Demand, Point, Step, StepSpec


@dataclass(frozen=True)
class Signs(Step):
    size: float
    key = "signs"

    @property
    def demand(self):
        return Demand(self.key, frozenset({Can.ROBUST, Can.EACH}), {Can.NUMBERS: "signs are sent"})

    def at_client(self, update, message, kept, draw):
        return Point(torch.sign(update.primal - message.primal).to(torch.int8), update.dual), kept

    def at_server(self, arrived):
        start = arrived.before.update.primal
        parts = [
            replace(part, update=Point(start + self.size * part.update.primal, part.update.dual))
            for part in arrived.parts
        ]
        return replace(arrived, parts=parts)


SIGNS = StepSpec(
    "signs",
    "signs of changes",
    {"signs": (float | None, Field(None, gt=0, description="size of a step; null: none"))},
    lambda values, seed: None if values["signs"] is None else Signs(values["signs"]),
)
"""

PROGRAM = """
from chestfed.core.bundled import bundled
from chestfed.core.errors import ConfigError
from chestfed.studies.experiment.loading import load_pipeline
from chestfed.studies.experiment.resolved import identity
from chestfed.studies.training.costs import bytes_per_client_round

FILE = bundled("pipelines") / "digits_methods.yaml"
plain, signs = (
    load_pipeline(bundled, settings, methods=["fedavg"]).resolve("fedavg")
    for bundled, settings in ((FILE, []), (FILE, ["federated.signs=0.01"]))
)
print(bytes_per_client_round(plain, 1000, 0, 5)[0], bytes_per_client_round(signs, 1000, 0, 5)[0])
print("signs" in identity(plain)["federated"], identity(plain)["plugins"])
print(identity(signs)["federated"]["signs"], list(identity(signs)["plugins"]))
try:
    noise = "federated.privacy={clip: 1, noise_multiplier: 1}"
    load_pipeline(FILE, ["federated.signs=0.01", noise], methods=["fedavg"])
except ConfigError as error:
    print(error.kind)
"""


@pytest.mark.slow
def test_step_of_ones_own_is_one_file(tmp_path: Path) -> None:
    (tmp_path / "signs.py").write_text(SIGNS)
    metadata = tmp_path / "signs-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: signs\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[chestfed.steps]\nsigns = signs:SIGNS\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["4000 1000", "False {}", "0.01 ['signs']", "invalid value"]
