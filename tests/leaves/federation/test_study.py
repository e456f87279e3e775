"""A study over hospitals comes to the numbers of the same study in one process, whatever happens on the way."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import yaml

from chestfed.core.errors import ConfigError, TrainingError
from chestfed.core.pseudonyms import read_key
from chestfed.learning.engines.messages.wire import Packed, WireError, pack, unpack
from chestfed.leaves.federation.hospital import participant
from chestfed.leaves.federation.hospital.log import open_log
from chestfed.leaves.federation.parcels import Parcel, Refused
from chestfed.leaves.federation.records import Beginning, Opened, plain_row, read_row, read_values
from chestfed.leaves.federation.server import conversation
from chestfed.leaves.federation.server.study import run_over_hospitals
from chestfed.leaves.federation.settings import Faults, Federation, FederationFile, Leaves
from chestfed.reports.pages.page import make_report
from chestfed.results.evaluation.estimates import Estimate
from chestfed.results.evaluation.intervals.interval import Interval
from chestfed.results.tables.files import read_predictions
from chestfed.results.tables.frames import Row
from chestfed.results.tables.run_folder import RunFolder
from chestfed.studies.experiment.loading import load_pipeline
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.training.loop import History
from chestfed.studies.training.pretrain import STATE
from chestfed.studies.training.reporting import Reporter, Reporters
from chestfed.studies.training.run import StudyResult
from tests.cases import assert_refused
from tests.leaves.federation.straight_line import Clock, StraightLine, sample_hospital
from tests.studies.training.tiny_studies import SMALL, run, study

NAMES = ("chexpert", "chestxray8", "padchest", "mimic_cxr", "vindr")
SETTINGS = [*SMALL, "k=[3]", "evaluation.every=4", "model.norm=batch"]
#: What the log of a hospital says of a request.
LOGGED = {
    *("time", "request", "study", "k", "test", "record", "turn", "received", "sent", "seconds", "outcome"),
    *("line", "chain", "question", "answer", "left", "agreed", "seen", "counted"),
}
FILE = Path(__file__).parents[3] / "pipelines" / "source_addition_samples.yaml"


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "time", Clock())


@pytest.fixture(scope="module")
def in_process(home: Path) -> str:
    """The table of the study in one process."""
    result = run(home, study("--out", "one", "--no-tracking", settings=SETTINGS))
    assert result.code == 0, result.err
    return table_in(home / "one")


def table_in(out: Path) -> str:
    (table,) = out.glob("*source_addition_samples-*/table.csv")
    (rounds,) = table.parent.glob("k3/rounds.jsonl")
    hospitals = table.parent / "hospitals.csv"  # every K at every hospital
    return table.parent.name + table.read_text() + rounds.read_text() + hospitals.read_text()


def absences(out: Path) -> dict[int, list[str]]:
    """Rounds, counted from 1, and without whom they were."""
    (rounds,) = out.glob("synthetic-*/k3/rounds.jsonl")
    entries = [json.loads(line) for line in rounds.read_text().splitlines()]
    return {entry["round"]: entry["absent"] for entry in entries if "absent" in entry}


def pipeline(*more: str) -> Pipeline:
    return load_pipeline(FILE, [*SETTINGS, *more]).resolve()


def line_at(home: Path, folder: str, leaves: Leaves | None = None, *, synthetic: bool = True) -> StraightLine:
    data = home / "synthetic_hospitals"
    return StraightLine(
        {name: sample_hospital(name, home / folder, data, leaves, synthetic=synthetic) for name in NAMES}
    )


def federation(home: Path, **faults: Any) -> Federation:
    (home / "keys").mkdir(exist_ok=True)
    for name in NAMES:
        (home / "keys" / f"{name}.pub").touch()
    return Federation(home, FederationFile(federation="test", address="localhost:9443", faults=Faults(**faults)))


class AfterRounds(Reporter):
    """Does something after a round; `stage_1` are the steps of stage 1 that were reported."""

    stage_1: ClassVar[list[int]] = []

    def __init__(self, act: Callable[[int], object]) -> None:
        self._act = act
        self.stage_1.clear()

    def pretraining(self, step: int, steps: int, loss: float) -> None:
        self.stage_1.append(step)

    def round_done(self, k: int, history: History, rounds: int) -> None:
        self._act(len(history))


def over_hospitals(
    home: Path,
    line: StraightLine,
    out: str,
    act: Callable[[int], object] = id,
    settings: Sequence[str] = (),
    **faults: Any,
) -> str:
    run_at(home, line, out, act, settings, **faults)
    return table_in(home / out)


def run_at(
    home: Path,
    line: StraightLine,
    out: str,
    act: Callable[[int], object] = id,
    settings: Sequence[str] = (),
    without: Sequence[str] = (),
    rejoin: Sequence[str] = (),
    **faults: Any,
) -> StudyResult:
    reporters, members = Reporters([AfterRounds(act)]), federation(home, **faults)
    settled, say = pipeline(*settings), line.log.append
    return run_over_hospitals(
        settled, FILE.stem, members, line, home / out, reporters, say, without=without, rejoin=rejoin
    )


@pytest.mark.slow
def test_personal_models_equal_one_process(home: Path) -> None:
    method = "methods=[{algorithm: fedper}]"
    result = run(home, study("--out", "own", "--no-tracking", settings=[*SETTINGS, method]))
    assert result.code == 0, result.err
    tables = over_hospitals(home, line_at(home, "own-state"), "own-spread", settings=[method]), table_in(home / "own")
    assert tables[0] == tables[1]
    models = [
        {file.relative_to(k3).as_posix(): file.read_bytes() for file in k3.rglob("*.safetensors") if file.name != STATE}
        for out in ("own", "own-spread")
        for k3 in (home / out).glob("synthetic-*/k3")
    ]
    assert models[0] == models[1]
    assert {*models[0]} == {
        *("model.safetensors", "common.safetensors"),
        *(f"hospitals/{name}/model.safetensors" for name in ("chestxray8", "padchest")),
    }
    assert len({*models[0].values()}) == 4
    (folder,) = (home / "own").glob("synthetic-source*")
    before = (folder / "hospitals.csv").read_bytes()
    shutil.rmtree(folder / "k3" / "hospitals" / "padchest")  # the model is made again, and scored
    assert run(home, study("--out", "own", "--no-tracking", settings=[*SETTINGS, method])).code == 0
    assert (folder / "hospitals.csv").read_bytes() == before


@pytest.mark.slow
def test_pools_and_memory_equal_one_process(home: Path) -> None:
    """Scores of all hospitals, and moving averages of rows that a hospital keeps through a restart."""
    method = "methods=[{algorithm: fedxl2}]"
    result = run(home, study("--out", "pool", "--no-tracking", settings=[*SETTINGS, method]))
    assert result.code == 0, result.err
    line = line_at(home, "pool-state")
    for name in NAMES:
        line.set_policy(name, image_scores=True)

    def trouble(done: int) -> None:
        if done == 2:
            line.start_anew("padchest")

    assert over_hospitals(home, line, "pool-spread", trouble, [method]) == table_in(home / "pool")


def test_restarts_keep_tables_of_one_process(home: Path, in_process: str) -> None:
    line = line_at(home, "calm")

    def trouble(done: int) -> None:
        if done == 1:
            line.start_anew("padchest")
        if done == 2:
            line.lost = 2
        if done == 3:
            line.start_anew("chexpert")

    assert over_hospitals(home, line, "calm_out", trouble) == in_process
    assert any("padchest: started anew" in text for text in line.log)
    assert any("server: back" in text for text in line.log)


def test_restart_before_joining_is_no_failure(home: Path) -> None:
    """A hospital that is only scored at this K, and trains at the next, is not asked to begin this one."""
    settings = ["k=[1, 3]", "federated.stages=1"]
    line = line_at(home, "early")
    run_at(home, line, "early_out", lambda done: line.start_anew("padchest"), settings)
    assert any("padchest: started anew" in text for text in line.log)
    assert not [text for text in line.log if "failed" in text]


@pytest.mark.slow
def test_stage_1_says_how_far_it_is(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ["k=[1]", "pretrain.epochs=5"]
    result = run(home, study("--out", "long", "--no-tracking", settings=[*SETTINGS, *settings]))
    assert result.code == 0, result.err
    monkeypatch.setattr(participant, "STAGE_1_SECONDS", -1.0)
    folder = run_at(home, line_at(home, "long-state"), "long-spread", settings=settings).folder
    assert AfterRounds.stage_1 == [25, 37]
    (single,) = (home / "long").glob("*/table.csv")
    assert (folder / "table.csv").read_text() == single.read_text()


@pytest.mark.slow
def test_peers_give_tables_of_one_process(home: Path) -> None:
    settings = ["methods=[{algorithm: pdmm}]", "model.norm=group"]
    result = run(home, study("--out", "one_pdmm", "--no-tracking", settings=[*SETTINGS, *settings]))
    assert result.code == 0, result.err
    line, once = line_at(home, "pdmm"), ["padchest"]

    def kill_between_steps_and_exchange(name: str, reply: Parcel) -> Parcel:
        if name in once and b'"Stepped"' in reply.packed.header:
            line.start_anew(once.pop())
        return reply

    line.tamper = kill_between_steps_and_exchange
    assert over_hospitals(home, line, "pdmm_out", settings=settings) == table_in(home / "one_pdmm")
    assert any("padchest: started anew" in text for text in line.log)


@pytest.mark.slow
def test_k_that_lists_one_is_refused(home: Path) -> None:
    """The deed is compared with the plan: K=3, and the hospital alone with its true numbers."""
    line, begun = line_at(home, "alone"), list[Parcel]()
    member = line._participants["padchest"]
    answer = member.answer

    def keep(question: Parcel) -> Parcel:
        begun.extend([question] if question.values["kind"] == "begin" else [])
        return answer(question)

    member.answer = keep  # type: ignore[method-assign]
    run_at(home, line, "alone_out")
    network = member._studies[begun[0].values["study"]].network
    like = Beginning.like(3, 5, network.size, network.buffers().numel())
    rows, sent = begun[0].values["rows"], unpack(begun[0].packed, like, "the server")
    alone = Beginning(sent.ratios[2:], sent.labeled[2:], sent.parameters, sent.buffers)
    with assert_refused(Refused, kind="policy"):
        answer(Parcel(begun[0].values | {"rows": rows[2:]}, pack(alone)))
    two = Beginning(sent.ratios[1:], sent.labeled[1:], sent.parameters, sent.buffers)
    assert answer(Parcel(begun[0].values | {"rows": rows[1:]}, pack(two))).values == {}


def test_changed_data_is_refused(home: Path) -> None:
    line = line_at(home, "changed")
    hospital = line.hospitals["padchest"]
    (hospital.folder / "site.yaml").write_text(f"extends: {hospital.file.site}\nupsample: {{edema: 3}}\n")

    def change(done: int) -> None:
        changed = hospital.file.model_copy(update={"site": "site.yaml"})
        line.hospitals["padchest"] = replace(hospital, file=changed)
        line.start_anew("padchest")

    with assert_refused(TrainingError, "failures in a row", hospital="padchest"):
        over_hospitals(home, line, "changed_out", change)


def restarted(home: Path, folder: str, act: Callable[[StraightLine, int], object]) -> str:
    """The tables of a study of hospitals that are not synthetic; `act` is called with the line after each round."""
    line = line_at(home, folder, Leaves(results="scores"), synthetic=False)
    for name in NAMES:  # all have the same keys, also in another folder
        (line.hospitals[name].path("names_key")).write_text(name.encode().hex().ljust(64, "0"))
        line.hospitals[name].path("names_key").chmod(0o600)
    return over_hospitals(home, line, f"{folder}_out", lambda done: act(line, done))


@pytest.mark.slow
def test_restart_with_the_secret_key_kept(home: Path) -> None:
    def restart(line: StraightLine, done: int) -> None:
        if done == 2:
            for name in ("chexpert", "padchest"):
                line.start_anew(name)

    undisturbed = restarted(home, "real_calm", lambda line, done: None)
    assert restarted(home, "real_again", restart) == undisturbed
    (study,) = (home / "real_again_out").glob("*source_addition_samples-*")
    frame = read_predictions(study / "k3" / "predictions.parquet")
    assert frame.attrs["key"] == read_key(home / "real_again" / "chexpert" / "names.key").fingerprint
    assert frame["image"].is_monotonic_increasing


@pytest.mark.slow
@pytest.mark.parametrize("state_too", [False, True])
def test_lost_secret_key_is_refused(home: Path, state_too: bool) -> None:
    def lose(line: StraightLine, done: int) -> None:
        hospital = line.hospitals["padchest"]
        hospital.path("names_key").unlink()
        if state_too:
            shutil.rmtree(hospital.path("state"))
        line.start_anew("padchest")

    with assert_refused(TrainingError, "failures in a row", hospital="padchest"):
        restarted(home, f"lost_{state_too}", lambda line, done: lose(line, done) if done == 1 else None)


@pytest.mark.slow
def test_log_has_every_request_of_a_hospital(home: Path) -> None:
    line = line_at(home, "logged", synthetic=False)
    hospital = line.hospitals["chexpert"]
    log = open_log(hospital)
    over_hospitals(home, line, "logged_out")
    log.handlers.pop().close()
    lines = (hospital.path("state") / "hospital.log").read_text().splitlines()
    entries = [entry for entry in map(json.loads, lines) if "request" in entry]
    (folder,) = (home / "logged_out").glob("*source_addition_samples-*")
    rounds = len((folder / "k3" / "rounds.jsonl").read_text().splitlines())
    kinds = Counter(entry["request"] for entry in entries)
    assert kinds.keys() == {"greet", "open", "pretrain", "begin", "ask", "score"}
    worked = [entry for entry in entries if entry.get("record") == "Work"]
    assert len(worked) == rounds
    assert all(entry["k"] == 3 and entry["turn"] > 0 for entry in worked)
    assert {entry["outcome"] for entry in entries} == {"answered"}
    assert all(entry["received"] > 0 and entry["sent"] > 0 and entry["seconds"] >= 0 for entry in entries)
    assert all(set(entry) <= LOGGED for entry in entries)
    (digest,) = {entry["study"] for entry in entries}
    agreed = yaml.safe_load((hospital.path("state") / digest / "pipeline.yaml").read_text())
    assert Pipeline.model_validate(agreed).k == [3]


@pytest.mark.slow
def test_killed_server_continues_round(home: Path, in_process: str) -> None:
    line = line_at(home, "killed")

    def kill(done: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        over_hospitals(home, line, "killed_out", kill)
    for name in NAMES:
        line.start_anew(name)
    assert over_hospitals(home, line, "killed_out") == in_process


@pytest.mark.slow
def test_server_killed_at_stage_end_repeats(home: Path, in_process: str) -> None:
    """The hospitals have begun the next stage; the server has not saved yet that the round is done."""
    line = line_at(home, "between")

    begun = []

    def kill(name: str, reply: Parcel) -> Parcel:
        begun.extend([name] * (b'"Done"' in reply.packed.header))
        if begun.count("padchest") == 2:
            raise KeyboardInterrupt
        return reply

    line.tamper = kill
    with pytest.raises(KeyboardInterrupt):
        over_hospitals(home, line, "between_out")
    line.tamper = lambda name, reply: reply
    line.start_anew("padchest")
    assert over_hospitals(home, line, "between_out") == in_process


def spoiled(reply: Parcel, value: float) -> Parcel:
    arrays = {kind: np.full_like(array, value) for kind, array in reply.packed.arrays.items()}
    return Parcel(reply.values, Packed(reply.packed.header, arrays))


HARMS: dict[str, Callable[[Parcel], Parcel]] = {
    "NaN": lambda reply: spoiled(reply, np.nan),
    "as far as": lambda reply: spoiled(reply, 1e18),
    "another question": lambda reply: Parcel(reply.values | {"nonce": "0"}, reply.packed),
    "not a message": lambda reply: Parcel(reply.values, Packed(b'{"record": "Worked"}', reply.packed.arrays)),
    "not probabilities": lambda reply: spoiled(reply, 7.0),
}


def test_bad_answers_are_refused_by_name(home: Path, in_process: str) -> None:
    line, harms = line_at(home, "harm"), dict(HARMS)

    def tamper(name: str, reply: Parcel) -> Parcel:
        marker = b'"Scores"' if len(harms) == 1 else b'"Worked"'
        if name == "padchest" and marker in reply.packed.header and harms:
            return harms.pop(next(iter(harms)))(reply)
        return reply

    line.tamper = tamper
    assert over_hospitals(home, line, "harm_out", tries=5) == in_process
    lines = [text for text in line.log if text.startswith("padchest: failed")]
    assert [reason for reason, text in zip(HARMS, lines, strict=True) if reason not in text] == []


def test_failing_hospital_ends_study_by_name(home: Path) -> None:
    line = line_at(home, "failing")
    line.tamper = lambda name, reply: HARMS["another question"](reply) if name == "vindr" else reply
    with assert_refused(TrainingError, "failures in a row", hospital="vindr"):
        over_hospitals(home, line, "failing_out")


@pytest.mark.slow
def test_round_continues_without_absent(home: Path) -> None:
    line = line_at(home, "absent")

    def trouble(done: int) -> None:
        line.slow = {"padchest"} if done == 1 else set()
        line.away = {"chestxray8"} if done == 2 else set()
        line.tamper = lambda name, reply: HARMS["NaN"](reply) if name == "padchest" and done == 5 else reply

    settings = ["methods.codasca.absent=drop", "federated.stage_steps=8"]
    over_hospitals(home, line, "absent_out", trouble, settings)
    assert absences(home / "absent_out") == {2: ["padchest"], 3: ["chestxray8"], 6: ["padchest"]}
    lines = [text for text in line.log if text.startswith(("padchest: ", "chestxray8: "))]
    assert any("padchest: dropped (the round continues without it: late)" in text for text in lines)
    assert any("padchest: late answer" in text for text in lines)
    assert sum("padchest: failed" in text for text in lines) == 3


def test_differences_are_refused_by_name(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = line_at(home, "differs")
    versions = {"chestfed": "0.0.1", "results version": "0"}
    monkeypatch.setattr("chestfed.leaves.federation.handshake.versions", lambda: dict(versions))
    answer = line._participants["padchest"].answer

    def older(question: Parcel) -> Parcel:
        with monkeypatch.context() as there:
            there.setattr(
                "chestfed.leaves.federation.handshake.versions", lambda: {**versions, "results version": "-1"}
            )
            return answer(question)

    monkeypatch.setattr(line._participants["padchest"], "answer", older)
    with assert_refused(TrainingError, "failures in a row", hospital="padchest"):
        over_hospitals(home, line, "differs_out")
    assert not any("labels are read" in text for text in line.log)


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_kept_scores_give_same_aucs(home: Path, in_process: str) -> None:
    line = line_at(home, "aucs", Leaves(results="aucs"))
    replies: list[Parcel] = []

    def listen(name: str, reply: Parcel) -> Parcel:
        replies.append(reply)
        return reply

    line.tamper = listen
    assert over_hospitals(home, line, "aucs_out") == in_process
    assert not any("images" in reply.values for reply in replies)  # the keyed names
    scored = [reply for reply in replies if b'"Scores"' in reply.packed.header]
    assert scored
    assert all(reply.packed.arrays.get("float64", np.zeros(0)).size == 0 for reply in scored)
    (folder,) = (home / "aucs_out").glob("synthetic-source_addition_samples-*")
    assert not list(folder.rglob("predictions.parquet"))
    page = make_report(RunFolder.open(folder)).html
    assert "stayed at the hospital" in page
    assert "Brier" not in page
    assert "chestfed federation run" in page
    assert "padchest (cpu)" in page
    with assert_refused(ConfigError, "no scores here"):
        make_report(RunFolder.open(folder), interval="bca")


@pytest.mark.parametrize(
    ("path", "value"),
    [(("aucs", 0, "value"), 1.5), (("aucs", 0, "interval"), [0.9, 0.1]), (("aucs", 1, "disease"), "x"), ((), [])],
)
def test_aucs_that_are_none_are_refused(path: tuple[str | int, ...], value: object) -> None:
    aucs = (Estimate("edema", 0.7, Interval(0.6, 0.8), 3, 4, 0), Estimate("mean", 0.7, Interval(0.6, 0.8)))
    plain = plain_row(Row(1, ("a",), aucs, scores_stay=True))
    assert read_row(plain, ["edema"], "anne").aucs == aucs
    part = plain
    for key in path[:-1]:
        part = part[key]
    if path:
        part[path[-1]] = value
    with assert_refused(WireError, "impossible AUCs", sender="anne"):
        read_row(plain if path else value, ["edema"], "anne")


@pytest.mark.parametrize("begins", ["=", "+", "-", "@"])
def test_reason_is_a_line_and_no_formula(begins: str) -> None:
    """It becomes a cell of a table that somebody opens with a spreadsheet program."""
    aucs = (Estimate("edema", None, None, 3, 4, 0, f"{begins}HYPERLINK()\x1b\nforged"), Estimate("mean", None, None))
    row = read_row(plain_row(Row(1, ("a",), aucs, scores_stay=True)), ["edema"], "anne")
    assert row.aucs[0].reason == f"'{begins}HYPERLINK()? forged"


OF_CARD = [{"name": 7}, {"diseases": {"edema": []}}, {"shown": [["<b>"]]}, {"images": -1}]
OF_HOSPITAL = [
    {"rows": -7},
    {"rows": "7"},
    {"rows": 1e300},
    {"origin": "x"},
    {"digest": "\ud800"},
    {"unreadable": 10**13},
]


@pytest.mark.parametrize("card", [{}, *OF_CARD])
@pytest.mark.parametrize("claims", [{}, {"cards": "anne"}, *OF_HOSPITAL])
def test_claims_of_hospital_are_checked(card: dict[str, object], claims: dict[str, object]) -> None:
    counts = {"positives": 3, "negatives": 4, "missing": 0, "prevalence": 3 / 7}
    plain = {"name": "anne", "role": "client", "data": "real", "images": 7, "unreadable": 0, "rows": 7}
    plain |= {"diseases": {"edema": counts}, "gray_levels": [0] * 64, "gray_level_images": 7, "shown": []}
    values = {
        "rows": 7,
        "origin": "real",
        "digest": "0a",
        "key": "0b",
        "unreadable": 0,
        "cards": [plain | card],
        "nonce": "0",
    } | claims
    if not card and not claims:
        assert read_values(Opened, values, "anne").rows == 7
        return
    with assert_refused(WireError, "impossible values", sender="anne"):
        read_values(Opened, values, "anne")


def test_small_counts_are_masked(home: Path, in_process: str) -> None:
    line = line_at(home, "small", Leaves(smallest_count=10, results="aucs"))
    hospital = line.hospitals["chexpert"]  # of which no row is repeated
    site = hospital.folder / "site.yaml"
    site.write_text(f"extends: {hospital.file.site}\nupsample: {{cardiomegaly: 0, consolidation: 0}}\n")
    line.hospitals["chexpert"] = replace(hospital, file=hospital.file.model_copy(update={"site": str(site)}))
    line.start_anew("chexpert")
    over_hospitals(home, line, "small_out")
    (sites,) = (home / "small_out").glob("synthetic-*/sites.json")
    assert sites.parent.name not in in_process  # a run of other ratios
    cards = [card["diseases"] for card in json.loads(sites.read_text())["sites"]]
    row = RunFolder(sites.parent).row()
    cards.append({disease.disease: vars(disease) for disease in row.diseases})
    for diseases in cards:
        for counts in diseases.values():
            assert all(counts[key] == 0 or counts[key] >= 10 for key in ("positives", "negatives", "missing"))
    few = [disease for disease in row.diseases if "fewer than 10 patients" in disease.reason]
    assert few
    assert all(disease.value is None and 10 in (disease.positives, disease.missing) for disease in few)
    assert all(disease.positive_patients is disease.negative_patients is None for disease in row.diseases)
