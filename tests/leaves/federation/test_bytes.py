"""What leaves a hospital in a round: the table in docs/deployment.md against the messages themselves."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from chestfed.learning.algorithms import ALGORITHMS
from chestfed.learning.algorithms.declaration import AlgorithmSpec
from chestfed.learning.engines.messages.requests import Located, Work
from chestfed.learning.engines.messages.wire import count_bytes
from chestfed.learning.models import NetworkGroups, network_options
from chestfed.learning.objectives.declaration import Population
from chestfed.leaves.decentralized.peers import Stepped, Steps
from chestfed.studies.experiment.rules import build_layout
from chestfed.studies.experiment.stage_2 import Federated
from chestfed.studies.training.assemble import Federation

PAGE = Path(__file__).parents[3] / "docs" / "deployment.md"
#: Parameters and running statistics of DenseNet121, hospitals and diseases, as the page says.
D, B, K, J = 6_958_981, 83_648, 5, 5
KINDS = [spec for spec in ALGORITHMS.built_in.values() if not spec.pooled]


def measure_round(spec: AlgorithmSpec) -> tuple[int, int]:
    """Bytes of the update, and of all numbers that leave in a round."""
    settings = Federated.model_validate({"algorithm": spec.name})
    graph = build_layout(settings, K)
    b = B if spec.has_server else 0
    population = Population(torch.empty(J), torch.empty(K, J), labeled=torch.empty(K, J))
    about = (tuple("abcde"), (1,) * K, (1 / K,) * K, population, settings.images_per_step, graph)
    cohort = Federation(settings, 0, K, *about, NetworkGroups(network_options("densenet121"), J))
    shapes = cohort.shapes(D, b, 0)
    if spec.has_server:
        worked = shapes.reply(Work(0, None, torch.empty(b)))
        return count_bytes(worked.update), count_bytes(worked)  # type: ignore[union-attr]
    stepped = shapes.reply(Steps(0, torch.empty(0), (0, 1)))
    taken = shapes.reply(shapes.request("Take", {"edges": (0, 1)}, "the server"))
    assert isinstance(stepped, Stepped)
    assert isinstance(taken, Located)
    return sum(count_bytes(message) for message in stepped.messages), count_bytes(stepped) + count_bytes(taken)


def read_page() -> dict[str, tuple[str, str]]:
    rows = re.compile(r"^\| (`\w+`.*) \| ([\d.]+) \| ([\d.]+) \|$", re.MULTILINE)
    lines = rows.findall(PAGE.read_text(encoding="utf-8"))
    return {name: (update, everything) for names, update, everything in lines for name in re.findall(r"`(\w+)`", names)}


@pytest.mark.parametrize("spec", KINDS, ids=lambda spec: spec.name)
def test_table_lists_what_leaves_a_hospital(spec: AlgorithmSpec) -> None:
    assert read_page()[spec.name] == tuple(f"{size / 1e6:.1f}" for size in measure_round(spec))
