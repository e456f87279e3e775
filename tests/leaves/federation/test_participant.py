"""A hospital's answers to questions that are out of the ordinary, and what it tells of itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import SafetensorError

from chestfed.core.checkpoint import save_checkpoint
from chestfed.core.errors import ConfigError, DamagedError, TrainingError
from chestfed.learning.engines.host import Host
from chestfed.learning.engines.messages.requests import Finish
from chestfed.leaves.federation import handshake
from chestfed.leaves.federation.description import describe
from chestfed.leaves.federation.handshake import approval_digest
from chestfed.leaves.federation.hospital.local import OwnData, disclose_row, restore_host, suppress_counts
from chestfed.leaves.federation.hospital.participant import Participant
from chestfed.leaves.federation.hospital.policy import approve, read_pending
from chestfed.leaves.federation.hospital.proposal import read_pipeline
from chestfed.leaves.federation.parcels import Parcel, Refused
from chestfed.leaves.federation.settings import Policy
from chestfed.studies.experiment.loading import load_pipeline
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.experiment.resolved import shareable
from chestfed.studies.training.data.clients import ClientData, NoImages, Outputs, TestSet
from chestfed.studies.training.pretrain import Pretrained
from chestfed.testing.quadratics import DISEASES, PRIMAL, QuadraticClient, problems
from tests.cases import assert_refused
from tests.learning.engines.test_wire import RULE
from tests.learning.models import tiny_transformer
from tests.learning.models.tiny_transformer import TinyTransformer
from tests.leaves.federation.straight_line import sample_hospital
from tests.studies.training.tiny_studies import SMALL

FILE = Path(__file__).parents[3] / "pipelines" / "source_addition_samples.yaml"


def blank_images(count: int) -> Any:
    """So many black images."""
    return SimpleNamespace(records=np.arange(count), read=lambda rows: np.zeros((len(rows), 96, 96), np.uint8))


def pipeline(*more: str) -> Pipeline:
    small = [
        setting
        for setting in SMALL
        if not (setting.startswith("model.") and any(key.startswith("model=") for key in more))
    ]
    return load_pipeline(FILE, [*small, *more], sites_here=False).resolve()


#: The name of the study of `pipeline()`.
DIGEST = handshake.study_digest(pipeline())


def greeting(chosen: Pipeline, study: str = "") -> Parcel:
    study = study or handshake.study_digest(chosen)
    values = {"passport": handshake.passport(chosen), "pipeline": shareable(chosen)}
    return Parcel({"kind": "greet", "to": "padchest", "study": study, **values})


@pytest.fixture
def hospital(tmp_path: Path) -> Participant:
    return Participant(sample_hospital("padchest", tmp_path, tmp_path / "data"), lambda text: None)


def test_unreadable_weights_name_their_key(tmp_path: Path) -> None:
    files = {"model.network": str(tmp_path / "x.safetensors"), "model.initial_weights": str(tmp_path / "x.pth")}
    for key, file in files.items():
        network = (
            f"{{name: features, network: {file}}}"
            if key == "model.network"
            else f"{{name: small, initial_weights: {file}}}"
        )
        with assert_refused(ConfigError, "unreadable weights", key=key):
            approval_digest(pipeline(f"model={network}", "augment.enabled=false"))


def test_unnamed_study_is_last_greeted(hospital: Participant) -> None:
    for interval in ("bca", "percentile"):
        assert "refused" not in hospital(greeting(pipeline(f"evaluation.interval={interval}"))).values
        assert hospital._studies[DIGEST].pipeline.evaluation.interval == interval
    before = hospital._studies[DIGEST]
    hospital(greeting(pipeline("evaluation.interval=percentile")))
    assert hospital._studies[DIGEST] is before


def test_stage_1_of_other_data_is_not_reused(hospital: Participant, monkeypatch: pytest.MonkeyPatch) -> None:
    hospital(greeting(pipeline()))
    folders = []

    def pretrain(setup: Any, folder: Path, report: Any) -> Pretrained:
        folders.append(folder)
        return Pretrained(torch.zeros(1), torch.zeros(0), [])

    monkeypatch.setattr("chestfed.leaves.federation.hospital.participant.pretrain", pretrain)
    monkeypatch.setattr(hospital._studies[DIGEST], "place", 0)  # the target is asked for stage 1
    for digest in ("a", "b"):
        study = SimpleNamespace(digests={"padchest": digest})
        data: Any = SimpleNamespace(study=study, client=SimpleNamespace(name="padchest", training_rows=1))
        hospital._studies[DIGEST].data = data
        assert "refused" not in hospital(Parcel({"kind": "pretrain", "to": "padchest", "study": DIGEST})).values
    assert len(set(folders)) == 2


def test_full_disk_is_reported_without_path(hospital: Participant, monkeypatch: pytest.MonkeyPatch) -> None:
    hospital(greeting(pipeline()))

    def pretrain(setup: Any, folder: Path, report: Any) -> Pretrained:
        save_checkpoint(folder / "state.safetensors", {"weights": torch.zeros(1)}, {})
        raise AssertionError

    def full(*_: object) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("chestfed.leaves.federation.hospital.participant.pretrain", pretrain)
    monkeypatch.setattr("safetensors.torch.save_file", full)
    monkeypatch.setattr(hospital._studies[DIGEST], "place", 0)  # the target is asked for stage 1
    study = SimpleNamespace(digests={"padchest": "a"})
    hospital._studies[DIGEST].data = SimpleNamespace(
        study=study, client=SimpleNamespace(name="padchest", training_rows=1)
    )  # type: ignore[assignment]
    reason = hospital(Parcel({"kind": "pretrain", "to": "padchest", "study": DIGEST})).values["refused"]
    assert reason == "the hospital cannot write to its disk (No space left on device); its own screen says where"


def test_listed_plug_in_and_weights_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sample = sample_hospital("padchest", tmp_path, tmp_path / "data")
    source = Path(tiny_transformer.__file__).read_text(encoding="utf-8")
    # Not as a part of `tests`, all of which would be imported anew in another working folder.
    (tmp_path / "tinynet.py").write_text(source, encoding="utf-8")
    name = "tinynet:TINY"
    hospital = Participant(replace(sample, file=sample.file.model_copy(update={"plugins": [name]})), lambda text: None)
    asked = pipeline(f"model={{name: '{name}', initial_weights: first.pt}}")
    weights = TinyTransformer(5).state_dict()
    for folder in (tmp_path, sample.folder):  # the server's and the hospital's
        torch.save(weights, folder / "first.pt")
    assert "refused" not in hospital(greeting(asked)).values
    torch.save(TinyTransformer(5).state_dict(), sample.folder / "first.pt")
    assert "a file that the pipeline names differs" in hospital(greeting(asked)).values["refused"]


@pytest.mark.parametrize(
    ("setting", "key"),
    [
        ("overlap.same_patient_ids=[[chexpert, padchest]]", "overlap.same_patient_ids"),
        ("overlap.found=drop", "overlap.found"),
        ("sites.1.config=elsewhere/chexpert.yaml", "sites.config"),
        ("sites.1.control=noise", "sites.control"),
        ("alternatives={fine_tuned: null}", "alternatives"),
        ("sites.1.positives=0.1", "sites.positives"),
        ("sites.1.training_images=20", "sites.training_images"),
        ("federated.sampling={positives: 0.5}", "federated.sampling"),
    ],
)
def test_unsupported_key_is_refused(setting: str, key: str) -> None:
    with assert_refused(ConfigError, "not for a federation", keys=[key]):
        handshake.refuse_what_cannot_be_spread(pipeline(setting))


@pytest.mark.parametrize(("smallest", "repeats"), [(0, 3), (1, 3), (3, 1), (3, 3)])
def test_large_counts_leave_ratios(smallest: int, repeats: int) -> None:
    """Of two diseases one has two positives; positives of the other may be in the list three times.

    The length of that list would then give hidden counts away.
    """
    labels = np.array([[1, 1], [1, 1], [1, 0], [0, 0], [0, 0], [0, 0], [0, 0]], np.float32)
    client = ClientData("anne", blank_images(7), labels, np.where(labels[:, 0] == 1, repeats, 1))
    test = SimpleNamespace(key="")
    table = SimpleNamespace(frame={"patient": pd.Series([*"abcdefg"])})
    site = SimpleNamespace(select=lambda role, name: table)
    study: Any = SimpleNamespace(
        diseases=("often", "rare"), digests={"anne": ""}, quarantined={}, test=test, sites=[site]
    )
    data = OwnData(client, None, study)
    if (smallest, repeats) == (3, 3):
        with assert_refused(Refused, kind="policy"):
            data.disclose(smallest, 0)
        return
    _, message = data.disclose(smallest, 0)
    assert message.ratios.tolist() == pytest.approx([3 / 7, 3 / 7] if smallest == 3 else [9 / 13, 6 / 13])
    assert message.labeled.tolist() == [1, 1]


@pytest.mark.parametrize("missing", range(7))
def test_small_missing_count_has_no_auc(missing: int) -> None:
    """An AUC times the number of its pairs is whole for the exact counts alone."""
    labels = np.repeat([[1.0], [0.0], [np.nan]], [30, 50 - missing, missing], axis=0).astype(np.float32)
    names = tuple(map(str, range(80)))
    test = TestSet(NoImages(), labels, np.arange(80), ("edema",), names, names, "")
    outputs = Outputs(np.random.default_rng(0).random((80, 1)), torch.zeros(0))
    (edema,) = disclose_row(test, outputs, pipeline().evaluation, 6).diseases
    assert edema.missing == (6 if missing else 0)
    assert (edema.value is None) == (0 < missing < 6)


@pytest.mark.parametrize(("patients", "told"), [(2, [6, 6]), (6, [12, 6])])
def test_few_test_patients_are_not_counted(patients: int, told: list[int]) -> None:
    """Neither as numbers of test images that stay, nor at the target, where a histogram would tell them."""
    labels, numbers = np.tile([[1.0], [0.0]], (patients, 1)).astype(np.float32), np.repeat(np.arange(patients), 2)
    names = tuple(map(str, range(2 * patients)))
    images, few = (blank_images(count) for count in (60, len(names)))
    test = TestSet(few, labels, numbers, ("edema",), names, names, "")
    frame = {"patient": pd.Series([*map(str, range(60))])}
    site = SimpleNamespace(select=lambda role, name: SimpleNamespace(frame=frame))
    client = ClientData("anne", images, np.tile([[1.0], [0.0]], (30, 1)).astype(np.float32), np.ones(60, np.int64))
    about = {"digests": {"anne": "", "test set": ""}, "quarantined": {}, "test": test, "sites": [site]}
    study: Any = SimpleNamespace(diseases=("edema",), **about)
    data = OwnData(client, test, study)
    values, _ = data.disclose_test(test, 6, scores_stay=True)
    assert values["kept"] == told
    if patients < 6:
        with assert_refused(Refused, kind="policy"):
            data.disclose(6, 0)
    else:
        assert data.disclose(6, 0)[0]["cards"][1]["images"] == 12


@given(st.lists(st.integers(0, 400), min_size=3, max_size=3), st.integers(0, 20))
def test_no_sum_gives_a_small_count_away(counts: list[int], smallest: int) -> None:
    entry = {"positives": counts[0], "negatives": counts[1], "missing": counts[2], "prevalence": 0.5}
    patients = (counts[0], counts[1], counts[2])
    card = suppress_counts({"images": sum(counts), "diseases": {"edema": entry}}, [patients], smallest)
    numbers = [card["diseases"]["edema"][key] for key in entry if key != "prevalence"]
    small = [0 < count < smallest for count in counts]
    if not any(small):
        assert card["diseases"]["edema"] == entry
    if max(counts) >= 3 * smallest:
        assert sum(numbers) == sum(counts)
    for hidden, count, number in zip(small, counts, numbers, strict=True):
        assert (number == 0) == (count == 0)
        assert number >= smallest or not count
        assert number == smallest or not hidden


def test_end_of_missing_turn_is_refused() -> None:
    host = Host(QuadraticClient("anne", problems(PRIMAL, DISEASES)[0]), lambda stage: RULE)
    with assert_refused(TrainingError, "unexpected turn", turn=7):
        host.answer(Finish(7))


@pytest.mark.parametrize("values", [{"turns": 3}, {"part": "k2 of the study a"}])
def test_foreign_state_is_damaged(tmp_path: Path, values: dict[str, Any]) -> None:
    from chestfed.core.checkpoint import save_state

    host = Host(QuadraticClient("anne", problems(PRIMAL, DISEASES)[0]), lambda stage: RULE)
    save_state(tmp_path / "k1.safetensors", {}, values)
    cohort: Any = SimpleNamespace(objective=lambda: SimpleNamespace(extra_size=0, dual_size=2))
    network: Any = SimpleNamespace(parameters=lambda: torch.zeros(6), grad=torch.zeros(6))
    with assert_refused(DamagedError, "damaged checkpoint"):
        restore_host(host, tmp_path / "k1.safetensors", cohort, network)


def test_code_and_weights_are_part_of_an_approval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plug-in or first weights that change under the same name need another approval, and all of it is shown."""
    monkeypatch.chdir(tmp_path)
    sample = sample_hospital("padchest", tmp_path, tmp_path / "data")
    source = Path(tiny_transformer.__file__).read_text(encoding="utf-8")
    (tmp_path / "codenet.py").write_text(source, encoding="utf-8")
    policy = Policy(approval="required")
    file = sample.file.model_copy(update={"plugins": ["codenet:TINY"], "policy": policy})
    hospital, digests = replace(sample, file=file), list[str]()
    settings = "model={name: 'codenet:TINY', initial_weights: first.pt}"

    def save_weights() -> None:
        weights = TinyTransformer(5).state_dict()
        for folder in (tmp_path, sample.folder):
            torch.save(weights, folder / "first.pt")

    def change_code() -> None:
        (tmp_path / "codenet.py").write_text(source + "\n# changed\n", encoding="utf-8")

    for change in (save_weights, save_weights, change_code):
        change()
        participant = Participant(hospital, lambda text: None)
        assert "waits for an approval" in participant(greeting(pipeline(settings))).values["refused"]
        digest = approval_digest(read_pipeline(shareable(pipeline(settings)), hospital))
        assert digest not in digests
        digests.append(digest)
        shown = "\n".join(describe(read_pending(hospital)[digest], "padchest", "aucs"))
        assert str(tmp_path / "codenet.py") in shown
        assert "SHA-256" in shown
        approve(hospital, digest)
        assert "refused" not in participant(greeting(pipeline(settings))).values


