"""What the ranks of torch.distributed compute together: the bits of one process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from chestfed.core import checkpoint
from chestfed.core.errors import TrainingError
from chestfed.learning.algorithms.variables import Point
from chestfed.learning.engines.messages.wire import WireError
from chestfed.learning.engines.ranks.fleet import RankFleet, carry_messages
from chestfed.learning.engines.ranks.link import Link
from chestfed.learning.engines.torchrun import Options
from chestfed.learning.models import FlatModule
from chestfed.studies.experiment.device import prepare_machine
from chestfed.studies.experiment.pipeline import Runtime
from chestfed.studies.training import pretrain as stage_1
from chestfed.studies.training.assemble import Deployment
from chestfed.studies.training.data.clients import Outputs, TestSet, pool_tests, score
from chestfed.studies.training.data.collection import load_collection
from chestfed.studies.training.data.experiment import Experiment
from chestfed.studies.training.deployments.ranks import Ranks
from chestfed.studies.training.deployments.scores import gather_scores, score_share, send_scores
from chestfed.studies.training.loop import train_federated
from tests.cases import assert_refused
from tests.learning.engines.forked_ranks import fork_ranks, run_ranks
from tests.studies.training.test_batch_norm import Tiny
from tests.studies.training.test_resume_algorithms import make_pipeline

MACHINE = prepare_machine(Runtime(device="cpu", threads=1))


class ArrayImages:
    """Images in memory."""

    def __init__(self, count: int, seed: int) -> None:
        self.pixels = np.random.default_rng(seed).integers(0, 256, (count, 8, 8), np.uint8)
        self.records, self.digests = np.arange(count), np.zeros(count, "V16")

    def read(self, rows: Any) -> np.ndarray:
        return self.pixels[np.asarray(rows)]


def make_test(site: str, count: int, seed: int) -> TestSet:
    labels, names = np.zeros((count, 2), np.float32), tuple(f"{site}{n}" for n in range(count))
    images = ArrayImages(count, seed), labels, np.arange(count), ("a", "b"), names, names, "key"
    return TestSet(*images, statistics_images=ArrayImages(70, seed + 1), site=site)


HOSPITALS = {"few": make_test("few", 3, 1), "many": make_test("many", 41, 3), "some": make_test("some", 9, 5)}
TESTS = {"one": HOSPITALS["many"], "three": pool_tests(HOSPITALS, "mean")}


def make_network() -> tuple[FlatModule, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    network = FlatModule(Tiny(2))
    return network, network.parameters(), torch.cat([torch.full((3,), 5.0), torch.full((3,), 9.0)])


def score_alone(test: TestSet) -> tuple[Outputs, torch.Tensor]:
    network, *point = make_network()
    return score(network, *point, test, 4, MACHINE), network.buffers()


def score_together(link: Link, test: TestSet) -> Any:
    experiment: Any = SimpleNamespace(
        machine=MACHINE, pipeline=SimpleNamespace(evaluation=SimpleNamespace(batch_size=4))
    )
    network, *point = make_network()
    share = score_share(link, experiment, network, *point, test)
    if link.rank:
        send_scores(link, share)
        return sum(map(len, share))
    return gather_scores(link, experiment, share, network.buffers(), test)


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("name", list(TESTS))
def test_scores_of_ranks_equal_one(name: str, ranks: int, tmp_path: Path) -> None:
    test = TESTS[name]
    expected, buffers = score_alone(test)
    got, *others = run_ranks(tmp_path, ranks, lambda link: score_together(link, test))
    assert got.scores.tobytes() == expected.scores.tobytes()
    assert got.buffers.numpy().tobytes() == buffers.numpy().tobytes()
    assert all(len(test.labels) // ranks - 8 <= count < len(test.labels) for count in others)


def train(folder: Path, deployment: Deployment, setup: Experiment, clients: int = 3) -> list[bytes]:
    """Both stages: weights and losses of stage 1, point and scores of stage 2."""
    for stage in ("one", "two"):
        (folder / stage).mkdir(parents=True, exist_ok=True)
    start = deployment.pretrain(setup, folder / "one", lambda step, loss: None)
    trained = train_federated(setup, clients, start, folder / "two", lambda history: None, deployment)
    parts = [start.weights, torch.tensor(start.losses), trained.point.primal, trained.point.dual]
    return [*(part.numpy().tobytes() for part in parts), trained.outputs.scores.tobytes()]


def test_parts_on_four_ranks_equal_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stage 1 on three ranks, begun in one process; in stage 2 one of the three clients has two ranks."""
    monkeypatch.setattr(stage_1, "CHECKPOINT_STEPS", 2)
    monkeypatch.setattr(checkpoint, "SECONDS_BETWEEN_SAVES", 0.0)
    more = ["model.norm=group", "pretrain.epochs=0.02", "evaluation.batch_size=64", "runtime.batch_parts=3"]
    pipeline = make_pipeline("codasca", *more)
    setup = load_collection(pipeline, None, MACHINE)

    class Stopped(Exception):
        pass

    def stop(step: int, loss: float) -> None:
        raise Stopped

    (tmp_path / "ranks" / "one").mkdir(parents=True)
    with pytest.raises(Stopped):
        Deployment().pretrain(setup, tmp_path / "ranks" / "one", stop)

    def work() -> list[bytes]:
        with Ranks(Options(name="torchrun", timeout=120), MACHINE) as ranks:
            if not ranks.leads:
                ranks.serve(lambda: [setup])
                return []
            ranks.begin([setup])
            return train(tmp_path / "ranks", ranks, setup)

    expected = train(tmp_path / "alone", Deployment(), setup)
    assert fork_ranks(tmp_path, 4, work) == [expected, [], [], []]


