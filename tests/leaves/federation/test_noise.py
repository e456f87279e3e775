"""Clipping and noise at the hospital: nothing else of a round leaves, and epsilon is counted and limited."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("opacus", reason="needs chestfed[privacy]")

from chestfed.core.errors import TrainingError
from chestfed.learning.algorithms import ALGORITHMS
from chestfed.learning.algorithms.variables import Point
from chestfed.learning.engines.messages.requests import Worked
from chestfed.learning.exchange.noise import compose_epsilon, epsilon
from chestfed.leaves.federation.hospital.noise import add_noise, check_buffers, check_epsilon, list_unnoised
from chestfed.leaves.federation.hospital.policy import check_pipeline
from chestfed.leaves.federation.parcels import Parcel, Refused
from chestfed.leaves.federation.server import conversation
from chestfed.leaves.federation.settings import Policy
from chestfed.studies.experiment.stage_2 import Federated
from tests.cases import assert_refused
from tests.leaves.federation.free_server import FreeServer
from tests.leaves.federation.straight_line import Clock
from tests.leaves.federation.test_attacks import FEDAVG, data_of, group, hospital_at
from tests.leaves.federation.test_policy import hospital_with
from tests.leaves.federation.test_study import line_at, pipeline, run_at

GROUP = "model.norm=group"


def test_change_is_clipped_and_noised() -> None:
    torch.manual_seed(0)
    start = Point(torch.randn(20_000), torch.zeros(0))
    policy = Policy(noise="local", noise_clip=2.0, noise_multiplier=0.25)
    moved = Worked(Point(start.primal + 5.0, torch.zeros(0)), torch.zeros(0), torch.ones(20_000), 0.7, 4, 8)
    sent = add_noise(policy, moved, start)
    change = (sent.update.primal - start.primal).double()
    assert float(change.std()) == pytest.approx(0.5, rel=0.05)
    assert float(change.mean()) * 20_000**0.5 == pytest.approx(2.0, abs=2.0)  # of a length of 2, not of 707
    assert (float(sent.slope.abs().max()), sent.loss) == (0.0, 0.0)
    again = add_noise(policy, moved, start)
    assert not torch.equal(again.update.primal, sent.update.primal)  # of the system's entropy


def test_epsilon_is_counted_and_limited() -> None:
    most = epsilon(2.0, 10, 1e-5)
    policy = Policy(noise="local", noise_multiplier=2.0, most_epsilon=most)
    assert check_epsilon(policy, 9, {2.0: 9}) == most
    for rounds, noised in ((10, {2.0: 10}), (9, {2.0: 8, 1.0: 1}), (9, {2.0: 8}), (1, {})):  # the last have none
        with assert_refused(Refused, kind="policy"):
            check_epsilon(policy, rounds, noised)
    assert epsilon(1.0, 3, 1e-5) < check_epsilon(Policy(noise="local", noise_multiplier=9.0), 3, {1.0: 3})


@pytest.mark.parametrize(
    ("settings", "place"),
    [
        (["methods=[{algorithm: codasca}]"], 2),
        (["methods=[{algorithm: fedper}]"], 2),
        (["methods=[{algorithm: fedavg, compression: {kind: top_k}}]"], 2),
        (["methods=[{algorithm: fedavg}]"], 0),
    ],
)
def test_what_leaves_without_noise_is_refused(tmp_path: Path, settings: list[str], place: int) -> None:
    hospital = hospital_with(tmp_path, noise="local")
    check_pipeline(pipeline("methods=[{algorithm: fedavg}]", GROUP), 2, hospital)
    with assert_refused(Refused, kind="policy"):
        check_pipeline(pipeline(*settings, GROUP), place, hospital)
    check_buffers(Policy(noise="local"), 0)
    with assert_refused(Refused, kind="policy"):
        check_buffers(Policy(noise="local"), 1)


def test_not_finite_round_says_nothing(home: Path) -> None:
    """That an update is not finite would be told without noise: it is no change, noised, sent and counted."""
    policy = {"noise": "local", "most_epsilon": epsilon(1.0, 2, 1e-5)}
    server = FreeServer(hospital_at(home / "oracle", data_of(home), **policy), group(FEDAVG))
    assert server.begin("chexpert", "chestxray8", "padchest") == ""
    kept = server.participant._studies[server.study].stage_2
    assert kept is not None
    for rounds in (1, 2):
        assert server.work(server.overflow()) == ""
        assert server.usage["rounds"] == rounds
        assert kept.host.snapshots.keys() == {1, 2}
    assert "most_epsilon" in server.work(server.overflow())


@pytest.mark.parametrize("kept", ["all", "rounds", "none"])
def test_other_multiplier_forgets_nothing(home: Path, kept: str) -> None:
    """Rounds count with the multiplier that they had; where that is not known, none is answered."""
    most = epsilon(1.0, 1, 1e-5)
    policies: list[dict[str, Any]] = [
        {"noise": "local", "noise_multiplier": number, "most_epsilon": 1.1 * most} for number in (1.0, 4.0)
    ]
    hospital = hospital_at(home / f"louder_{kept}", data_of(home), **policies[0])
    server = FreeServer(hospital, group(FEDAVG))
    assert server.begin("chexpert", "chestxray8", "padchest") + server.work() == ""
    assert "most_epsilon" in server.work()
    server.hospital = replace(hospital, file=hospital.file.model_copy(update={"policy": Policy(**policies[1])}))
    file = hospital.path("state") / server.study / "usage.json"
    if kept == "rounds":  # as an earlier version wrote it
        file.write_text(json.dumps({key: value for key, value in server.usage.items() if key != "noised"}))
    if kept == "none":
        file.unlink()
    server.start_hospital()
    assert server.begin("chexpert", "chestxray8", "padchest") == ""
    if kept == "all":
        assert server.work() + server.work() == ""
        assert server.usage["noised"] == {"1.0": 1, "4.0": 2}
        assert compose_epsilon({1.0: 1, 4.0: 3}, 1e-5) > 1.1 * most
    assert "most_epsilon" in server.work()


def test_page_lists_what_can_be_noised() -> None:
    page = (Path(__file__).parents[3] / "docs" / "privacy.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^\| algorithms \| (.*) \|$", page, re.MULTILINE)
    settings = [Federated.model_validate({"algorithm": name}) for name in ALGORITHMS.built_in]
    there = [one for one in settings if not one.spec.pooled and one.objective_spec.kind != "server-weighted"]
    asked: list[Any] = [SimpleNamespace(federated=one) for one in there]  # that a federation does not refuse
    noised = {one.federated.spec.name for one in asked if not [*list_unnoised(one, 1)]}
    assert {*re.findall("`([a-z_]+)`", line)} == noised


@pytest.mark.slow
def test_study_ends_where_epsilon_does(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "time", Clock())
    line, losses = line_at(home, "noised"), list[str]()
    line.set_policy("padchest", noise="local", noise_multiplier=1.0, most_epsilon=epsilon(1.0, 2, 1e-5))

    def listen(name: str, reply: Parcel) -> Parcel:
        losses.extend([name] * (b'"Worked"' in reply.packed.header and b'"loss": 0.0' in reply.packed.header))
        return reply

    line.tamper = listen
    with assert_refused(TrainingError, "failures in a row", hospital="padchest"):
        run_at(home, line, "noised_out", settings=["methods=[{algorithm: fedavg}]", GROUP])
    assert losses == ["padchest"] * 2
    assert any("most_epsilon" in text for text in line.log)