def test_refused_greeting_changes_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A greeting imports a plug-in anew even if it is refused: the study before it, approved with its code, ends."""
    monkeypatch.chdir(tmp_path)
    sample = sample_hospital("padchest", tmp_path, tmp_path / "data")
    source = Path(tiny_transformer.__file__).read_text(encoding="utf-8")
    (tmp_path / "swapnet.py").write_text(source, encoding="utf-8")
    file = sample.file.model_copy(update={"plugins": ["swapnet:TINY"]})
    participant = Participant(replace(sample, file=file), lambda text: None)
    asked = greeting(pipeline("model={name: 'swapnet:TINY'}"))
    assert "refused" not in participant(asked).values
    question = Parcel({"kind": "begin", "to": "padchest", "study": asked.values["study"], "k": 3, "rows": []})
    with assert_refused(Refused, "unknown study"):  # labels are not read
        participant.answer(question)
    (tmp_path / "swapnet.py").write_text(source + "\n# changed\n", encoding="utf-8")
    with assert_refused(Refused, "code"):  # that in memory is the old one
        participant.answer(question)
    assert "refused" in participant(asked).values
    (tmp_path / "swapnet.py").write_text(source, encoding="utf-8")
    with assert_refused(Refused, "code"):  # the file is the old one, that in memory is not
        participant.answer(question)


def test_no_network_is_built_before_approval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sample = sample_hospital("padchest", tmp_path, tmp_path / "data")
    file = sample.file.model_copy(update={"policy": Policy(approval="required", most_rounds=1)})
    question = greeting(pipeline())

    def build(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("chestfed.leaves.federation.handshake.try_network", build)
    for policy in (Policy(approval="required", most_rounds=1), Policy(approval="required")):
        hospital = replace(sample, file=file.model_copy(update={"policy": policy}))
        with pytest.raises(Refused):
            Participant(hospital, lambda text: None).answer(question)
    other = Parcel(question.values | {"passport": question.values["passport"] | {"torch": "0.1"}})
    with pytest.raises(Refused):
        Participant(sample, lambda text: None).answer(other)
