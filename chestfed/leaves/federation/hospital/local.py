"""A hospital's part of a study: its rows, its images, what is disclosed of them, and its client's state on disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chestfed.core.checkpoint import load_state, report_damage, save_state, write_text
from chestfed.core.errors import ConfigError
from chestfed.core.pseudonyms import PUBLISHED, SiteKey, make_key, read_key
from chestfed.data.sites.config import load_site_config
from chestfed.learning.algorithms.variables import Point, from_named_tensors, named_tensors
from chestfed.learning.engines.host import Host, Snapshot
from chestfed.learning.engines.messages.requests import Answer, Request, Start
from chestfed.learning.models import FlatModule
from chestfed.leaves.federation import handshake
from chestfed.leaves.federation.parcels import Refused
from chestfed.leaves.federation.records import Counts, TestLabels, without_nan
from chestfed.leaves.federation.settings import Hospital
from chestfed.results.evaluation.intervals.methods import Intervals
from chestfed.results.tables.frames import Row
from chestfed.studies.experiment.device import Machine
from chestfed.studies.experiment.pipeline import Evaluation, Pipeline
from chestfed.studies.training.assemble import Federation
from chestfed.studies.training.client_summary import make_site_card
from chestfed.studies.training.data.clients import ClientData, Outputs, TestSet
from chestfed.studies.training.data.experiment import Experiment, list_joins, load_images, make_experiment
from chestfed.studies.training.data.sites import OWN_TEST, TEST, TRAIN, UNUSED, VALID, open_sites

#: In the state folder: which key the names of earlier studies were made with.
FINGERPRINT = "names_key.fingerprint"
_COUNTS = ("positives", "negatives", "missing")
#: Distinct patients with positive, negative and missing labels of a disease.
PatientCounts = tuple[int, int, int]


@dataclass(frozen=True)
class OwnData:
    """Data of a hospital: what it trains on, and, at the target, what is scored."""

    client: ClientData
    test: TestSet | None
    study: Experiment

    @property
    def own_test(self) -> TestSet | None:
        """Held-out patients of this hospital, scored by the finished model of every K, or None without any."""
        return self.study.hospitals.get(self.client.name)

    @property
    def patients(self) -> np.ndarray:
        """The patients of the readable training images, `[n]`, as the site names them."""
        table = self.study.sites[0].select(TRAIN, self.client.name)
        return table.frame["patient"].to_numpy(dtype=str)[self.client.images.records >= 0]

    def count_training_patients(self) -> list[PatientCounts]:
        """Distinct patients of the readable training images by label, per disease."""
        return count_patients(self.client.labels[self.client.images.records >= 0], self.patients)

    def disclose(self, smallest: int, seed: int) -> tuple[dict[str, Any], Counts]:
        """Counts, ratios and digests for the server; a count of fewer than `smallest` patients as `smallest`.

        Raises `Refused` at a target with fewer test patients, of which each number would be such a count.
        """
        parts = [part for part in (self.client, self.test) if part is not None]
        cards = [make_site_card(part, self.study.diseases, seed)[0] | {"shown": []} for part in parts]
        patients = [self.count_training_patients()] if smallest else [[]]
        if self.test is not None and smallest:
            readable = self.test.images.records >= 0
            if len(set(self.test.patients[readable].tolist())) < smallest:
                text = f"smallest_count: there are fewer than {smallest} test patients, so nothing is told of them"
                raise Refused(text, kind="policy")
            patients.append(count_patients(self.test.labels[readable], self.test.patients[readable]))
        values: dict[str, Any] = {
            "rows": self.client.training_rows,
            "origin": str(self.client.origin),
            "digest": self.study.digests[self.client.name],
            "key": self.study.test.key,
            "unreadable": sum(map(len, self.study.quarantined.values())),
            "cards": [suppress_counts(*about, smallest) for about in zip(cards, patients, strict=True)]
            if smallest
            else cards,
        }
        ratios, labeled = self.client.positive_ratios(), self.client.labeled_share().numpy()
        for j, (name, counts) in enumerate(cards[0]["diseases"].items()):
            disclosed = values["cards"][0]["diseases"][name]
            if any(disclosed[key] != counts[key] for key in _COUNTS):
                known = disclosed["positives"] + disclosed["negatives"]
                ratios[j] = disclosed["positives"] / known if known else np.nan
                labeled[j] = known / (known + disclosed["missing"])
        if values["cards"][0] != cards[0]:  # the rounds depend on the disclosed counts
            if cards[0]["rows"] != cards[0]["images"]:
                text = "smallest_count hides a count of the hospital that repeated rows (`upsample`) would tell"
                raise Refused(text, kind="policy")
            values["digest"] = handshake.digest([values["digest"], ratios.tolist(), labeled.tolist()])
        return values, Counts(without_nan(ratios), torch.from_numpy(labeled))

    def disclose_test(self, test: TestSet, smallest: int, *, scores_stay: bool) -> tuple[dict[str, Any], TestLabels]:
        """Disclose test images: labels, which rows are of one patient, and keyed names.

        If scores stay, only their numbers; of fewer than `smallest` patients both as `smallest`.
        """
        images, patients = test.counts
        values: dict[str, Any] = {
            "key": test.key,
            "origin": str(test.origin),
            "digest": self.study.digests["test set"],
            "is_test_set": test is self.test,
            "split": test.split,
        }
        if scores_stay:
            no_labels = TestLabels(torch.zeros(0, len(test.diseases)), torch.zeros(0, dtype=torch.int64))
            return values | {"kept": [images, patients] if patients >= smallest else [smallest] * 2}, no_labels
        values |= {"images": list(test.image_names), "patients": list(test.patient_names)}
        numbers = torch.from_numpy(np.asarray(test.patients, np.int64))
        return values, TestLabels(without_nan(np.asarray(test.labels, np.float32)), numbers)


def disclose_row(test: TestSet, outputs: Outputs, evaluation: Evaluation, smallest: int) -> Row:
    """AUCs and intervals of test images, without scores; none where a count is of fewer than `smallest` patients.

    Also where that is the missing labels: an AUC times the number of its pairs is whole for the exact counts alone.
    """
    labels, counts, patients = test.labels.copy(), {}, count_patients(test.labels, test.patients)
    for j, column in enumerate(test.attach_scores(outputs.scores).columns()):
        exact = list(column.counts.values())
        counts[column.disease] = _round_small(exact, patients[j], smallest)
        if counts[column.disease] != exact or 0 < min(patients[j][:2]) < smallest:
            labels[:, j] = np.nan
    how = Intervals(evaluation.interval, evaluation.resamples)
    row = replace(test, labels=labels).row(outputs, 0, (), how)
    aucs = []
    for disease_row in row.diseases:
        positives, negatives, missing = counts[disease_row.disease]
        hidden = disease_row.value is None and positives and negatives
        reason = f"a count of fewer than {smallest} patients: not disclosed" if hidden else disease_row.reason
        disclosed = replace(disease_row, positives=positives, negatives=negatives, missing=missing, reason=reason)
        if smallest:  # counts of patients would give rounded counts of images away
            disclosed = replace(disclosed, positive_patients=None, negative_patients=None)
        aucs.append(disclosed)
    return replace(row, aucs=(*aucs, row.mean), scores_stay=True)


def scored_hospitals(pipeline: Pipeline) -> dict[str, int]:
    """The hospitals at which the model of every K is scored, and from which K on each takes part."""
    return list_joins(pipeline, dict.fromkeys(handshake.hospitals_in(pipeline), 1))


def localize_pipeline(pipeline: Pipeline, place: int, hospital: Hospital) -> Pipeline:
    """The pipeline with this hospital's entry alone, which points to its own site YAML."""
    file = hospital.path("site")
    site = load_site_config(file).site
    if site != hospital.file.hospital:
        raise ConfigError(f"{file}: describes the site '{site}', and {hospital.file.hospital} takes part: change one")
    entry = pipeline.sites[place].model_copy(update={"config": str(file.resolve()), "root": None})
    return pipeline.model_copy(update={"sites": [entry]})


