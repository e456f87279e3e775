"""Studies whose updates are summed with masks: the table of one process, through dropouts and restarts."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from chestfed.core.errors import ConfigError, TrainingError
from chestfed.learning.algorithms.variables import Point
from chestfed.learning.engines.messages.requests import Worked
from chestfed.learning.engines.messages.wire import Packed
from chestfed.learning.engines.sums.fixed_point import decode, unweigh, weigh
from chestfed.leaves.federation import keys
from chestfed.leaves.federation.handshake import refuse_what_cannot_be_spread
from chestfed.leaves.federation.hospital.summing import Summing, hash_request
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
    settings, once = make_settings("fedavg"), ["keys"]
    line = with_keys(line_at(home, "restarted_sum"))

    def restart(name: str, reply: Parcel) -> Parcel:
        if name == "padchest" and "keys" in reply.values and once:
            once.clear()
            line.start_anew(name)
        return reply

    line.tamper = restart
    table = over_hospitals(home, line, "restarted_sum_out", settings=settings)
    assert once == []
    result = run(home, study("--out", "plain_again", "--no-tracking", settings=[*SETTINGS, *settings]))
    assert result.code == 0, result.err
    assert table == table_in(home / "plain_again")


@pytest.mark.parametrize(
    ("key", "more"),
    [
        ("k", ["k=[3,4]"]),
        ("absent", ["federated.absent=drop"]),
        ("clients_per_round", ["federated.clients_per_round=3", "k=[4]"]),
        ("sites", ["sites.1.training_images=20"]),
        ("local_steps", ["federated.local_steps={epochs: 1}"]),
    ],
)
def test_sums_of_two_lists_are_refused(key: str, more: list[str]) -> None:
    """The difference of two sums of different members is one update, also if the server follows the protocol."""
    with assert_refused(ConfigError, "not for a federation", keys=[key]):
        refuse_what_cannot_be_spread(pipeline(*make_settings("fedavg"), *more))


@pytest.mark.parametrize(
    "other", [["k=[4]"], ["seed=5", "k=[4]"], ["federated.weights=images"]], ids=["members", "seed", "weights"]
)
def test_second_study_of_others_is_refused(home: Path, other: list[str]) -> None:
    """Sums of three hospitals and of four, or of the same with other weights, in two studies; also after restarts."""
    line = with_keys(line_at(home, f"second_{len(other)}{other[0][0]}"))
    over_hospitals(home, line, f"first_{len(other)}{other[0][0]}_out", settings=make_settings("fedavg"))
    for name in line.hospitals:
        line.start_anew(name)
    settings = [*make_settings("fedavg"), *other]
    with assert_refused(TrainingError, "failures in a row"):
        run_at(home, line, f"second_{len(other)}{other[0][0]}_out", settings=settings)
    assert any("takes part in no others" in text for text in line.log)


def test_nobody_leaves_sums_that_have_begun(home: Path) -> None:
    line = with_keys(line_at(home, "leaving"))

    def end(done: int) -> None:
        raise KeyboardInterrupt

    settings = make_settings("fedavg")
    with pytest.raises(KeyboardInterrupt):
        run_at(home, line, "leaving_out", end, settings)
    with assert_refused(ConfigError, "secure sum", hospitals=["padchest"]):
        run_at(home, line, "leaving_out", settings=settings, without=["padchest"])


Change = Callable[[str, Parcel], Parcel]


def lie(line: StraightLine, change: Change) -> None:
    """Change the questions to hospitals on their way, as a server that does not follow the protocol."""
    for name, participant in line._participants.items():
        answer = participant.answer
        participant.answer = partial(_answer_changed, answer, change, name)  # type: ignore[method-assign]


def _answer_changed(answer: Callable[[Parcel], Parcel], change: Change, name: str, question: Parcel) -> Parcel:
    return answer(change(name, question))


def other_rows(name: str, question: Parcel) -> Parcel:
    """Padchest has 2^40 rows, so that with weights by rows the others vanish in the rounding."""
    if question.values.get("kind") != "begin":
        return question
    rows = [[one, 2**40 if one == "padchest" else 1] for one, _ in question.values["rows"]]
    return Parcel(question.values | {"rows": rows}, question.packed)


def other_model(name: str, question: Parcel) -> Parcel:
    """Padchest gets the model, the others zeros, and the hash of the request is that of each."""
    values = dict(question.values)
    if name == "padchest" or values.get("kind") != "sum":
        return question
    arrays = {kind: np.zeros_like(array) for kind, array in question.packed.arrays.items()}
    packed = Packed(question.packed.header, arrays)
    if values["step"] == "keys":
        shape = {kind: np.zeros(size, kind) for kind, size in SIZES.items()}
        values["work"] = hash_request(Packed(HEADERS[values["after"]], shape))
    return Parcel(values, packed)


def other_start(name: str, question: Parcel) -> Parcel:
    """The others begin stage 2 elsewhere, so that their states differ when they are asked for equal work."""
    if name == "padchest" or b'"Start"' not in question.packed.header:
        return question
    arrays = {kind: np.zeros_like(array) for kind, array in question.packed.arrays.items()}
    return Parcel(question.values, Packed(question.packed.header, arrays))


def other_ratios(name: str, question: Parcel) -> Parcel:
    """The others are told other shares of positives, and other first weights."""
    if name == "padchest" or question.values.get("kind") != "begin":
        return question
    float32 = {"float32": np.zeros_like(question.packed.arrays["float32"])}
    return Parcel(question.values, Packed(question.packed.header, {**question.packed.arrays, **float32}))


#: Of the requests for work that `other_model` makes zeros of: header by turn, and sizes by type of number.
HEADERS, SIZES = dict[int, bytes](), dict[str, int]()


@pytest.mark.parametrize("change", [other_rows, other_model, other_start, other_ratios])
def test_unequal_frames_read_no_update(home: Path, change: Change) -> None:
    settings = [*make_settings("scaffold"), *(["federated.weights=images"] * (change is other_rows))]
    if change is other_model:  # what the requests look like, from a study in which nobody lies
        honest = with_keys(line_at(home, "honest_frames"))

        def note(name: str, question: Parcel) -> Parcel:
            if question.values.get("step") == "mask":
                plain = json.loads(question.packed.header)["plain"]
                HEADERS[plain["after"]] = question.packed.header
                SIZES.update({kind: len(array) for kind, array in question.packed.arrays.items()})
            return question

        lie(honest, note)
        over_hospitals(home, honest, "honest_frames_out", settings=settings)
    line, masked = with_keys(line_at(home, f"lying_{change.__name__}")), list[str]()
    lie(line, change)

    def listen(name: str, reply: Parcel) -> Parcel:
        masked.extend([name] * (b'"Masked"' in reply.packed.header))
        return reply

    line.tamper = listen
    with assert_refused(TrainingError, "failures in a row"):
        over_hospitals(home, line, f"lying_{change.__name__}_out", settings=settings)
    assert masked == []


def test_other_name_of_a_study_is_refused(home: Path) -> None:
    line = with_keys(line_at(home, "renamed"))

    def rename(name: str, question: Parcel) -> Parcel:
        return Parcel(question.values | {"study": "0" * 64}, question.packed)

    lie(line, rename)
    with assert_refused(TrainingError, "failures in a row"):
        over_hospitals(home, line, "renamed_out", settings=make_settings("fedavg"))


def test_work_without_history_is_refused(home: Path) -> None:
    """A member whose state came about by other requests than that of the others has other keys than they accept."""
    line, masked = with_keys(line_at(home, "history")), list[str]()
    settings, kept = make_settings("scaffold"), dict[str, Parcel]()

    def replay(name: str, question: Parcel) -> Parcel:
        """The second round of the others goes on from a first round that padchest did with another model."""
        if name != "padchest" or question.values.get("kind") != "sum":
            return question
        return kept.setdefault(str(question.values["step"]), question)  # padchest does the first round for ever

    lie(line, replay)
    line.tamper = lambda name, reply: (masked.extend([name] * (b'"Masked"' in reply.packed.header)), reply)[1]
    with pytest.raises(TrainingError):
        over_hospitals(home, line, "history_out", settings=settings)
    assert len(masked) == 3  # of the first round


def test_large_update_is_not_named(home: Path) -> None:
    """A refusal of one hospital would tell the server something of its update alone."""
    line, replies = with_keys(line_at(home, "large")), list[Parcel]()
    line.tamper = lambda name, reply: (replies.append(reply), reply)[1]
    settings = [*make_settings("fedavg"), "federated.local_lr=1e30"]
    with assert_refused(TrainingError, "update too large"):
        over_hospitals(home, line, "large_out", settings=settings)
    assert not [reply for reply in replies if "refused" in reply.values]


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


def test_keys_of_other_work_are_refused(tmp_path: Path) -> None:
    """Keys are made for one request; numbers of another one are not masked with them."""
    names = ["padchest", "anne", "bert"]
    hospital, private = sample_hospital("padchest", tmp_path, tmp_path), {name: keys.new_key() for name in names}
    keys.save_key(hospital.path("key"), private["padchest"])
    hospital.path("members").mkdir()
    for name, key in private.items():
        keys.save_public_key(hospital.path("members") / f"{name}.pub", key)
    summing, work, other = Summing(hospital), Packed(b"work", {}), Packed(b"other", {})
    head = {"attempt": 1}
    summing.begin(names, [0.5, 0.25, 0.25], "history", {**head, "work": hash_request(work)})
    assert not summing.holds({"attempt": 2}, "history", work)
    for lineage, packed in (("history", other), ("another", work)):
        with assert_refused(Refused, "other work"):
            summing.holds(head, lineage, packed)
    assert summing.holds(head, "history", work)
    (hospital.path("state")).mkdir()
    (hospital.path("state") / "sums.json").write_text("{")
    with assert_refused(ConfigError, "damaged file"):
        summing.begin(names, [0.5, 0.25, 0.25], "history", {**head, "work": hash_request(work)})


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
