"""What a hospital's policy allows, is checked there; studies wait for an approval; the audit counts what happened."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from chestfed.core.errors import ChestfedError, ChestfedWarning, ConfigError, TrainingError
from chestfed.learning.engines.messages.wire import Packed
from chestfed.leaves.federation.allowance import Allowance
from chestfed.leaves.federation.description import describe
from chestfed.leaves.federation.handshake import approval_digest
from chestfed.leaves.federation.hospital.audit import audit
from chestfed.leaves.federation.hospital.local import count_patients
from chestfed.leaves.federation.hospital.log import open_log
from chestfed.leaves.federation.hospital.obstacles import find_obstacle
from chestfed.leaves.federation.hospital.participant import Participant
from chestfed.leaves.federation.hospital.plan import planned_models
from chestfed.leaves.federation.hospital.policy import (
    Usage,
    approve,
    check_bytes,
    check_dual,
    check_members,
    check_patients,
    check_personal,
    check_pipeline,
    check_usage,
    check_window,
    is_time,
    limit_hours,
    read_pending,
    revoke,
)
from chestfed.leaves.federation.hospital.proposal import read_pipeline
from chestfed.leaves.federation.parcels import Later, Parcel, Refused
from chestfed.leaves.federation.server import conversation
from chestfed.leaves.federation.settings import Hospital, HospitalFile, Leaves, Policy
from tests.cases import assert_refused
from tests.command_line import call
from tests.leaves.federation.straight_line import Clock, sample_hospital
from tests.leaves.federation.test_participant import greeting
from tests.leaves.federation.test_study import line_at, pipeline, run_at


def hospital_with(folder: Path, **policy: Any) -> Hospital:
    about = {"hospital": "padchest", "server": "localhost:1", "leaves": Leaves(results="aucs")}
    return Hospital(folder, HospitalFile(**about, policy=Policy(**policy)))


@pytest.mark.parametrize(
    ("key", "allowed", "refused"),
    [
        ("least_batch_size", 2, 3),
        ("least_window", 2, 3),
        ("most_epochs", 0.5, 0.25),
        ("most_rounds", 100, 1),
        ("require", [], ["clipping"]),
        ("require", [], ["noise"]),
    ],
)
def test_limits_bind_the_pipeline(tmp_path: Path, key: str, allowed: object, refused: object) -> None:
    check_pipeline(pipeline(), 2, hospital_with(tmp_path, **{key: allowed}))
    with assert_refused(Refused, kind="policy"):
        check_pipeline(pipeline(), 2, hospital_with(tmp_path, **{key: refused}))


def test_fewest_steps_bind_the_window(tmp_path: Path) -> None:
    """Of hospitals that make different numbers of steps, and of stragglers, the fewest count."""
    for steps in ("{per_client: [9, 9, 1]}", "{stragglers: 0.5, least: 0.1}"):
        asked = pipeline("methods=[{algorithm: fedavg}]", f"federated.local_steps={steps}")
        with assert_refused(Refused, kind="policy"):
            check_pipeline(asked, 2, hospital_with(tmp_path, least_window=2))
    epochs = pipeline("methods=[{algorithm: fedavg}]", "federated.local_steps={epochs: 1}")
    check_window(Policy(least_window=3), epochs, 2, 3 * epochs.federated.images_per_step)
    with assert_refused(Refused, kind="policy"):
        check_window(Policy(least_window=4), epochs, 2, 3 * epochs.federated.images_per_step)


def test_few_batches_for_duals_are_refused(tmp_path: Path) -> None:
    """CODA's estimate is an answer about so many images; of any algorithm it is compared when it is asked for."""
    sizes = ["federated.batch_size=8", "pretrain.batch_size=8"]
    asked = pipeline("methods=[{algorithm: {name: coda, dual_batches: 1}}]", *sizes)
    check_pipeline(asked, 2, hospital_with(tmp_path, least_batch_size=4, least_window=2))
    check_dual(Policy(least_batch_size=8, least_window=2), asked, 2)
    with assert_refused(Refused, kind="policy"):
        check_pipeline(asked, 2, hospital_with(tmp_path, least_batch_size=5, least_window=2))
    with assert_refused(Refused, kind="policy"):
        check_dual(Policy(least_batch_size=8, least_window=2), asked, 1)