def open_rows(pipeline: Pipeline, hospital: Hospital, machine: Machine, *, target: bool, scored: bool) -> Experiment:
    """The rows that take part; reads the label files. `scored`: also those of held-out patients of this hospital."""
    sites = open_sites(pipeline, hospital.folder / "pipeline.yaml", hospital.path("data_root"), target_first=target)
    if target:
        return replace(make_experiment(pipeline, sites, machine), joins={sites[0].name: 1} if scored else {})
    site = sites[0].move([VALID], UNUSED, "set aside for validation")
    site = site.move([TEST], OWN_TEST) if scored else site.move([TEST, OWN_TEST], UNUSED, "not scored")
    return Experiment(pipeline, machine, (site,))


def open_data(rows: Experiment, hospital: Hospital, *, target: bool) -> OwnData:
    """The images; decodes what is not in the cache."""
    key = names_key(hospital, public=all(site.table.phantoms for site in rows.sites))
    (study,) = load_images([rows], hospital.path("cache"), key=key)
    return OwnData(study.clients[0], study.test if target else None, study)


def names_key(hospital: Hospital, *, public: bool) -> SiteKey:
    """The key of this hospital's keyed names, made when first needed; published if all images are bundled phantoms.

    Its fingerprint is kept in the state folder, so that a key that was lost or exchanged is noticed.

    Raises
    ------
    ChestfedError
        If the key file lies in `state` or `cache`, or cannot be read or made.
    Refused
        If it is missing, or another than the one that earlier studies were named with.
    """
    if public:
        return PUBLISHED
    file = hospital.path("names_key")
    for folder in ("state", "cache"):
        if file.resolve().is_relative_to(hospital.path(folder).resolve()):
            text = f"names_key: {file} is in `{folder}`, which may be deleted or copied: move the key out"
            raise ConfigError(text, kind="misplaced key", folder=folder)
    mark = hospital.path("state") / FINGERPRINT
    known = mark.read_text(encoding="ascii").strip() if mark.exists() else ""
    if not known:
        make_key(file)
    present = read_key(file) if file.exists() else None
    if present is None or known not in ("", present.fingerprint):
        raise Refused(
            f"names_key: the secret key of the keyed names is {'another one' if present else 'missing'} at "
            f"{hospital.file.hospital}, where earlier studies were named with the key {known}: images and patients "
            "would get other names in the middle of a study. Put the key back from the backup. If it is lost, delete "
            f"{FINGERPRINT} in the state folder there and run the study again from its beginning; names of earlier "
            "results then match no later ones",
            kind="another key" if present else "no key",
        )
    if not known:
        write_text(mark, present.fingerprint + "\n")
    return present


