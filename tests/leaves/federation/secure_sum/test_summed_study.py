"""Studies whose updates are summed with masks: the table of one process, through dropouts and restarts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from chestfed.core.errors import ConfigError, TrainingError
from chestfed.learning.algorithms.variables import Point
from chestfed.learning.engines.messages.requests import Worked
from chestfed.learning.engines.sums.fixed_point import decode, unweigh, weigh
from chestfed.leaves.federation import keys
from chestfed.leaves.federation.hospital.summing import Summing
from chestfed.leaves.federation.parcels import Parcel, Refused
from chestfed.leaves.federation.server import conversation
from tests.cases import assert_refused
from tests.leaves.federation.straight_line import Clock, StraightLine, sample_hospital
from tests.leaves.federation.test_study import SETTINGS, line_at, over_hospitals, pipeline, run_at, table_in
from tests.studies.training.tiny_studies import run, study


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "time", Clock())


def with_keys(line: StraightLine) -> StraightLine:
    """Every hospital has its key, and the public keys of all."""
    private = {name: keys.new_key() for name in line.hospitals}
    for hospital in line.hospitals.values():
        folder = hospital.path("members")
        folder.mkdir(exist_ok=True)
        hospital.path("key").unlink(missing_ok=True)
        keys.save_key(hospital.path("key"), private[hospital.file.hospital])
        for name, key in private.items():
            keys.save_public_key(folder / f"{name}.pub", key)
    return line


def make_settings(algorithm: str, **more: str) -> list[str]:
    options = ", ".join(f"{key}: {value}" for key, value in {"aggregation": "secure_sum", **more}.items())
    return [f"methods=[{{algorithm: {algorithm}, {options}}}]"]


@pytest.mark.parametrize("algorithm", ["codasca", "scaffold", "coda_plus", "fedavg", "fedprox"])
def test_masked_sums_equal_one_process(home: Path, algorithm: str) -> None:
    settings = make_settings(algorithm)
    result = run(home, study("--out", f"plain_{algorithm}", "--no-tracking", settings=[*SETTINGS, *settings]))
    assert result.code == 0, result.err
    line, seen = with_keys(line_at(home, f"masked_{algorithm}")), list[bytes]()

    def listen(name: str, reply: Parcel) -> Parcel:
        seen.append(reply.packed.header)
        return reply

    line.tamper = listen

    def trouble(done: int) -> None:
        if done == 1:
            line.start_anew("padchest")

    table = over_hospitals(home, line, f"masked_{algorithm}_out", trouble, settings)
    assert table == table_in(home / f"plain_{algorithm}")
    assert any(b'"Masked"' in header for header in seen)
    assert not any(b'"Worked"' in header for header in seen)  # nobody's own update leaves


def test_restart_within_a_sum_is_made_again(home: Path) -> None:
    settings, once = make_settings("fedavg"), ["reveal", "share"]
    line = with_keys(line_at(home, "restarted_sum"))

    def restart(name: str, reply: Parcel) -> Parcel:
        for step, key in (("reveal", "signature"), ("share", "keys")):
            if name == "padchest" and key in reply.values and step in once:
                once.remove(step)
                line.start_anew(name)
        return reply

    line.tamper = restart
    table = over_hospitals(home, line, "restarted_sum_out", settings=settings)
    assert once == []
    result = run(home, study("--out", "plain_again", "--no-tracking", settings=[*SETTINGS, *settings]))
    assert result.code == 0, result.err
    assert table == table_in(home / "plain_again")


def test_sum_excludes_a_dropped_hospital(home: Path) -> None:
    settings = [*make_settings("fedavg", absent="drop"), "k=[4]"]
    line = with_keys(line_at(home, "dropout"))

    def drop(name: str, reply: Parcel) -> Parcel:
        if name == "padchest" and "shares" in reply.values:
            line.slow = {"padchest"}  # it has shared its secrets, and sends no masked values
        if name == "chexpert" and "revealed" in reply.values:
            line.slow = set()
        return reply

    line.tamper = drop
    folder = run_at(home, line, "dropout_out", settings=settings).folder
    entries = map(json.loads, (folder / "k4" / "rounds.jsonl").read_text().splitlines())
    absent = [entry["absent"] for entry in entries if "absent" in entry]
    assert absent
    assert all(names == ["padchest"] for names in absent)


@pytest.mark.parametrize(("last", "lap", "restarted"), [("mimic_cxr", 1, True), ("chexpert", 2, False)])
def test_revealed_round_is_finished(home: Path, last: str, lap: int, restarted: bool) -> None:
    """The server ends when a round is revealed and not saved; then a hospital of that round leaves for good."""
    settings, out = [*make_settings("fedavg", absent="drop"), "k=[4]"], f"revealed_{lap}"
    line, reveals = with_keys(line_at(home, out)), list[str]()

    def end(name: str, reply: Parcel) -> Parcel:
        reveals.extend([name] if "revealed" in reply.values else [])
        if reveals.count(last) == lap:
            line.tamper = lambda name, reply: reply
            raise KeyboardInterrupt
        return reply

    line.tamper = end
    with pytest.raises(KeyboardInterrupt):
        run_at(home, line, out, settings=settings)
    line.away = {"padchest"}
    for name in line.hospitals if restarted else ():
        line.start_anew(name)
    folder = run_at(home, line, out, settings=settings, without=["padchest"]).folder
    entries = [json.loads(entry) for entry in (folder / "k4" / "rounds.jsonl").read_text().splitlines()]
    assert [entry["round"] for entry in entries if "absent" not in entry] == list(range(1, lap + 1))
    undisturbed = run_at(home, with_keys(line_at(home, f"{out}_all")), f"{out}_all", settings=settings).folder
    expected = [json.loads(entry) for entry in (undisturbed / "k4" / "rounds.jsonl").read_text().splitlines()]
    assert entries[:lap] == expected[:lap]


def test_hospitals_refuse_plain_updates(home: Path) -> None:
    line = with_keys(line_at(home, "plain_request"))
    participant = line._participants["padchest"]

    def ask_plainly(question: Parcel) -> Parcel:
        if question.values.get("step") == "mask":
            return answer(Parcel(question.values | {"kind": "ask"}, question.packed))
        return answer(question)

    answer, refused = participant.answer, list[str]()

    def record(question: Parcel) -> Parcel:
        try:
            return ask_plainly(question)
        except Refused as error:
            refused.append(error.kind)
            raise

    participant.answer = record  # type: ignore[method-assign]
    with pytest.raises(TrainingError):
        over_hospitals(home, line, "plain_request_out", settings=make_settings("fedavg"))
    assert set(refused) == {"secure sum only"}


def test_missing_key_of_a_member_is_named(home: Path) -> None:
    line = with_keys(line_at(home, "keyless"))
    (line.hospitals["chexpert"].path("members") / "padchest.pub").unlink()
    with assert_refused(TrainingError, "failures in a row", hospital="chexpert"):
        over_hospitals(home, line, "keyless_out", settings=make_settings("fedavg"))


def test_round_is_revealed_for_one_list(tmp_path: Path) -> None:
    """However the server names the round: the hospital counts by its own turn."""
    names = ["anne", "bert", "carl", "dora"]
    hospitals = {name: sample_hospital("padchest", tmp_path / name, tmp_path) for name in names}
    private = {name: keys.new_key() for name in names}
    sums = dict[str, Summing]()
    for name, hospital in hospitals.items():
        file = hospital.file.model_copy(update={"hospital": name})
        hospitals[name] = type(hospital)(hospital.folder, file)
        keys.save_key(hospital.path("key"), private[name])
        hospital.path("members").mkdir()
        for other, key in private.items():
            keys.save_public_key(hospital.path("members") / f"{other}.pub", key)
        sums[name] = Summing(hospitals[name], "study", hospital.folder)

    def confirm(attempt: int, survivors: list[str], turns: str) -> dict[str, dict[str, object]]:
        head = {"turns": turns, "attempt": attempt}
        given = {name: party.begin(4, names, {**head, "members": names})["keys"] for name, party in sums.items()}
        shares = {name: party.share({**head, "keys": given})["shares"] for name, party in sums.items()}
        for name in survivors:
            passed = {other: shares[other][name] for other in names if other != name}
            sums[name].mask(np.zeros(2, np.uint64), 7, {"shares": passed})
        return {name: sums[name].confirm({"survivors": survivors}) for name in survivors}

    three = names[:3]
    signatures = {name: answer["signature"] for name, answer in confirm(1, three, "7-7-7").items()}
    revealed = sums["anne"].reveal(
        {"k": 4, "turns": "7-7-7", "attempt": 1, "survivors": three, "signatures": signatures}
    )
    assert "signature" in confirm(2, three, "7-7-7")["anne"]  # the same sum again tells nothing new
    assert confirm(3, names, "8-8-8-8")["anne"] == {"before": three}
    asked = {"k": 4, "turns": "7-7-7", "attempt": 1}
    assert sums["anne"].recall({**asked, "survivors": names}) is None
    assert sums["anne"].recall({**asked, "survivors": three}) == revealed
    (hospitals["anne"].folder / "revealed.json").write_text("{")
    with assert_refused(ConfigError, kind="damaged file"):
        sums["anne"].recall({**asked, "survivors": three})


def test_weighted_mean_has_fixed_point_error() -> None:
    torch.manual_seed(0)
    weights, works = [0.2, 0.3, 0.5], list[Worked[Point]]()
    for _ in weights:
        point = Point(torch.randn(5), torch.randn(2))
        works.append(Worked(point, torch.randn(3), torch.zeros(5), 0.5, 4, 8))
    total = np.sum([weigh(work, weight, 3) for work, weight in zip(works, weights, strict=True)], axis=0)
    mean = unweigh(total, 1.0, works[0], torch.device("cpu"))
    expected = sum(weight * work.update.primal.double() for weight, work in zip(weights, works, strict=True))
    assert torch.allclose(mean.update.primal.double(), expected, atol=1e-6)
    assert (mean.gradients, mean.images) == (12, 24)
    assert len(decode(total)) == 5 + 2 + 3 + 3


@pytest.mark.parametrize(
    "settings", [make_settings("local_sgdm"), make_settings("coda_plus", stage_output="average"), make_settings("pdmm")]
)
def test_unsuitable_pipelines_are_refused(settings: list[str]) -> None:
    with pytest.raises(ConfigError):
        pipeline(*settings)