@pytest.mark.parametrize("algorithm", ["fedper", "ditto", "pdmm"])
def test_own_weights_may_stay(tmp_path: Path, algorithm: str) -> None:
    asked = pipeline(f"methods=[{{algorithm: {algorithm}}}]", "model.norm=group")
    check_pipeline(asked, 2, hospital_with(tmp_path))
    with assert_refused(Refused, kind="policy"):
        check_pipeline(asked, 2, hospital_with(tmp_path, own_weights=False))
    with assert_refused(Refused, kind="policy"):  # whatever the pipeline
        check_personal(Policy(own_weights=False))


def test_stage_1_is_own_weights(tmp_path: Path) -> None:
    """The target trains it alone, and sends it in the open."""
    hospital = hospital_with(tmp_path, own_weights=False)
    check_pipeline(pipeline(), 2, hospital)
    with assert_refused(Refused, kind="policy"):
        check_pipeline(pipeline(), 0, hospital)


def test_scores_of_images_need_consent(tmp_path: Path) -> None:
    scores = pipeline("methods=[{algorithm: fedxl2}]")
    check_pipeline(scores, 2, hospital_with(tmp_path, image_scores=True))
    with assert_refused(Refused, kind="policy"):
        check_pipeline(scores, 2, hospital_with(tmp_path))


def test_clipping_and_noise_are_recognized(tmp_path: Path) -> None:
    clipped = pipeline("methods=[{algorithm: fedavg, aggregation: norm_clipping}]")
    check_pipeline(clipped, 2, hospital_with(tmp_path, require=["clipping"]))
    private = "methods=[{algorithm: fedavg, privacy: {clip: 1.0, noise_multiplier: 1.0, noise: %s}}]"
    norm = "model.norm=group"
    check_pipeline(pipeline(private % "secret", norm), 2, hospital_with(tmp_path, require=["noise", "clipping"]))
    with assert_refused(Refused, kind="policy"):  # whoever knows the seed can take it away
        check_pipeline(pipeline(private % "seed", norm), 2, hospital_with(tmp_path, require=["noise"]))


@pytest.mark.parametrize(
    ("policy", "usage"),
    [
        ({"most_rounds_answered": 5}, {"rounds": 5}),
        ({}, {"rounds": 3 * 8 + 10}),
        ({}, {"others": 3 * (3 * 8 + 10)}),
        ({"most_hours": 1.0}, {"seconds": 3600.0}),
        ({"most_megabytes": 2.0}, {"sent": 2_000_000}),
    ],
)
def test_used_up_limits_refuse(tmp_path: Path, policy: dict[str, Any], usage: dict[str, Any]) -> None:
    asked = pipeline("federated.stages=1", "federated.window=2", "federated.stage_steps=16")
    check_usage(Policy(**policy), Usage(), asked, 2, "ask")
    used = Usage(**usage)
    with assert_refused(Refused, kind="policy"):
        check_usage(Policy(**policy), used, asked, 2, "ask")
    used.begin(tmp_path, "rounds")
    assert Usage.read(tmp_path).rounds == used.rounds == usage.get("rounds", 0) + 1  # whatever comes of it
    assert used.end(tmp_path, seconds=1.0, sent=3) == "rounds"
    assert used.end(tmp_path, seconds=1.0, sent=3) == ""
    assert Usage.read(tmp_path) == used  # a restart does not forget
    (tmp_path / "usage.json").write_text("{")
    with assert_refused(ConfigError, kind="damaged file"):
        Usage.read(tmp_path)