def count_patients(labels: np.ndarray, patients: np.ndarray) -> list[PatientCounts]:
    """Distinct patients with positive, negative and missing labels of each disease; labels `[n, J]`, patients `[n]`."""
    classes = [(column == 1, column == 0, np.isnan(column)) for column in labels.T]
    return [tuple(len(set(patients[rows].tolist())) for rows in parts) for parts in classes]  # type: ignore[misc]


def suppress_counts(card: dict[str, Any], patients: Sequence[PatientCounts], smallest: int) -> dict[str, Any]:
    """A card whose counts of fewer than `smallest` patients are `smallest`, and the prevalence that follows."""
    diseases = {}
    for (name, counts), few in zip(card["diseases"].items(), patients, strict=True):
        exact = [counts[key] for key in _COUNTS]
        rounded = _round_small(exact, few, smallest)
        diseases[name] = counts
        if rounded != exact:
            known = rounded[0] + rounded[1]
            prevalence = rounded[0] / known if known else None
            diseases[name] = dict(zip(_COUNTS, rounded, strict=True)) | {"prevalence": prevalence}
    return card | {"diseases": diseases}


def _round_small(counts: Sequence[int], patients: PatientCounts, smallest: int) -> list[int]:
    """Set counts of fewer than `smallest` patients to `smallest`, and lower the largest other one by the surplus.

    The sum of the counts stays the same where it can; otherwise it would disclose a small count.
    """
    few = [0 < number < smallest for number in patients]
    rounded = [smallest if is_few else count for count, is_few in zip(counts, few, strict=True)]
    if too_many := sum(rounded) - sum(counts):
        most = max(range(len(counts)), key=lambda place: 0 if few[place] else counts[place])
        if counts[most] and not few[most]:
            rounded[most] = max(rounded[most] - too_many, smallest)
    return rounded


def answer_request(host: Host, request: Request[Answer]) -> Answer:
    """The host's answer; a start from turn 0 begins anew, whatever a run that was given up has left."""
    if isinstance(request, Start) and request.after == 0:
        blank = torch.zeros_like(host.client.memory)
        host.snapshots, host.stepped = {0: Snapshot(None, tuple(0 for _ in host.client.positions()), memory=blank)}, {}
    return host.answer(request)


def save_host(host: Host, path: Path, history: dict[str, Any]) -> None:
    """Write the states of all turns that the host keeps, and the history of its turns."""
    tensors: dict[str, Tensor] = {}
    values: dict[str, Any] = {}
    for kind in ("snapshots", "stepped"):
        turns: dict[int, Snapshot] = getattr(host, kind)
        for turn, saved in turns.items():
            if saved.state is not None:
                tensors |= named_tensors(saved.state, f"{kind}{turn}")
            if saved.memory.numel():
                tensors[f"memory.{kind}{turn}"] = saved.memory
        values[kind] = [[turn, saved.state is not None, saved.drawn, saved.stage] for turn, saved in turns.items()]
    save_state(path, tensors, values | {"part": _name_part(path), "history": history})


def restore_host(host: Host, path: Path, cohort: Federation, network: FlatModule) -> dict[str, Any]:
    """Let a new host go on from the file, if there is one; the history of its turns."""
    if not path.exists():
        return {}
    tensors, values = load_state(path, network.grad.device)
    objective = cohort.objective()
    extra, dual = torch.zeros(objective.extra_size), torch.zeros(objective.dual_size)
    point = Point(torch.cat([network.parameters(), extra.to(network.grad)]), dual.to(network.grad))
    with report_damage(path):
        if values["part"] != _name_part(path):
            raise ValueError(f"it is of {values['part']}, not of {_name_part(path)}")
        like = host.start_at(point)
        for kind in ("snapshots", "stepped"):
            states: dict[int, Snapshot] = {}
            for turn, is_there, drawn, stage in values[kind]:
                state = from_named_tensors(like, tensors, f"{kind}{turn}") if is_there else None
                memory = tensors.get(f"memory.{kind}{turn}", host.client.memory)
                states[turn] = Snapshot(state, tuple(drawn), stage, memory)
            setattr(host, kind, states)
        history: dict[str, Any] = values["history"]
    return history


def _name_part(path: Path) -> str:
    """Study and K, which name the folder and the file."""
    return f"{path.stem} of the study {path.parent.name}"
