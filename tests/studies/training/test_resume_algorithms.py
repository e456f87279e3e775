"""Every algorithm in the study: interrupted and continued it takes the same steps; it sends what the formula says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from chestfed.core import checkpoint
from chestfed.core.bundled import bundled
from chestfed.core.checkpoint import load_checkpoint
from chestfed.core.errors import ConfigError
from chestfed.learning.abilities import Can
from chestfed.learning.algorithms import ALGORITHMS
from chestfed.learning.algorithms.coda import Coda
from chestfed.learning.algorithms.declaration import Setting, Sizes, numbers_sent
from chestfed.learning.algorithms.variables import Point
from chestfed.learning.engines.server import STATISTICS_BATCHES, Federation, ServerEngine
from chestfed.learning.models import NetworkGroups
from chestfed.learning.objectives import OBJECTIVES
from chestfed.learning.objectives.declaration import Population, count_shared
from chestfed.studies.experiment.device import prepare_machine
from chestfed.studies.experiment.loading import load_pipeline
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.experiment.rules import build_objective, check_runs, make_participant_sampler, returned_round
from chestfed.studies.training import assemble, loop
from chestfed.studies.training.costs import bytes_per_client_round
from chestfed.studies.training.data.collection import load_collection
from chestfed.studies.training.loop import History, Trained, train_federated
from chestfed.studies.training.pretrain import pretrain
from tests.cases import assert_refused

SETTINGS = [
    "collection.clients=3",
    "collection.test_fraction=0.9",  # few images: some algorithms take the gradient of all in every round
    "model.blocks=[1]",
    "federated.window=2",
    "federated.batch_size=4",
    "federated.stages=2",
    "federated.stage_steps=4",
    "evaluation.every=1000",
    "runtime.threads=1",
    "windows=[]",
]
NAMES = list(ALGORITHMS.built_in)


class Interrupted(Exception):
    pass


def make_pipeline(algorithm: str, *more: str) -> Pipeline:
    replaced = tuple(f"{setting.partition('=')[0]}." for setting in more)
    settings = [setting for setting in SETTINGS if not setting.startswith(replaced or ("-",))]
    return load_pipeline(bundled("pipelines") / "digits_ih.yaml", [*settings, *more], methods=[algorithm]).resolve()


def train(pipeline: Pipeline, folder: Path, stop_after: int | None = None) -> Trained:
    setup = load_collection(pipeline, None, prepare_machine(pipeline.runtime))
    for stage in ("stage1", "stage2"):
        (folder / stage).mkdir(parents=True, exist_ok=True)
    start = pretrain(setup, folder / "stage1", lambda step, loss: None)

    def report(history: History) -> None:
        if stop_after is not None and len(history) == stop_after:
            raise Interrupted

    return train_federated(setup, 3, start, folder / "stage2", report)


WITHIN = "methods.*.objective={name: auc, pairs: within_site}"


TOP_K, BITS = ("methods.*.compression={kind: " + kind + "}" for kind in ("top_k, share: 0.2", "8_bits"))
ADAM = "methods.*.server_optimizer={kind: adam, lr: 0.01}"
UNEQUAL = "federated.local_steps={per_client: [1, 2, 3], stragglers: 0.5}"
BY_CLASS = "federated.sampling={positives: 0.5}"
VARIANTS = {
    "coda within sites": ("coda", (WITHIN,)),
    "coda_plus top_k adam": ("coda_plus", (TOP_K, ADAM)),
    "ditto 8_bits adam unequal": ("ditto", (BITS, ADAM, UNEQUAL)),
    "fedbn top_k epochs": ("fedbn", (TOP_K, "federated.local_steps={epochs: 0.1}")),
    "fednova unequal drawn": ("fednova", (UNEQUAL, "federated.clients_per_round=2")),
    "codasca unequal": ("codasca", (UNEQUAL,)),
    "codasca by class": ("codasca", (BY_CLASS,)),
    "fedxl2 by class": ("fedxl2", (BY_CLASS,)),
    "centralized by class": ("centralized", (BY_CLASS,)),
}


@pytest.mark.slow_but(
    "codasca",
    "local_scgdam",
    "pdmm",
    "fedxl2",
    "codasca by class",
    "coda_plus top_k adam",
    "ditto 8_bits adam unequal",
)
@pytest.mark.parametrize(
    ("algorithm", "more"), [*((name, ()) for name in NAMES), *VARIANTS.values()], ids=[*NAMES, *VARIANTS]
)
def test_interrupted_run_has_same_bits(
    algorithm: str, more: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "SECONDS_BETWEEN_SAVES", 0.0)
    pipeline = make_pipeline(algorithm, *more)
    whole = train(pipeline, tmp_path / "whole")
    rounds = pipeline.federated.rounds
    for stop_after in sorted({1, rounds // 2, rounds // 2 + 1}):  # each goes on where the one before was interrupted
        with pytest.raises(Interrupted):
            train(pipeline, tmp_path / "stopped", stop_after)
    again = train(pipeline, tmp_path / "stopped")
    assert torch.equal(again.point.primal, whole.point.primal)
    assert torch.equal(again.point.dual, whole.point.dual)
    assert again.history == whole.history
    assert again.points is not None
    assert whole.points is not None
    assert {*whole.points.local} == (
        {"digits-1", "digits-2", "digits-3"} if Can.OWN_POINTS in pipeline.federated.spec.can else set()
    )
    assert all(torch.equal(point.primal, again.points.at(name).primal) for name, point in whole.points.local.items())
    assert (again.outputs.scores == whole.outputs.scores).all()


@pytest.mark.slow_but("coda_plus")
@pytest.mark.parametrize("algorithm", ["coda_plus", "local_scgdam", "pdmm"])
def test_dropout_resumes_in_same_bits(algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "SECONDS_BETWEEN_SAVES", 0.0)
    network = 'model={name: "tests.learning.models.tiny_transformer:TINY", dropout: 0.4, patch: 4}'
    pipeline = make_pipeline(algorithm, network, "pretrain.epochs=0.05")
    whole = train(pipeline, tmp_path / "whole")
    with pytest.raises(Interrupted):
        train(pipeline, tmp_path / "stopped", stop_after=1)
    torch.rand(3)
    again = train(pipeline, tmp_path / "stopped")
    assert torch.equal(again.point.primal, whole.point.primal)
    assert again.history == whole.history
    without = train(
        make_pipeline(algorithm, network.replace("0.4", "0.0"), "pretrain.epochs=0.05"), tmp_path / "without"
    )
    assert not torch.equal(without.point.primal, whole.point.primal)


@pytest.mark.slow_but("3600.0-saved1")
@pytest.mark.parametrize(("seconds", "saved"), [(0.0, [1, 2, 3, 4, 5, 6]), (3600.0, [3, 6])])
def test_state_saved_at_end_of_stage(
    seconds: float, saved: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "SECONDS_BETWEEN_SAVES", seconds)
    lengths: list[int] = []
    original = loop.save_state

    def save(path: Path, tensors: dict[str, torch.Tensor], values: dict[str, Any]) -> None:
        lengths.append(len(values["history"]))
        original(path, tensors, values)

    monkeypatch.setattr(loop, "save_state", save)
    pipeline = make_pipeline("codasca", "federated.stage_steps=6")
    whole = train(pipeline, tmp_path / "whole")
    assert lengths == saved
    for stop_after in (2, 4):  # what was not saved is done again
        folder = tmp_path / f"stopped-{stop_after}"
        with pytest.raises(Interrupted):
            train(pipeline, folder, stop_after)
        again = train(pipeline, folder)
        assert torch.equal(again.point.primal, whole.point.primal)
        assert again.history == whole.history


def test_reference_point_stored_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "SECONDS_BETWEEN_SAVES", 0.0)
    pipeline = make_pipeline("codasca", "federated.stage_steps=6")
    for stop_after in (1, 2):  # within a stage, also after it was loaded from there
        with pytest.raises(Interrupted):
            train(pipeline, tmp_path / "run", stop_after)
        tensors, values = load_checkpoint(tmp_path / "run" / "stage2" / "state.safetensors")
    assert sum("reference" in name for name in tensors) == 1
    assert set(values["same"]) >= {"client.1.reference", "client.2.reference"}


#: Weights that go down in a round, of algorithms that send something else up; MIME's point goes down twice.
DOWN = {"fednova": 1, "q_fedavg": 1, "mime": 4, "mime_lite": 4, "fedxl1": 1, "fedxl2": 2}
CASES = [
    (name, objective.name, "group")
    for name, spec in ALGORITHMS.built_in.items()
    for objective in OBJECTIVES.built_in.values()
    if objective.kind in spec.takes
] + [(name, spec.objective, "batch") for name, spec in ALGORITHMS.built_in.items() if spec.has_server]


@pytest.mark.slow_but(
    "codasca-auc-batch",
    "mime-ratio_loss-group",
    "local_scgdam-compositional_auc-batch",
    "pdmm-cross_entropy-group",
    "fedxl2-pool_partial_auc-group",
)
@pytest.mark.parametrize(("algorithm", "objective", "norm"), CASES)
def test_bytes_are_of_declared_formula(algorithm: str, objective: str, norm: str, tmp_path: Path) -> None:
    settings = [f"model.norm={norm}", f"methods.*.objective={objective}", "federated.stage_steps=2"]
    pipeline = make_pipeline(algorithm, *settings)
    spec = pipeline.federated.spec
    trained = train(pipeline, tmp_path / "run")
    buffers = trained.outputs.buffers.numel()
    assert (buffers > 0) == (norm == "batch")
    up, down = bytes_per_client_round(pipeline, trained.network.size, buffers, 3)
    labels = Population(torch.full((1,), 0.5), torch.full((3, 1), 0.5))
    d, shared = trained.network.size, count_shared(build_objective(pipeline.federated, labels))
    sent = numbers_sent(
        spec.formula(pipeline.federated.algorithm), Sizes.of(d, 1, NetworkGroups(pipeline.model, 1), shared=shared)
    )
    if not spec.has_server:
        sent *= 2  # on the ring every node has two edges
    if not spec.pooled:
        assert up == 4 * (sent + buffers)
        returned = sent + buffers
        if algorithm in DOWN:
            returned = DOWN[algorithm] * d + (2 if "mime" in algorithm else 1) * buffers
        prepared = "mime" in algorithm  # the point goes down first
        assert down == (4 * (returned + (1 + prepared) * shared) if spec.has_server else 0)
    first_stage = pipeline.federated.schedule[0].rounds
    for entry in trained.history:
        if algorithm == "coda" and entry["round"] == first_stage:
            continue  # between two stages it sends alpha once more, and v goes down for it
        assert entry["bytes_up"] == 3 * up
        assert entry["bytes_down"] == 3 * down


def test_pairs_within_sites_in_messages(tmp_path: Path) -> None:
    pooled, within = make_pipeline("codasca"), make_pipeline("codasca", WITHIN)
    up, _ = bytes_per_client_round(within, 1000, 0, 3)
    assert up - bytes_per_client_round(pooled, 1000, 0, 3)[0] == 4 * 2 * 3 * 2  # J is 1, two further sites
    trained = train(within, tmp_path / "run")
    assert trained.point.dual.numel() == 3
    assert (trained.point.dual != 0).all()
    up, down = bytes_per_client_round(within, trained.network.size, trained.outputs.buffers.numel(), 3)
    assert {(entry["bytes_up"], entry["bytes_down"]) for entry in trained.history} == {(3 * up, 3 * down)}


def test_pairs_within_sites_need_sites() -> None:
    with assert_refused(ConfigError, "invalid configuration", keys=["objective.pairs"]):
        check_runs([make_pipeline("centralized_auc", WITHIN)])


def test_centralized_sends_nothing(tmp_path: Path) -> None:
    pipeline = make_pipeline("centralized_auc")
    trained = train(pipeline, tmp_path / "run")
    assert trained.history[-1]["images"] == 2 * 3 * 4  # window, clients whose images were moved, batch
    assert all(entry["bytes_up"] == entry["bytes_down"] == 0 for entry in trained.history)
    assert all(entry["drift"] == 0 for entry in trained.history)


def test_common_positive_ratio() -> None:
    sites, pool = ({"a": 90, "b": 10}, [[0.0], [0.5]]), ({"pool": 100}, [[0.05]])
    for algorithm, weights, (counts, ratios), p in (
        ("codasca", "uniform", sites, 0.25),
        ("codasca", "images", sites, 0.05),
        ("centralized_auc", None, pool, 0.05),
    ):
        pipeline = make_pipeline(algorithm, *([f"federated.weights={weights}"] if weights else []))
        labeled = torch.ones(len(counts), 1).double()
        federation = assemble.Federation.of(pipeline, counts, np.array(ratios), labeled, torch.device("cpu"), 2)
        assert float(federation.population.positive_ratio) == pytest.approx(p)


@pytest.mark.slow_but("group-random_round")
@pytest.mark.parametrize("returned", ["last", "average", "algorithm", "random_round"])
@pytest.mark.parametrize("norm", ["group", "batch"])
def test_coda_stage_starts_at_best_alpha(
    returned: str, norm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With seed 1 the first round of the first stage is drawn, and not the last."""
    pipeline = make_pipeline("coda", f"federated.stage_output={returned}", f"model.norm={norm}", "federated.window=1")
    drawn = returned_round(pipeline.federated, pipeline.seed, 0)
    assert drawn is None or drawn < pipeline.federated.schedule[0].rounds
    begun: list[Point] = []
    points: list[Point] = []
    estimated: list[tuple[Point, Point, list[torch.Tensor]]] = []

    def start_stage(self: ServerEngine, point: Point, *more: torch.Tensor, **others: torch.Tensor) -> Federation:
        begun.append(point)
        return original_start(self, point, *more, **others)

    def restart(self: Coda, point: Point, duals: list[torch.Tensor], weights: list[float]) -> Point:
        result = original_restart(self, point, duals, weights)
        estimated.append((point, result, duals))
        return result

    def current(self: ServerEngine, federation: Federation) -> Point:
        points.append(original_current(self, federation))
        return points[-1]

    original_start, original_restart = ServerEngine.start_stage, Coda.restart
    original_current = ServerEngine.current
    monkeypatch.setattr(ServerEngine, "start_stage", start_stage)
    monkeypatch.setattr(ServerEngine, "current", current)
    monkeypatch.setattr(Coda, "restart", restart)
    train(pipeline, tmp_path / "run")
    ((at, result, duals),) = estimated  # once, for there are two stages
    rounds = pipeline.federated.schedule[0].rounds
    of_first_stage = points[:rounds]
    if returned in ("average", "algorithm"):
        assert not any(torch.equal(at.primal, point.primal) for point in of_first_stage)
    else:
        assert torch.equal(at.primal, of_first_stage[(drawn or rounds) - 1].primal)
    assert torch.equal(begun[1].primal, at.primal)
    torch.testing.assert_close(begun[1].dual, torch.stack(duals).mean(dim=0))
    assert torch.equal(begun[1].dual, result.dual)
    assert not torch.equal(begun[1].dual, at.dual)