def test_models_that_are_scored_are_counted() -> None:
    asked = pipeline()
    most = 3 * planned_models(asked) + 10
    check_usage(Policy(), Usage(models=most - 1), asked, 0, "score")
    check_usage(Policy(), Usage(models=most), asked, 0, "ask")
    for policy, used in ((Policy(), most), (Policy(most_models_scored=4), 4)):
        with assert_refused(Refused, kind="policy"):
            check_usage(policy, Usage(models=used), asked, 0, "score")


@pytest.mark.parametrize(("patients", "classes"), [(9, [(10, 10, 0)]), (20, [(9, 11, 0)]), (20, [(11, 9, 0)])])
def test_few_patients_are_refused(patients: int, classes: list[tuple[int, int, int]]) -> None:
    check_patients(Policy(least_patients=10), 20, [(10, 10, 3), (0, 20, 0)])
    with assert_refused(Refused, kind="policy"):
        check_patients(Policy(least_patients=10), patients, classes)


def test_patients_are_counted_once() -> None:
    """Twelve positive images of one patient are one patient."""
    labels = np.array([[1.0]] * 12 + [[0.0], [np.nan]])
    assert count_patients(labels, np.array(["a"] * 12 + ["b", "b"])) == [(1, 1, 1)]


def test_long_request_is_broken_off(tmp_path: Path) -> None:
    began = time.monotonic()
    with assert_refused(Refused, kind="policy"), limit_hours(Policy(most_hours=1.0), Usage(seconds=3599.8)):
        while time.monotonic() < began + 20:
            with contextlib.suppress(ValueError):
                time.sleep(0.01)
    assert time.monotonic() < began + 15


