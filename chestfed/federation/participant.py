"""A hospital's answers to the server's questions, and nothing that was not asked for in this closed set.

greet      compare versions, labels, preprocessing, pipeline and model; no file of the hospital is read
open       read labels and images; tell counts
pretrain   stage 1, at the target
begin      make ready for stage 2 with the first K hospitals
ask        a request of `chestfed.engines.requests` to this hospital's client
score      of the study's test images, at the target, or of a hospital's own: probabilities, or AUCs, as it chooses
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError

from chestfed.core.errors import ChestfedError, TrainingError
from chestfed.engines.host import Host
from chestfed.engines.requests import Export, Import
from chestfed.engines.shapes import Shapes
from chestfed.engines.wire import WireError, pack, peek, unpack
from chestfed.experiment.device import Machine, prepare_machine
from chestfed.experiment.pipeline import Pipeline
from chestfed.federation import handshake, kept
from chestfed.federation.local import OwnData, own_data, own_pipeline, own_tables, row_told, scored_hospitals
from chestfed.federation.parcels import Parcel
from chestfed.federation.records import Beginning, Network, Scores, plain_row, with_nan
from chestfed.federation.settings import Hospital
from chestfed.models import FlatModule
from chestfed.training.assemble import Cohort, Facts, host_of, starting_network
from chestfed.training.clients import TestSet, score
from chestfed.training.pretrain import Pretrained, new_network, pretrain

_log = logging.getLogger("chestfed.hospital")


class Refused(ChestfedError):
    """A question that this hospital does not answer; the server is told why."""


@dataclass
class Begun:
    """Stage 2 with the first `k` hospitals."""

    k: int
    host: Host
    shapes: Shapes
    file: Path


@dataclass
class Study:
    """A study that this hospital takes part in; `data` once it is open, `begun` in stage 2."""

    pipeline: Pipeline
    own: Pipeline
    machine: Machine
    folder: Path
    target: bool
    network: FlatModule
    data: OwnData | None = None
    begun: Begun | None = None

    def opened(self) -> OwnData:
        """The data, which must be open."""
        if self.data is None:
            raise Refused("unknown: the study is not open here")
        return self.data


class Participant:
    """Answers messages; `say` is told what happens, in words without a patient or a path."""

    def __init__(self, hospital: Hospital, say: Callable[[str], object]) -> None:
        self._hospital, self._say = hospital, say
        self._name, self._leaves = hospital.file.hospital, hospital.file.leaves
        self._studies: dict[str, Study] = {}

    def __call__(self, question: Parcel | WireError) -> Parcel:
        """The reply to what has come; a refusal says so in words and never raises."""
        given = question.values if isinstance(question, Parcel) else {}
        nonce, kind = str(given.get("nonce", "")), str(given.get("kind", ""))
        try:
            if isinstance(question, WireError):
                raise question
            answer = self.answer(question)
        except ChestfedError as error:
            self._say(f"refused {ascii(kind)[:40]}: {error}")
            answer = Parcel({"refused": _told(error)})
        except Exception as error:  # whatever the server sends, the hospital goes on
            _log.exception("a question of kind %s", ascii(kind)[:40])
            self._say(f"failed at {ascii(kind)[:40]}: {type(error).__name__}; the log says more")
            answer = Parcel({"refused": f"{type(error).__name__} at the hospital; its own log says more"})
        return Parcel(answer.values | {"nonce": nonce, "kind": kind}, answer.packed)

    def answer(self, question: Parcel) -> Parcel:
        """What is asked for.

        Raises
        ------
        ChestfedError
            If it is refused, or fails.
        """
        values = question.values
        if values.get("to") != self._name:
            raise Refused(
                f"the question is for '{values.get('to')}'; this is {self._name}: two hospitals have one key?"
            )
        kind, digest = values.get("kind"), str(values.get("study"))
        if kind == "greet":
            return self._greet(values, digest)
        study = self._studies.get(digest)
        if study is None:
            raise Refused("unknown: no study of this digest was agreed upon since this hospital started")
        if kind not in _ANSWERS:
            raise Refused("a question of a kind that is not answered")
        return _ANSWERS[kind](self, study, question)

    def _greet(self, values: dict[str, Any], digest: str) -> Parcel:
        if not re.fullmatch("[0-9a-f]{16}", digest):  # it names a folder here
            raise Refused("the study is not named by a digest")
        theirs = dict(values.get("passport", {}))
        _refuse_differences(theirs, handshake.versions())
        try:
            pipeline = Pipeline.model_validate(values.get("pipeline"))
        except ValidationError as error:
            keys = ", ".join(".".join(map(str, one["loc"])) for one in error.errors())
            raise Refused(f"the pipeline cannot be read here: {keys}") from None
        handshake.refuse_what_cannot_be_spread(pipeline)
        passport = handshake.passport(pipeline)
        _refuse_differences(theirs, passport)
        known = self._studies.get(digest)
        if known is None or known.pipeline != pipeline:  # intervals, say, are not in the digest
            place = int(values["place"])
            own = own_pipeline(pipeline, place, self._hospital)
            if place == 0 and self._leaves.results == "nothing":
                raise Refused("leaves.results is `nothing` here: this hospital does not take part as the target")
            runtime = {"device": self._hospital.file.device}
            if self._hospital.file.threads is not None:
                runtime["threads"] = self._hospital.file.threads  # type: ignore[assignment]
            machine = prepare_machine(own.runtime.model_copy(update=runtime))
            folder = self._hospital.path("state") / digest
            network = new_network(own, machine)
            self._studies = {digest: Study(pipeline, own, machine, folder, place == 0, network)}  # one at a time
            self._say(f"agreed on study {digest}: {pipeline.title}")
        machine = self._studies[digest].machine
        return Parcel({"passport": passport, "device": machine.device.type, "threads": machine.threads})

    def _open(self, study: Study, question: Parcel) -> Parcel:
        if study.data is None:
            scored = self._name in scored_hospitals(study.pipeline) and self._leaves.results != "nothing"
            tables = own_tables(study.own, self._hospital, target=study.target, scored=scored)
            self._say("labels are read; decoding what is not in the cache")
            study.data = own_data(study.own, tables, self._hospital, target=study.target)
            self._say(f"open: {study.data.client.training_rows:,} training rows")
        if "test" in question.values:
            test = _test_of(study.data, question)
            if test is None:
                return Parcel({"none": True})
            values, labels = study.data.told_of_test(test, scores_stay=self._leaves.results == "aucs")
            return Parcel(values, pack(labels))
        values, counts = study.data.told(self._leaves.smallest_count, study.pipeline.seed)
        return Parcel(values, pack(counts))

    def _pretrain(self, study: Study, question: Parcel) -> Parcel:
        data = study.opened()

        def report(step: int, loss: float) -> None:
            self._say(f"stage 1: step {step}")

        folder = study.folder / f"stage1-{data.study.digests[data.client.name]}"  # the study's digest is of no images
        done = pretrain(study.own, data.study, study.machine, folder, report)
        return Parcel({"losses": done.losses}, pack(Network(done.weights, done.buffers)))

    def _begin(self, study: Study, question: Parcel) -> Parcel:
        data, values, network = study.opened(), question.values, study.network
        k, number, rows, names = (values.get(key) for key in ("k", "number", "rows", "names"))
        if not isinstance(names, list) or not isinstance(rows, list) or len(names) != k or len(rows) != k:
            raise Refused("the hospitals of stage 2 are not listed as they should be")
        if type(number) is not int or number not in range(k) or names[number] != self._name:
            raise Refused("the server has another hospital at this one's place")
        sizes = network.size, network.buffers().numel()
        told = unpack(question.packed, Beginning.like(k, len(study.pipeline.tasks), *sizes), "the server")
        facts = [
            Facts(str(name), int(count), with_nan(ratios), labeled)
            for name, count, ratios, labeled in zip(names, rows, told.ratios, told.labeled, strict=True)
        ]
        if study.begun is not None:
            study.begun.host.client.close()
        study.network = starting_network(study.pipeline, study.machine, Pretrained(told.parameters, told.buffers, []))
        cohort = Cohort.of(study.pipeline, facts, study.machine.device)
        host = host_of(study.own, cohort, number, data.client, study.network, study.machine)
        file = study.folder / f"k{k}.safetensors"
        kept.restore(host, file, cohort, study.network)
        study.begun = Begun(k, host, cohort.shapes(*sizes, number), file)
        self._say(f"ready for stage 2 with {k} hospitals, at turn {max(host.kept)}")
        return Parcel({"turns": sorted(host.kept)})

    def _ask(self, study: Study, question: Parcel) -> Parcel:
        begun = study.begun
        if begun is None or begun.k != question.values.get("k"):
            raise Refused("unknown: stage 2 with this many hospitals has not begun here")
        like = begun.shapes.request(*peek(question.packed.header, "the server"), "the server")
        if isinstance(like, Export | Import):
            raise Refused("a client's state is neither given out nor taken in here")
        request = unpack(question.packed, like, "the server", study.machine.device)
        reply = kept.answer(begun.host, request)
        kept.save(begun.host, begun.file)
        return Parcel({}, pack(reply))

    def _score(self, study: Study, question: Parcel) -> Parcel:
        data, network = study.opened(), study.network
        test = _test_of(data, question)
        if test is None:
            raise Refused("there are no test images here, or nothing of them leaves")
        like = Network.like(network.size, network.buffers().numel())
        given = unpack(question.packed, like, "the server", study.machine.device)
        batch = study.pipeline.evaluation.batch_size
        found = score(network, given.parameters, given.buffers, test, batch, study.machine)
        if self._leaves.results == "aucs":
            row = row_told(test, found, study.pipeline.evaluation, self._leaves.smallest_count)
            nothing = torch.zeros((0, len(test.diseases)), dtype=torch.float64)
            return Parcel({"row": plain_row(row)}, pack(Scores(nothing, found.buffers)))
        return Parcel({}, pack(Scores(torch.from_numpy(found.scores), found.buffers)))


_ANSWERS: dict[Any, Callable[[Participant, Study, Parcel], Parcel]] = {
    "open": Participant._open,
    "pretrain": Participant._pretrain,
    "begin": Participant._begin,
    "ask": Participant._ask,
    "score": Participant._score,
}


def _refuse_differences(server: dict[str, str], hospital: dict[str, str]) -> None:
    if found := handshake.differences(server, hospital):
        raise Refused("\n".join(found))


def _test_of(data: OwnData, question: Parcel) -> TestSet | None:
    """The test set that a question is about: the study's, or of patients of this hospital (`own`)."""
    return data.own_test if question.values.get("test") == "own" else data.test


def _told(error: ChestfedError) -> str:
    """What the server hears of a failure: of one here its kind only, because the message may name files."""
    if isinstance(error, Refused | WireError | TrainingError):
        return str(error)
    return f"{type(error).__name__} at the hospital; its own log says more"