def test_batch_norm_on_four_ranks_is_that_of_one(tmp_path: Path) -> None:
    """Both stages, and one process has the bits of an undivided batch; three clients, of which one has two ranks."""
    more = ["model.norm=batch", "pretrain.epochs=0.02", "evaluation.batch_size=64", "runtime.dtype=float64"]
    parted = [*more, "runtime.batch_parts=3", "runtime.sync_batch_norm=true"]
    pipelines = [make_pipeline("coda", *settings) for settings in (more, parted)]
    plain, shared = (load_collection(run, None, prepare_machine(run.runtime)) for run in pipelines)

    def work() -> list[bytes]:
        with Ranks(Options(name="torchrun", timeout=120), MACHINE) as ranks:
            if not ranks.leads:
                ranks.serve(lambda: [shared])
                return []
            ranks.begin([shared])
            return train(tmp_path / "ranks", ranks, shared)

    undivided = train(tmp_path / "undivided", Deployment(), plain)
    assert train(tmp_path / "alone", Deployment(), shared) == undivided
    found, *_ = fork_ranks(tmp_path, 4, work)
    for got, due in zip(found, undivided, strict=True):
        kind = np.float32 if len(due) % 8 else np.float64
        np.testing.assert_allclose(np.frombuffer(got, kind), np.frombuffer(due, kind), rtol=1e-6, atol=1e-8)


def test_message_that_is_not_finite_is_refused(tmp_path: Path) -> None:
    def work(link: Link) -> list[tuple[float, int]]:
        rule = SimpleNamespace(message=lambda state, edge: Point(torch.tensor([1.0, state]), torch.zeros(0)))
        shapes: Any = SimpleNamespace(edge_message=Point(torch.empty(2, device="meta"), torch.empty(0, device="meta")))
        host: Any = SimpleNamespace(rule=rule, stepped={7: SimpleNamespace(state=float("nan"))}, arrived={})
        hosts, routes = {link.rank: host}, [(1, 0, 0, 0), (0, 0, 1, 0)]
        if link.rank == 0:
            host.stepped[7].state = 2.0
            return RankFleet(link, ("a", "b"), hosts, [shapes] * 2, [[0], [1]]).carry([7, 7], routes)
        carry_messages(link, link.hear(), hosts, [shapes] * 2, [[0], [1]])
        return []

    first, _ = run_ranks(tmp_path, 2, work)
    with assert_refused(WireError, "not finite", sender="rank 1"):
        raise first


def test_unreadable_image_of_a_rank_is_named(tmp_path: Path) -> None:
    class Damaged(ArrayImages):
        def read(self, rows: Any) -> np.ndarray:
            if 6 in rows:
                raise TrainingError("image 6 cannot be read")
            return super().read(rows)

    test = replace(HOSPITALS["some"], images=Damaged(9, 5))
    first, _ = run_ranks(tmp_path, 2, lambda link: score_together(link, test))
    assert isinstance(first, TrainingError)
    assert all(part in str(first) for part in ("image 6", "rank 1"))