def test_long_greeting_is_broken_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of a false name; its seconds count, and the next one is refused before a network is built."""
    built = list[int]()

    def build(*_: object) -> None:
        built.append(1)
        while time.monotonic() < began + 20:
            time.sleep(0.01)

    sample = sample_hospital("padchest", tmp_path, tmp_path / "data")
    hospital = replace(sample, file=sample.file.model_copy(update={"policy": Policy(most_hours=2 / 3600)}))
    asked, began = greeting(pipeline()), time.monotonic()
    false = greeting(pipeline(), "0" * 64)
    monkeypatch.setattr("chestfed.leaves.federation.handshake.try_network", build)
    assert "most_hours" in Participant(hospital, lambda text: None)(false).values["refused"]
    assert time.monotonic() < began + 15
    assert "most_hours" in Participant(hospital, lambda text: None)(asked).values["refused"]
    assert built == [1]


def test_end_of_times_breaks_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that began before: it is asked again."""
    began = time.monotonic()

    class Evening(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Evening:
            return cls(2026, 1, 1, 11, 59, 59, 500_000) + datetime.timedelta(seconds=time.monotonic() - began)

    monkeypatch.setattr("chestfed.leaves.federation.hospital.policy.datetime.datetime", Evening)
    policy = Policy(times=("10:00-12:00",))
    with assert_refused(Later, kind="time of day"), limit_hours(policy, Usage()):
        while time.monotonic() < began + 20:
            with contextlib.suppress(ValueError):
                time.sleep(0.01)
    assert time.monotonic() < began + 15
    began = time.monotonic()
    with limit_hours(Policy(times=("10:00-12:00", "12:00-12:30")), Usage()):  # a minute ends, and no more
        time.sleep(0.7)


def test_large_answer_is_not_sent() -> None:
    check_bytes(Policy(most_megabytes=1.0), Usage(sent=900_000), 100_000)
    with assert_refused(Refused, kind="policy"):
        check_bytes(Policy(most_megabytes=1.0), Usage(sent=900_000), 100_001)


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
    hospital, waits = line.hospitals["padchest"], list[str]()

    class Nights(Clock):
        """While the server waits, somebody at the hospital approves."""

        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            for digest, waiting in read_pending(hospital).items():
                waits.extend(describe(waiting, "padchest", "scores"))
                assert f"uid {os.getuid()}" in approve(hospital, digest).by  # the environment could name anybody
                approved.append(digest)

    approved = list[str]()
    monkeypatch.setattr(conversation, "time", Nights())

    def take_back(done: int) -> None:
        if done == 2:
            assert revoke(hospital, approved[0]).revoked

    with assert_refused(TrainingError, "failures in a row", hospital="padchest"):
        run_at(home, line, "asked_out", take_back)
    assert len(approved) == 1
    text = "\n".join(waits)
    for part in ("buffers", "mean gradient", "histogram", "member: it trains", " MB; "):
        assert part in text
    assert any("padchest: waits (the study" in text for text in line.log)
    assert any("not approved any more" in text for text in line.log)
    with assert_refused(ChestfedError, kind="not pending"):
        approve(hospital, "0" * 64)
    with assert_refused(ChestfedError, kind="not approved"):
        revoke(hospital, approved[0])


def test_missing_split_is_found_before_approval(home: Path) -> None:
    """The hospital's screen says what is there; the server the key alone, and no file is read for a server."""
    sample = sample_hospital("chexpert", home / "split", home / "synthetic_hospitals")
    hospital = replace(sample, file=sample.file.model_copy(update={"policy": Policy(approval="required")}))
    wrong = pipeline("evaluation.split=test")
    with assert_refused(Later, kind="not approved"):
        check_pipeline(wrong, 0, hospital)
    ((digest, waiting),) = read_pending(hospital).items()
    assert "set evaluation.split: valid" in find_obstacle(digest, waiting, hospital)
    with assert_refused(Refused, kind="cannot begin", study=digest) as refused:
        check_pipeline(wrong, 0, hospital)
    told = str(refused.value)
    assert "no image for evaluation.split: test" in told
    assert "images)" not in told
    assert str(home) not in told
    right = pipeline()
    with assert_refused(Later, kind="not approved"):
        check_pipeline(right, 0, hospital)
    assert not find_obstacle(approval_digest(right), right, hospital)


def test_what_leaves_is_part_of_an_approval(tmp_path: Path) -> None:
    """Approved for AUCs, a study waits again when scores are to leave; at most twenty wait."""
    sample = sample_hospital("padchest", tmp_path, tmp_path / "data", Leaves(results="aucs"))
    hospital = replace(sample, file=sample.file.model_copy(update={"policy": Policy(approval="required")}))
    with assert_refused(Later, kind="not approved"):
        check_pipeline(pipeline(), 2, hospital)
    (digest,) = read_pending(hospital)
    approve(hospital, digest)
    check_pipeline(pipeline(), 2, hospital)
    scores = replace(hospital, file=hospital.file.model_copy(update={"leaves": Leaves(results="scores")}))
    with assert_refused(Later, kind="not approved"):
        check_pipeline(pipeline(), 2, scores)
    policy = Policy(approval="required", most_hours=1.0)
    check_pipeline(pipeline(), 2, replace(hospital, file=hospital.file.model_copy(update={"policy": policy})))
    without, noised = (
        replace(hospital, file=hospital.file.model_copy(update={"policy": Policy(approval="required", **noise)}))
        for noise in ({}, {"noise": "local"})
    )
    approve(noised, digest)  # with noise, which is then taken away
    with assert_refused(Later, kind="not approved"):
        check_pipeline(pipeline(), 2, without)
    for seed in range(19):
        with assert_refused(Later, kind="not approved"):
            check_pipeline(pipeline(f"seed={seed + 100}"), 2, scores)
    with assert_refused(Refused, kind="too many pending"):
        check_pipeline(pipeline("seed=99"), 2, scores)


def test_policy_ends_a_study_by_name(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "time", Clock())
    line = line_at(home, "capped")
    line.set_policy("padchest", most_rounds_answered=2)
    log = open_log(line.hospitals["padchest"])
    with assert_refused(TrainingError, "failures in a row", hospital="padchest"):
        run_at(home, line, "capped_out")
    log.handlers.pop().close()
    found = audit(line.hospitals["padchest"].path("state"))
    (study,) = found.studies
    assert found.problems == []
    assert study.rounds == {3: 2}
    assert sum(study.unanswered.values()) == 3  # asked as often as the server tries
    assert study.sent > 0
    assert study.title
    hospital = line.hospitals["padchest"]
    stored = yaml.safe_load((hospital.path("state") / study.study / "pipeline.yaml").read_text(encoding="utf-8"))
    assert study.approval == approval_digest(read_pipeline(stored, hospital))
    assert study.approval in "\n".join(study.lines())
    assert json.loads(json.dumps(study.plain()))["rounds"] == {"3": 2}
    assert "2 with K=3" in "\n".join(study.lines())
    assert any("ask: Worked.update" in text for text in study.lines(fields=True))
    saw = {entry["hospital"]: entry["details"] for entry in read_events(home / "capped_out") if entry["event"] == "log"}
    assert saw["padchest"] == f"its last line is {found.lines}:{found.head}"


def test_real_sites_send_aucs_by_default(home: Path) -> None:
    line = line_at(home, "defaults", synthetic=False)
    assert {hospital.results for hospital in line.hospitals.values()} == {"aucs"}
    assert line_at(home, "samples").hospitals["padchest"].results == "scores"


def read_events(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "federation.jsonl").read_text().splitlines()]


