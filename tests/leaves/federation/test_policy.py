"""What a hospital's policy allows, is checked there; studies wait for an approval; the audit counts what happened."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pytest

from chestfed.core.errors import ChestfedError, ConfigError, TrainingError
from chestfed.leaves.federation.description import describe
from chestfed.leaves.federation.hospital.audit import audit
from chestfed.leaves.federation.hospital.log import open_log
from chestfed.leaves.federation.hospital.policy import (
    Usage,
    approve,
    check_images,
    check_personal,
    check_pipeline,
    check_usage,
    is_time,
    read_pending,
)
from chestfed.leaves.federation.parcels import Later, Refused
from chestfed.leaves.federation.server import conversation
from chestfed.leaves.federation.settings import Hospital, HospitalFile, Policy
from tests.cases import assert_refused
from tests.leaves.federation.straight_line import Clock
from tests.leaves.federation.test_study import line_at, pipeline, run_at


def hospital_with(folder: Path, **policy: Any) -> Hospital:
    return Hospital(folder, HospitalFile(hospital="padchest", server="localhost:1", policy=Policy(**policy)))


@pytest.mark.parametrize(
    ("key", "allowed", "refused"),
    [
        ("least_batch_size", 2, 3),
        ("least_window", 2, 3),
        ("most_epochs", 0.5, 0.25),
        ("most_rounds", 100, 1),
        ("require", [], ["clipping"]),
        ("require", [], ["noise"]),
        ("require", [], ["secure_sum"]),
    ],
)
def test_limits_bind_the_pipeline(tmp_path: Path, key: str, allowed: object, refused: object) -> None:
    check_pipeline(pipeline(), hospital_with(tmp_path, **{key: allowed}))
    with assert_refused(Refused, kind="policy"):
        check_pipeline(pipeline(), hospital_with(tmp_path, **{key: refused}))


@pytest.mark.parametrize("algorithm", ["fedper", "ditto", "pdmm"])
def test_own_weights_may_stay(tmp_path: Path, algorithm: str) -> None:
    asked = pipeline(f"methods=[{{algorithm: {algorithm}}}]", "model.norm=group")
    check_pipeline(asked, hospital_with(tmp_path))
    with assert_refused(Refused, kind="policy"):
        check_pipeline(asked, hospital_with(tmp_path, own_weights=False))
    with assert_refused(Refused, kind="policy"):  # whatever the pipeline
        check_personal(Policy(own_weights=False))


def test_scores_of_images_need_consent(tmp_path: Path) -> None:
    scores = pipeline("methods=[{algorithm: fedxl2}]")
    check_pipeline(scores, hospital_with(tmp_path, image_scores=True))
    with assert_refused(Refused, kind="policy"):
        check_pipeline(scores, hospital_with(tmp_path))


def test_clipping_and_noise_are_recognized(tmp_path: Path) -> None:
    clipped = pipeline("methods=[{algorithm: fedavg, aggregation: norm_clipping}]")
    check_pipeline(clipped, hospital_with(tmp_path, require=["clipping"]))
    private = "methods=[{algorithm: fedavg, privacy: {clip: 1.0, noise_multiplier: 1.0, noise: %s}}]"
    norm = "model.norm=group"
    check_pipeline(pipeline(private % "secret", norm), hospital_with(tmp_path, require=["noise", "clipping"]))
    with assert_refused(Refused, kind="policy"):  # whoever knows the seed can take it away
        check_pipeline(pipeline(private % "seed", norm), hospital_with(tmp_path, require=["noise"]))


@pytest.mark.parametrize(
    ("policy", "usage"),
    [
        ({"most_rounds_answered": 5}, {"rounds": 5}),
        ({"most_hours": 1.0}, {"seconds": 3600.0}),
        ({"most_megabytes": 2.0}, {"sent": 2_000_000}),
    ],
)
def test_used_up_limits_refuse(tmp_path: Path, policy: dict[str, Any], usage: dict[str, Any]) -> None:
    check_usage(Policy(**policy), Usage(), "ask")
    used = Usage(**usage)
    with assert_refused(Refused, kind="policy"):
        check_usage(Policy(**policy), used, "ask")
    used.add(tmp_path, is_round=True, seconds=1.0, sent=3)
    assert Usage.read(tmp_path) == used  # a restart does not forget
    (tmp_path / "usage.json").write_text("{")
    with assert_refused(ConfigError, kind="damaged file"):
        Usage.read(tmp_path)


def test_few_images_are_refused() -> None:
    check_images(Policy(least_images=10), 10)
    with assert_refused(Refused, kind="policy"):
        check_images(Policy(least_images=11), 10)


@pytest.mark.parametrize(
    ("spans", "clock", "inside"),
    [
        ((), "12:00", True),
        (("08:00-18:00",), "08:00", True),
        (("08:00-18:00",), "18:00", False),
        (("20:00-06:00",), "23:59", True),
        (("20:00-06:00",), "05:59", True),
        (("20:00-06:00",), "12:00", False),
        (("01:00-02:00", "12:00-13:00"), "12:30", True),
    ],
)
def test_times_of_day(spans: tuple[str, ...], clock: str, *, inside: bool) -> None:
    assert is_time(spans, datetime.datetime.strptime(clock, "%H:%M")) is inside  # noqa: DTZ007


def test_study_waits_for_approval(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = line_at(home, "asked")
    line.set_policy("padchest", approval="required")
    state, waits = line.hospitals["padchest"].path("state"), list[int]()

    class Nights(Clock):
        """While the server waits, somebody at the hospital approves."""

        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            for digest, waiting in read_pending(state).items():
                waits.append(len(describe(waiting, "padchest", "scores")))
                approve(state, digest)

    monkeypatch.setattr(conversation, "time", Nights())
    run_at(home, line, "asked_out")
    assert waits == [11]
    assert any("padchest: waits (the study" in text for text in line.log)
    with assert_refused(ChestfedError, kind="not pending"):
        approve(state, "0" * 16)


def test_policy_ends_a_study_by_name(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "time", Clock())
    line = line_at(home, "capped")
    line.set_policy("padchest", most_rounds_answered=2)
    log = open_log(line.hospitals["padchest"])
    with assert_refused(TrainingError, "failures in a row", hospital="padchest"):
        run_at(home, line, "capped_out")
    log.handlers.pop().close()
    (study,) = audit(line.hospitals["padchest"].path("state"))
    assert study.rounds == {3: 2}
    assert sum(study.unanswered.values()) == 3  # asked as often as the server tries
    assert study.sent > 0
    assert study.title
    assert json.loads(json.dumps(study.plain()))["rounds"] == {"3": 2}
    assert "2 with K=3" in "\n".join(study.lines())


def test_real_sites_send_aucs_by_default(home: Path) -> None:
    line = line_at(home, "defaults", synthetic=False)
    assert {hospital.results for hospital in line.hospitals.values()} == {"aucs"}
    assert line_at(home, "samples").hospitals["padchest"].results == "scores"


def test_edited_log_is_named(tmp_path: Path) -> None:
    with assert_refused(ChestfedError, kind="no log"):
        audit(tmp_path)
    (tmp_path / "hospital.log").write_text('{"time": "now", "text": "open"}\nedited\n')
    with assert_refused(ChestfedError, kind="damaged log", row=2):
        audit(tmp_path)


def test_later_is_a_refusal_of_its_own() -> None:
    with assert_refused(Later, kind="time of day"):
        check_usage(Policy(times=(closed_now(),)), Usage(), "ask")
    check_usage(Policy(times=(closed_now(),)), Usage(), "greet")


def closed_now() -> str:
    """A span of an hour that begins in two."""
    soon = datetime.datetime.now() + datetime.timedelta(hours=2)  # noqa: DTZ005
    return f"{soon:%H:%M}-{soon + datetime.timedelta(hours=1):%H:%M}"