@pytest.mark.slow
def test_other_output_rules_recorded(tmp_path: Path) -> None:
    """One stage, so that the rounds are the same whatever it returns."""
    points: list[Point] = []
    results = {}
    for rule in ("last", "average", "algorithm"):
        pipeline = make_pipeline(
            "coda_plus", f"federated.stage_output={rule}", "model.norm=batch", "federated.stages=1"
        )
        results[rule] = train(pipeline, tmp_path / rule)
    with pytest.MonkeyPatch.context() as patch:
        original = ServerEngine.run_round

        def run_round(self: ServerEngine, state: Federation) -> Any:
            state, record = original(self, state)
            points.append(self.current(state))
            return state, record

        patch.setattr(ServerEngine, "run_round", run_round)
        train(make_pipeline("coda_plus", "model.norm=batch", "federated.stages=1"), tmp_path / "again")
    assert torch.equal(results["last"].point.primal, points[-1].primal)
    torch.testing.assert_close(results["average"].point.primal, sum(p.primal for p in points) / len(points))
    assert not torch.equal(results["average"].outputs.buffers, results["last"].outputs.buffers)
    ends = {rule: trained.history[-1] for rule, trained in results.items()}
    for rule, other in (("last", "average"), ("average", "last"), ("algorithm", "last"), ("algorithm", "average")):
        assert ends[rule][f"auc_of_{other}"] == ends[other]["mean_auc"]
        assert rule == "algorithm" or ends[rule][f"auc_of_{rule}"] == ends[rule]["mean_auc"]
    d, buffers = results["last"].network.size, results["last"].outputs.buffers.numel()
    assert ends["average"]["images"] - ends["last"]["images"] == 3 * STATISTICS_BATCHES * 4
    assert ends["average"]["bytes_up"] - ends["last"]["bytes_up"] == 3 * 4 * buffers
    assert ends["average"]["bytes_down"] - ends["last"]["bytes_down"] == 3 * 4 * (d + 2)