def write_log(folder: Path, texts: Sequence[str], head: tuple[int, str] | None = None) -> Path:
    """The log of a hospital with a line for each text, and a greeting of a server that has seen the line `head`."""
    log = open_log(Hospital(folder, HospitalFile(hospital="padchest", server="localhost:1", state="state")))
    for text in texts:
        log.info(text)
    if head is not None:
        log.info({"request": "greet", "outcome": "answered", "received": 0, "agreed": True, "seen": list(head)})
    log.handlers.pop().close()
    return folder / "state" / "hospital.log"


def change_line(lines: list[str]) -> list[str]:
    return [line.replace("b", "x", 1) if number == 1 else line for number, line in enumerate(lines)]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda lines: lines, ""),
        (lambda lines: lines[1:], "lines 1 to 1 are missing"),
        (lambda lines: [lines[0], *lines[2:]], "lines 2 to 2 are missing"),
        (lambda lines: lines[:2], "which a greeting names"),
        (change_line, "was altered"),
        (lambda lines: [lines[1], lines[0], *lines[2:]], "in the wrong place"),
        (lambda lines: [lines[0], "edited", *lines[2:]], "not a line of this log"),
        (lambda lines: [lines[0], "5", *lines[2:]], "not a line of this log"),
        (lambda lines: [lines[0].replace('{"line"', '{"text": "forged", "line"'), *lines[1:]], "was altered"),
        (lambda lines: [lines[0].replace(": ", ":  "), *lines[1:]], "was altered"),
        (lambda lines: [json.dumps(dict(reversed(json.loads(lines[0]).items()))), *lines[1:]], "was altered"),
    ],
    ids=["as written", "first", "middle", "last", "altered", "order", "edited", "number", "twice", "space", "keys"],
)
def test_changed_log_is_reported(tmp_path: Path, change: Callable[[list[str]], list[str]], problem: str) -> None:
    with assert_refused(ChestfedError, kind="no log"):
        audit(tmp_path / "state")
    file = write_log(tmp_path, ["a b", "b c", "c d", "d e"])
    before = audit(file.parent)
    assert (before.problems, before.lines) == ([], 4)
    file.write_text("\n".join(change(file.read_text().splitlines())) + "\n", newline="\n")
    write_log(tmp_path, ["after"], (4, before.head))  # the hospital goes on, and the server greets it
    found = audit(file.parent)
    problems = [*found.problems, *found.claims]
    assert bool(problems) == bool(problem)
    assert problem in "\n".join(problems)


