"""A study with clients at hospitals: their records at the server, and the questions that it sends them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from chestfed.core.checkpoint import write_json
from chestfed.core.errors import ConfigError
from chestfed.learning.engines.fleet import Fleet
from chestfed.learning.engines.messages.wire import WireError, pack, unpack
from chestfed.learning.models import FlatModule
from chestfed.leaves.federation import handshake
from chestfed.leaves.federation.hospital.local import scored_hospitals
from chestfed.leaves.federation.parcels import Parcel
from chestfed.leaves.federation.records import (
    Beginning,
    Counts,
    Hardware,
    Losses,
    Network,
    Opened,
    OpenedTest,
    Scores,
    StageOne,
    TestLabels,
    read_row,
    read_values,
    with_nan,
)
from chestfed.leaves.federation.server.conversation import Conversation, Question
from chestfed.leaves.federation.server.fleet import HospitalFleet
from chestfed.leaves.federation.server.membership import Membership
from chestfed.leaves.federation.settings import Faults
from chestfed.results.evaluation.intervals.methods import Intervals
from chestfed.results.tables.frames import Row
from chestfed.results.tables.run_folder import FEDERATION
from chestfed.studies.experiment.device import Machine
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.experiment.resolved import shareable
from chestfed.studies.training.assemble import Deployment, Federation
from chestfed.studies.training.client_summary import BINS, add_weights
from chestfed.studies.training.data.clients import ClientData, Outputs, TestSet
from chestfed.studies.training.data.experiment import Experiment
from chestfed.studies.training.pretrain import Pretrained

Answer = TypeVar("Answer")


class _Elsewhere:
    """Images that are at a hospital."""

    records = np.zeros(0, np.int64)
    digests = np.zeros(0, np.uint8)

    def read(self, row: int) -> np.ndarray:
        """Always refused: the server has no images."""
        raise ConfigError("the images are at the hospital")


ELSEWHERE: Any = _Elsewhere()


@dataclass(frozen=True)
class DistantClient(ClientData):
    """A hospital as the server knows it: counts, and no image."""

    rows: int = 0
    counts: Counts = field(default_factory=lambda: Counts.like(0))

    @property
    def training_rows(self) -> int:
        return self.rows

    def positive_ratios(self) -> np.ndarray:
        return with_nan(self.counts.ratios)

    def labeled_share(self) -> Tensor:
        return self.counts.labeled


@dataclass(frozen=True)
class KeptTest(TestSet):
    """Test images whose hospital sends only AUCs with intervals; `size`: numbers of images and patients."""

    size: tuple[int, int] = (0, 0)

    @property
    def counts(self) -> tuple[int, int]:
        return self.size

    def aucs(self, outputs: Outputs) -> dict[str, float | None]:
        assert outputs.row is not None
        return {disease_row.disease: disease_row.value for disease_row in outputs.row.diseases}

    def mean_auc(self, outputs: Outputs) -> float | None:
        """As the hospital says."""
        assert outputs.row is not None
        return outputs.row.mean.value

    def row(self, outputs: Outputs, k: int, clients: Sequence[str], how: Intervals) -> Row:
        """As the hospital says, which knows how from the pipeline."""
        assert outputs.row is not None
        return replace(outputs.row, k=k, clients=tuple(clients))


class Hospitals(Deployment):
    """The hospitals of a pipeline, in the order of addition; the first is the target."""

    has_test_images = False

    def __init__(self, conversation: Conversation, faults: Faults, pipeline: Pipeline, membership: Membership) -> None:
        self._conversation, self._faults = conversation, faults
        self._pipeline, self._membership, self.names = pipeline, membership, membership.names
        self.machines: dict[str, dict[str, Any]] = {}  # by hospital, as it says
        self._cards: list[dict[str, Any]] = []
        self._own_tests: dict[str, TestSet] = {}
        self._make_beginning: Callable[[str], Question] | None = None
        self._active: tuple[str, ...] = ()  # who trains at the K under way; the others are only scored
        self._sizes = (0, 0)
        self._digests: dict[tuple[str, str], str] = {}  # of opened data, by hospital and test set
        self._keys: dict[str, str] = {}  # fingerprint of the key of each hospital's keyed names
        conversation.introduce = self._introduce

    @property
    def target(self) -> str:
        """The hospital with the test images."""
        return self.names[0]

    def greet(self) -> None:
        """Compare what must be equal, at all hospitals, before anything is read."""
        self._passport = handshake.passport(self._pipeline)
        words = self._passport["model"].split()
        self._sizes = int(words[0]), int(words[2])
        machines = self._conversation.ask({name: self._make_greeting(name) for name in self._membership.present})
        self.machines = {name: machine.model_dump() for name, machine in machines.items()}

    def gather(self, machine: Machine) -> Experiment:
        """Have every present hospital open its data; what they report of it, and of those that left what they did."""
        membership, diseases = self._membership, tuple(self._pipeline.tasks)
        answers: dict[str, tuple[Opened, Counts]] = self._conversation.ask(
            {name: self._make_data_question(name) for name in membership.present}
        )
        membership.remember({name: _to_plain(*answer) for name, answer in answers.items()})
        answers |= {
            name: _from_plain(opening)
            for name in self.names
            if name not in answers and (opening := membership.opening(name)) is not None
        }
        blank, repeats = np.zeros((0, len(diseases)), np.float32), np.zeros(0, np.int64)
        clients, digests, unreadable = [], {}, {}
        for name in self.names:
            if name not in answers:  # it never took part, and is in no K until it does
                counts, origin = (
                    Counts(*2 * [torch.full((len(diseases),), -1.0).double()]),
                    answers[self.target][0].origin,
                )
                clients.append(DistantClient(name, ELSEWHERE, blank, repeats, origin, 0, counts))
                digests[name] = membership.digest(name, "")
                continue
            opened, counts = answers[name]
            clients.append(DistantClient(name, ELSEWHERE, blank, repeats, opened.origin, opened.rows, counts))
            digests[name] = membership.digest(name, opened.digest)
            if opened.unreadable:
                unreadable[name] = [None] * opened.unreadable
        opened_first = {name: answers[name][0] for name in self.names if name in answers}
        cards = [opened.cards[0] for opened in opened_first.values()] + [opened_first[self.target].cards[1]]
        self._cards = [card.model_dump(mode="json") for card in cards]
        test, digests["test set"], _ = self._conversation.ask_one(
            self.target, self._make_test_question(self.target, "study")
        )
        joins = {name: k for name, k in scored_hospitals(self._pipeline).items() if name in membership.present}
        own_tests = self._conversation.ask({name: self._make_test_question(name, "own") for name in joins})
        self._own_tests = {
            name: test if is_study_test else own_test
            for name, (own_test, _, is_study_test) in own_tests.items()
            if own_test is not None
        }
        read: dict[str, Any] = {"test": test, "hospitals": self._own_tests, "quarantined": unreadable}
        return Experiment(self._pipeline, machine, joins=joins, clients=tuple(clients), digests=digests, **read)

    def pretrain(self, setup: Experiment, folder: Path, report: Callable[[int, float], None]) -> Pretrained:
        """Stage 1, at the target hospital, which says how far it is; see `studies.training.pretrain`."""
        steps, reached = setup.pipeline.pretrain.steps(setup.clients[0].training_rows), -1

        def read(parcel: Parcel) -> Pretrained | StageOne:
            if "step" in parcel.values:
                progress = read_values(StageOne, parcel.values, self.target)
                if not reached < progress.step <= steps:
                    raise WireError(f"{self.target} does not get on in stage 1")
                return progress
            network = unpack(parcel.packed, Network.like(*self._sizes), self.target)
            losses = read_values(Losses, parcel.values, self.target).losses
            return Pretrained(network.parameters, network.buffers, losses)

        while isinstance(answer := self._conversation.ask_one(self.target, Question("pretrain", read=read)), StageOne):
            reached = answer.step
            report(reached, answer.loss)
        done: Pretrained = answer
        report(steps, done.losses[-1] if done.losses else float("nan"))
        return done

    def fleet(self, setup: Experiment, pretrained: Pretrained, cohort: Federation, network: FlatModule) -> Fleet:
        """The hospitals of K, ready for stage 2."""
        active = self._membership.form(cohort.k)
        clients = {client.name: client for client in setup.clients if isinstance(client, DistantClient)}
        counts = [clients[name].counts for name in cohort.names]
        ratios, labeled = (torch.stack([getattr(part, key) for part in counts]) for key in ("ratios", "labeled"))
        packed = pack(Beginning(ratios, labeled, pretrained.weights, pretrained.buffers))
        rows = [[name, clients[name].training_rows] for name in cohort.names]

        def beginning(name: str) -> Question:
            return Question("begin", {"k": cohort.k, "rows": rows}, packed)

        self._make_beginning, self._active = beginning, active
        self._conversation.ask({name: beginning(name) for name in active})
        shapes = [cohort.shapes(*self._sizes, number) for number in range(len(cohort.names))]
        about = (self._conversation, self._faults, cohort, active, shapes, setup.machine.device)
        return HospitalFleet(*about)

    def score(
        self, setup: Experiment, network: FlatModule, parameters: Tensor, buffers: Tensor, test: TestSet
    ) -> Outputs:
        """A model on test images, from the hospital that has them."""
        hospitals = [name for name, own_test in self._own_tests.items() if own_test is test]
        name, which = (hospitals[0], "own") if hospitals else (self.target, "study")
        like = Scores.like(len(test.labels), len(test.diseases), buffers.numel())

        def read(parcel: Parcel) -> Outputs:
            scores = unpack(parcel.packed, like, name)
            if not ((scores.scores >= 0) & (scores.scores <= 1)).all():
                raise WireError(f"{name} sent scores that are not probabilities")
            row = read_row(parcel.values.get("row"), test.diseases, name) if isinstance(test, KeptTest) else None
            if row is not None and row.interval != setup.pipeline.evaluation.interval:
                raise WireError(f"{name} sent intervals of another method")
            return Outputs(scores.scores.numpy(), scores.buffers.to(buffers), row)

        packed = pack(Network(parameters[: network.size], buffers))
        outputs: Outputs = self._conversation.ask_one(name, Question("score", {"test": which}, packed, read))
        return outputs

    def describe(self, folder: Path, experiment: Experiment) -> None:
        """Write `federation.json`, and `sites.json` with the hospitals' counts; there are no pictures."""
        changes = [change.model_dump() for change in self._membership.record.changes]
        about = {"hospitals": self.machines, "faults": self._faults.model_dump(), "changes": changes}
        write_json(folder / FEDERATION, about)
        if not (folder / "sites.json").exists():
            add_weights(self._cards, experiment.pipeline)
            content = {**experiment.origin.keys(), "bins": BINS, "sites": self._cards, "hospitals": []}
            write_json(folder / "sites.json", content)

    def _make_greeting(self, name: str) -> Question:
        values = {
            "passport": self._passport,
            "pipeline": shareable(self._pipeline),
        }

        def read(parcel: Parcel) -> Hardware:
            return read_values(Hardware, {key: parcel.values.get(key) for key in Hardware.model_fields}, name)

        return Question("greet", values, read=read)

    def _make_data_question(self, name: str) -> Question:
        def read(parcel: Parcel) -> tuple[Opened, Counts]:
            counts = unpack(parcel.packed, Counts.like(len(self._pipeline.tasks)), name)
            if not ((counts.labeled >= 0) & (counts.labeled <= 1)).all() or bool((counts.ratios > 1).any()):
                raise WireError(f"{name} sent shares that are not between 0 and 1")
            opened = read_values(Opened, parcel.values, name)
            about = [(card.name, card.role, list(card.diseases)) for card in opened.cards]
            expected = [(name, "client"), ("test images", "test")][: 1 + (name == self.target)]
            if about != [(*name_role, list(self._pipeline.tasks)) for name_role in expected]:
                raise WireError(f"{name} sent counts of other diseases or images")
            return opened, counts

        return Question("open", read=self._refuse_changes(name, "", read))

    def _make_test_question(self, name: str, which: str) -> Question:
        diseases = tuple(self._pipeline.tasks)

        def read(parcel: Parcel) -> tuple[TestSet | None, str, bool]:
            if which == "own" and parcel.values.get("none") is True:
                return None, "", False
            opened = read_values(OpenedTest, parcel.values, name)
            arrays = unpack(parcel.packed, TestLabels.like(len(opened.images), len(diseases)), name)
            labels, numbers = with_nan(arrays.labels), arrays.numbers.numpy()
            if (
                len(opened.patients) != len(numbers)
                or not np.isin(arrays.labels, (-1, 0, 1)).all()
                or (numbers < 0).any()
            ):
                raise WireError(f"{name} sent invalid labels or patients of test images")
            about = (ELSEWHERE, labels, numbers, diseases, opened.images, opened.patients, opened.key, opened.origin)
            if opened.kept is None:
                test = TestSet(*about, site=name, split=opened.split)
            else:
                test = KeptTest(*about, site=name, split=opened.split, size=opened.kept)
            return test, opened.digest, opened.is_test_set

        return Question("open", {"test": which}, read=self._refuse_changes(name, which, read))

    def _refuse_changes(self, name: str, which: str, read: Callable[[Parcel], Answer]) -> Callable[[Parcel], Answer]:
        """`read`, which refuses what is not as at the beginning: rounds of other data would be of no study."""

        def reread(parcel: Parcel) -> Answer:
            answer, arrays = read(parcel), {kind: array.tolist() for kind, array in parcel.packed.arrays.items()}
            digest = handshake.digest([{**parcel.values, "nonce": "", "log": ""}, arrays])
            if not which and self._keys.setdefault(name, parcel.values["key"]) != parcel.values["key"]:
                raise WireError(
                    f"{name} came back with another key of its keyed names. Put the file `names_key` of its "
                    "hospital.yaml back from the backup there; if it is lost, stop this study and start the same "
                    "command again, for another study under the new names"
                )
            if self._digests.setdefault((name, which), digest) != digest:
                raise WireError(
                    f"{name} came back with other data, or another choice of what leaves. Undo the change there; for a "
                    "study of the other data stop this one and start the same command again"
                )
            return answer

        return reread

    def _introduce(self, name: str) -> list[Question]:
        """The questions that bring a hospital that was started anew to where the study stands."""
        questions = [self._make_greeting(name), self._make_data_question(name)]
        questions += [self._make_test_question(name, which) for at, which in self._digests if at == name and which]
        if self._make_beginning is not None and name in self._active:
            questions.append(self._make_beginning(name))
        return questions


def _to_plain(opened: Opened, counts: Counts) -> dict[str, Any]:
    """Convert a hospital's report to plain data."""
    return opened.model_dump(mode="json") | {"ratios": counts.ratios.tolist(), "labeled": counts.labeled.tolist()}


def _from_plain(values: Mapping[str, Any]) -> tuple[Opened, Counts]:
    """The inverse of `_to_plain`."""
    ratios, labeled = (torch.tensor(values[key], dtype=torch.float64) for key in ("ratios", "labeled"))
    opened = read_values(
        Opened, {key: value for key, value in values.items() if key in Opened.model_fields}, "the server's file"
    )
    return opened, Counts(ratios, labeled)