@pytest.mark.slow
def test_options_change_bytes_and_steps(tmp_path: Path) -> None:
    plain, sparse, bits, unequal = (
        train(make_pipeline("fedavg", *more), tmp_path / str(number))
        for number, more in enumerate([(), (TOP_K,), (BITS,), (UNEQUAL,)])
    )
    d = plain.network.size
    sizes = [trained.history[0]["bytes_up"] for trained in (plain, sparse, bits, unequal)]
    assert sizes == [3 * 4 * d, 3 * 8 * -(-d // 5), 3 * (d + 4), 3 * 4 * d]
    assert 0 < bits.history[0]["drift"] < 1.1 * plain.history[0]["drift"]  # of decoded points
    assert "steps" not in plain.history[0]
    assert {entry["gradients"] - sum(entry["steps"]) for entry in unequal.history} == {0}
    assert all(
        1 <= made <= most for entry in unequal.history for made, most in zip(entry["steps"], (1, 2, 3), strict=True)
    )
    assert len({tuple(entry["steps"]) for entry in unequal.history}) > 1


@pytest.mark.parametrize(
    ("algorithm", "setting", "kind", "field"),
    [
        ("npa", UNEQUAL, "invalid value", {"key": "methods"}),
        ("codasca", TOP_K, "invalid value", {"key": "methods"}),
        ("scaffold", ADAM, "invalid value", {"key": "methods"}),
        ("fedavg", "federated.local_steps={least: 0.5}", "invalid value", {"key": "federated.local_steps"}),
        (
            *("fedavg", "federated.local_steps={per_client: [1, 2]}", "invalid configuration"),
            {"keys": ["federated.local_steps.per_client"]},
        ),
        ("fedper", "federated.stage_output=average", "invalid value", {"key": "methods"}),
    ],
)
def test_options_that_do_not_go_together(algorithm: str, setting: str, kind: str, field: dict[str, Any]) -> None:
    with assert_refused(ConfigError, kind, **field):
        check_runs([make_pipeline(algorithm, setting)])


def test_fedbn_needs_normalization_layers() -> None:
    fedbn = ALGORITHMS.find("fedbn")
    with assert_refused(ConfigError, "nothing to keep", group="normalization"):
        fedbn.build(fedbn.options(), Setting(1, 0.1, groups={"normalization": ()}))


@pytest.mark.slow_but("codasca")
@pytest.mark.parametrize("algorithm", ["scaffold", "codasca"])
def test_drawn_clients_survive_restart(algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "SECONDS_BETWEEN_SAVES", 0.0)
    pipeline = make_pipeline(algorithm, f"methods.{algorithm}.clients_per_round=2", "federated.stage_steps=8")
    whole = train(pipeline, tmp_path / "whole")
    assert {entry["images"] for entry in whole.history} == {2 * 2 * 4}  # clients, window, batch
    with pytest.raises(Interrupted):
        train(pipeline, tmp_path / "stopped", 3)
    again = train(pipeline, tmp_path / "stopped")
    assert torch.equal(again.point.primal, whole.point.primal)
    assert again.history == whole.history
    settings = pipeline.federated
    drawn = {stage: make_participant_sampler(settings, 1, stage, 3) for stage in (0, 1)}
    rounds = [[tuple(of_stage(number)) for number in range(30)] for of_stage in drawn.values() if of_stage]
    assert set(rounds[0]) == {(0, 1), (0, 2), (1, 2)}
    assert rounds[0] != rounds[1]
    assert make_participant_sampler(settings, 1, 0, 2) is None
    with assert_refused(ConfigError, "invalid value", key="methods"):
        make_pipeline("codasca_minimal", "federated.clients_per_round=2")