def test_invented_line_fails_no_audit_for_ever(tmp_path: Path) -> None:
    """One that a greeting names is shown; one that is given on the command line, and is not there, is a problem."""
    (tmp_path / "hospital.yaml").write_text("hospital: padchest\nserver: localhost:1\nstate: state\n")
    file, invented = write_log(tmp_path, ["a b", "b c"], (2, "0" * 64)), f"2:{'0' * 64}"
    found = audit(file.parent)
    assert (found.problems, len(found.claims)) == ([], 1)
    for options, code in (((), 0), (("--head", f"3:{found.head}"), 0), (("--head", invented), 1)):
        called = call("federation", "audit", tmp_path, "--json", *options)
        assert (called.code, len(json.loads(called.out)["result"]["claims"])) == (code, 1)
    assert "which a greeting names" in call("federation", "audit", tmp_path).out


@pytest.mark.parametrize("ending", [b"\r\n", b"\r"])
def test_changed_line_ends_are_reported(tmp_path: Path, ending: bytes) -> None:
    file = write_log(tmp_path, ["a b", "b c"])
    lines = file.read_bytes()
    for count in (1, -1):
        file.write_bytes(lines.replace(b"\n", ending, count))
        assert audit(file.parent).problems


@pytest.mark.parametrize("left", [1, 2, 0])
def test_torn_line_is_named_and_numbers_go_on(tmp_path: Path, left: int) -> None:
    """A kill while a line is written, of the first one too."""
    file = write_log(tmp_path, ["a b", "b c", "c d"][: left + 1])
    file.write_bytes(file.read_bytes()[:-30])
    found = audit(file.parent)
    assert found.lines == left
    assert [problem for problem in found.problems if f"line {left + 1} was begun and not ended" in problem]
    write_log(tmp_path, ["after"])
    after = audit(file.parent)
    assert (after.problems, after.lines) == ([], left + 2)
    texts = [json.loads(line)["text"] for line in file.read_text().splitlines()]
    assert '"text": "' + ["a b", "b c", "c d"][left] in texts[-2]  # what there was of it is kept
    assert texts[-1] == "after"


def test_full_disk_tears_no_other_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written of a line before the disk was full is named by the next one."""
    log = open_log(hospital_with(tmp_path))
    log.info("before")
    file, dumps = tmp_path / "state" / "hospital.log", json.dumps

    def fill(value: Any) -> str:
        if "chain" in value:
            with file.open("a") as half:
                half.write(dumps(value)[:40])
            raise OSError(28, "No space left on device")
        return dumps(value)

    with monkeypatch.context() as full:
        full.setattr("chestfed.leaves.federation.hospital.log.json.dumps", fill)
        log.info("lost")
    log.info("after")
    log.handlers.pop().close()
    found = audit(file.parent)
    assert (found.problems, found.lines) == ([], 3)
    assert "line 2 was begun and not ended" in json.loads(file.read_text().splitlines()[1])["text"]


@pytest.mark.parametrize(
    "block", [Path.mkdir, lambda file: file.symlink_to("/dev/full")], ids=["a folder", "a full disk"]
)
def test_no_line_means_no_answer(tmp_path: Path, block: Callable[[Path], object]) -> None:
    """While the log cannot be written nothing leaves; once it can, the hospital goes on with the next line."""
    if os.name == "nt":
        pytest.skip("Windows has no such file, and lets nobody move the log away")
    hospital = sample_hospital("padchest", tmp_path, tmp_path / "data")
    log, asked = open_log(hospital), greeting(pipeline())
    participant, file = Participant(hospital, lambda text: None), hospital.path("state") / "hospital.log"
    replies = [participant(asked).values]
    file.rename(file.with_name("kept"))
    block(file)
    replies += [participant(asked).values for _ in range(2)]
    assert all(reply["refused"].startswith("the hospital cannot write to its disk") for reply in replies[1:])
    assert not any("device" in reply for reply in replies[1:])
    file.rmdir() if file.is_dir() else file.unlink()
    file.with_name("kept").rename(file)
    replies.append(participant(asked).values)
    log.handlers.pop().close()
    assert "refused" not in replies[3]
    found = audit(file.parent, [tuple(reply["log"]) for reply in replies])
    assert (found.problems, found.lines) == ([], 2)


def test_damaged_end_of_the_log_stays(tmp_path: Path) -> None:
    file = write_log(tmp_path, ["a b", "b c"])
    file.write_text(file.read_text().splitlines()[0] + "\nedited\n")
    write_log(tmp_path, ["after"])
    (problem,) = audit(file.parent).problems
    assert "not a line of this log" in problem


def test_removed_file_of_the_log_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chestfed.leaves.federation.hospital.log.FILE_BYTES", 1000)
    file = write_log(tmp_path, ["x" * 300] * 12)
    files = sorted(file.parent.glob("hospital.log.*"))
    assert len(files) > 2
    assert audit(file.parent).problems == []
    files[1].unlink()
    assert "are missing" in audit(file.parent).problems[0]
    write_log(tmp_path, ["x" * 300] * 12)  # no file is written over
    assert len(audit(file.parent).problems) == 1


def test_strangers_push_nothing_out(tmp_path: Path) -> None:
    """Refused greetings with long texts fill neither lines nor the disk."""
    hospital = sample_hospital("padchest", tmp_path, tmp_path / "data")
    log = open_log(hospital)
    participant = Participant(hospital, lambda text: None)
    for number in range(300):
        participant(Parcel({"kind": "greet", "to": "x" * 9000, "study": f"{number:064x}"}))
    log.handlers.pop().close()
    found, file = audit(hospital.path("state")), hospital.path("state") / "hospital.log"
    assert found.problems == []
    assert found.lines == 101
    assert found.missed == {"of no study": 200}
    assert max(map(len, file.read_text().splitlines())) < 2000
    assert len(list(file.parent.glob("hospital.log*"))) == 1


@pytest.mark.slow
def test_refusals_of_a_study_are_bounded(tmp_path: Path) -> None:
    """Of a study that was agreed upon: texts and lines, and answers that make ready; their numbers stay."""
    hospital = sample_hospital("padchest", tmp_path, tmp_path / "data")
    log, said, asked = open_log(hospital), list[str](), greeting(pipeline())

    def report(text: str) -> None:
        said.append(text)
        log.info(text)

    participant = Participant(hospital, report)
    for _ in range(150):
        participant(Parcel({"kind": "score", "test": "study", "to": "padchest", "study": asked.values["study"]}))
        participant(asked)
    for _ in range(150):
        participant(Parcel({"kind": "nothing", "to": "padchest", "study": asked.values["study"]}))
    open_log(hospital).handlers.pop().close()  # it is started again
    found = audit(hospital.path("state"))
    assert found.missed == {"not answered": 199, "answered, to greet or begin": 50}
    (study,) = found.studies
    assert found.problems == []
    assert study.requests["greet"] == 100
    assert sum(study.unanswered.values()) == 101  # one before the study was agreed upon
    assert sum(text.startswith("refused") for text in said) == 100


def test_servers_texts_begin_no_line(tmp_path: Path) -> None:
    """On the screen, and in the listing of the audit."""
    hospital, said, forged = (
        sample_hospital("padchest", tmp_path, tmp_path / "data"),
        list[str](),
        "a\nstudy 0: \x1b[2J",
    )
    log, asked = open_log(hospital), greeting(pipeline().model_copy(update={"title": forged}))
    participant = Participant(hospital, said.append)
    assert "refused" not in participant(asked).values
    for change in ({"to": forged}, {"passport": {forged: "1"}}):
        assert "refused" in participant(Parcel(asked.values | change)).values
    log.handlers.pop().close()
    (study,) = audit(hospital.path("state")).studies
    assert "a study 0: ?[2J" in study.lines()[0]
    assert len(said) == 3
    assert all(line.isprintable() for line in [*said, *study.lines(fields=True)])


def test_servers_numbers_are_bounded_in_a_line(tmp_path: Path) -> None:
    hospital = sample_hospital("padchest", tmp_path, tmp_path / "data")
    log, asked, huge = open_log(hospital), greeting(pipeline()), 10**4000
    header = f'{{"record": "Work", "plain": {{"after": {huge}}}, "tensors": []}}'
    participant = Participant(hospital, lambda text: None)
    participant(Parcel(asked.values | {"k": huge, "log": [huge, "0" * 64]}))
    participant(Parcel(asked.values | {"k": 3, "log": [1, "0" * 64]}))
    participant(Parcel({"kind": "ask", "to": "padchest", "k": -huge}, Packed(header.encode(), {})))
    log.handlers.pop().close()
    lines = (hospital.path("state") / "hospital.log").read_text().splitlines()
    assert max(map(len, lines)) < 1024
    assert [json.loads(line).get("k") for line in lines] == [None, 3, None]
    assert [json.loads(line).get("seen") for line in lines] == [None, [1, "0" * 64], None]
    assert [json.loads(line).get("turn") for line in lines] == [None] * 3


def test_number_is_written_when_the_hour_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("chestfed.leaves.federation.hospital.log.Allowance", lambda: Allowance(clock=lambda: now[0]))
    hospital = hospital_with(tmp_path)
    log = open_log(hospital)
    for _ in range(130):
        log.info({"request": "greet", "outcome": "refused", "received": 0})
    log.handlers[0].flush()
    assert audit(tmp_path / "state").missed == {}
    now[0] = 3600.0
    log.handlers[0].flush()  # the hospital waits for questions, and none comes
    found = audit(tmp_path / "state")
    assert (found.problems, found.missed) == ([], {"of no study": 30})
    log.handlers.pop().close()
    assert audit(tmp_path / "state").lines == 101


def test_k_of_few_members_is_refused() -> None:
    check_members(Policy(), 1, 1)
    check_members(Policy(), 3, 2)  # one has left
    check_members(Policy(least_members=1), 3, 1)
    for policy, k, members in ((Policy(), 2, 1), (Policy(), 3, 1), (Policy(least_members=4), 3, 2)):
        with assert_refused(Refused, kind="policy"):
            check_members(policy, k, members)


def test_unreadable_pending_file_stops_no_other(tmp_path: Path) -> None:
    hospital = hospital_with(tmp_path, approval="required")
    with assert_refused(Later, "not approved"):
        check_pipeline(pipeline().model_copy(update={"title": "One\nstudy 0: approved"}), 2, hospital)
    (tmp_path / "state" / "pending" / "0.yaml").write_text("{")
    with pytest.warns(ChestfedWarning):
        (waiting,) = read_pending(hospital).values()
    assert all("\n" not in line for line in describe(waiting, "padchest", "aucs"))


def test_later_is_a_refusal_of_its_own() -> None:
    with assert_refused(Later, kind="time of day"):
        check_usage(Policy(times=(closed_now(),)), Usage(), pipeline(), 2, "ask")


def test_hospital_rests_outside_its_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It makes nothing ready either; that a study waits for an approval is said at any time."""
    with assert_refused(Later, kind="time of day"):
        check_usage(Policy(times=(closed_now(),)), Usage(), pipeline(), 2, "begin")
    monkeypatch.setattr("chestfed.leaves.federation.hospital.participant.new_network", None)
    hospital = sample_hospital("padchest", tmp_path, tmp_path / "data")
    for approval, reason in (("required", "waits for an approval"), ("none", "computes at")):
        policy = Policy(times=(closed_now(),), approval=approval)  # type: ignore[arg-type]
        resting = replace(hospital, file=hospital.file.model_copy(update={"policy": policy}))
        answer = Participant(resting, lambda text: None)(greeting(pipeline()))
        assert reason in answer.values["refused"]
    assert len(read_pending(resting)) == 1


def closed_now() -> str:
    """A span of an hour that begins in two."""
    soon = datetime.datetime.now() + datetime.timedelta(hours=2)  # noqa: DTZ005
    return f"{soon:%H:%M}-{soon + datetime.timedelta(hours=1):%H:%M}"
