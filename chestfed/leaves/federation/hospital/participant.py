"""A hospital's answers to the server's questions, and nothing that was not asked for in this closed set.

greet      compare versions, labels, preprocessing, pipeline and model; no file of the hospital is read
open       read labels and images; tell counts
pretrain   stage 1, at the target
begin      make ready for stage 2 with the first K hospitals
ask        a request of `chestfed.learning.engines.messages.requests` to this hospital's client
score      of the study's test images, at the target, or of a hospital's own: probabilities, or AUCs, as it chooses
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
import yaml

from chestfed.core.checkpoint import write_text
from chestfed.core.errors import ChestfedError, NotWrittenError, TrainingError
from chestfed.core.plugins import freeze_plugins
from chestfed.core.processes import stopping
from chestfed.learning.engines.messages.requests import BestDual, Export, Import, Locate, OwnRequest, Start, Work
from chestfed.learning.engines.messages.wire import WireError, pack, unpack
from chestfed.leaves.federation import handshake
from chestfed.leaves.federation.allowance import Allowance
from chestfed.leaves.federation.hospital import plan, policy
from chestfed.leaves.federation.hospital.local import (
    OwnData,
    answer_request,
    disclose_row,
    localize_pipeline,
    open_data,
    open_rows,
    restore_host,
    save_host,
    scored_hospitals,
)
from chestfed.leaves.federation.hospital.log import DIGEST, fields_of, file_of, hash_parcel, hospital_log, request_entry
from chestfed.leaves.federation.hospital.noise import add_noise, check_buffers, check_epsilon
from chestfed.leaves.federation.hospital.obstacles import describe_failure
from chestfed.leaves.federation.hospital.plan import is_round
from chestfed.leaves.federation.hospital.proposal import read_pipeline
from chestfed.leaves.federation.hospital.study import StageTwo, Study, read_code, read_members, read_request
from chestfed.leaves.federation.parcels import (
    LATER,
    UNKNOWN,
    Later,
    Parcel,
    Refused,
    hash_request,
    sanitize,
    shown_in_line,
)
from chestfed.leaves.federation.records import Beginning, Network, Scores, plain_row, with_nan
from chestfed.leaves.federation.settings import Hospital
from chestfed.studies.experiment.device import prepare_machine
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.experiment.resolved import shareable
from chestfed.studies.training.assemble import Federation, make_member_host, starting_network
from chestfed.studies.training.data.clients import TestSet, score
from chestfed.studies.training.pretrain import Pretrained, new_network, pretrain

#: Seconds of stage 1 after which a hospital answers how far it is.
STAGE_1_SECONDS = 60.0


class Participant:
    """Answers messages.

    `say` gets every event, in words without a patient or a path; `show`, which must not be a log, what else whoever
    sits there should know: of an error of this hospital its text, which may name files.
    """

    def __init__(
        self, hospital: Hospital, say: Callable[[str], object], show: Callable[[str], object] | None = None
    ) -> None:
        self._hospital, self._say, self._show = hospital, say, show or say
        self._name, self._leaves = hospital.file.hospital, hospital.file.leaves
        self._studies: dict[str, Study] = {}
        self._waits_for, self._allowance = "", Allowance()
        self._log = hospital_log(hospital)

    def __call__(self, question: Parcel | WireError) -> Parcel:
        """The reply to what has come; a refusal says so in words and never raises. Without its line none leaves."""
        given = question.values if isinstance(question, Parcel) else {}
        nonce, kind = str(given.get("nonce", "")), str(given.get("kind", ""))
        started, outcome = time.monotonic(), "answered"
        try:
            if isinstance(question, WireError):
                raise question
            with nullcontext() if kind == "greet" else freeze_plugins():  # a greeting compares the current code
                answer = self.answer(question)
        except Later as error:
            outcome = f"waits: {sanitize(error)}"
            answer = Parcel({"refused": f"{LATER}{sanitize(error)}"})
            if self._waits_for != str(error):
                self._waits_for = str(error)
                self._show_hourly(f"waits: {shown_in_line(error)}")
        except ChestfedError as error:
            told = sanitize(_hide_details(error))
            outcome, answer = f"refused: {told}", Parcel({"refused": told})
            self._show_hourly(f"refused {ascii(kind)[:40]}: {shown_in_line(error)}")
        except Exception as error:  # whatever the server sends, the hospital goes on
            outcome = f"failed: {type(error).__name__}"
            if self._show_hourly(f"failed at {ascii(kind)[:40]}: {type(error).__name__}: {shown_in_line(error)}"):
                self._log.exception("a question of kind %s", ascii(kind)[:40])
            answer = Parcel({"refused": f"{type(error).__name__} at the hospital; its own screen says more"})
        reply = Parcel(answer.values | {"nonce": nonce, "kind": kind}, answer.packed)
        seconds = round(time.monotonic() - started, 3)
        entry = {**request_entry(question), "sent": reply.size, "seconds": seconds, "outcome": outcome}
        entry |= {"answer": hash_parcel(reply), "left": fields_of(reply)}
        if study := self._studies.get(str(given.get("study"))):
            entry["agreed"] = True
            if kind == "greet":
                entry["approval"] = study.approval  # the digest that people know it by
            if counted := study.usage.end(study.folder, seconds=seconds, sent=reply.size):
                entry["counted"] = counted
        self._log.info(entry)
        chain = file_of(self._log)
        if chain is None:
            return reply
        if chain.failure is not None:
            told = _hide_details(NotWrittenError("", chain.failure))
            reply = Parcel({"refused": told, "nonce": nonce, "kind": kind})
        # the number and hash of the line above: what the server has seen cannot be removed unnoticed
        return Parcel(reply.values | {"log": [chain.number, chain.head]}, reply.packed)

    def _show_hourly(self, text: str) -> bool:
        """Show what any request can cause, so often in an hour; whether it was shown."""
        may = self._allowance.take()
        if may:
            missed = self._allowance.missed()
            self._show(f"{text} (before it {missed:,} further ones)" if missed else text)
        return may

    def answer(self, question: Parcel) -> Parcel:
        """Answer a question.

        Raises
        ------
        ChestfedError
            If it is refused, or fails.
        """
        values = question.values
        if values.get("to") != self._name:
            raise Refused(
                f"the question is for '{values.get('to')}'; this is {self._name}: two hospitals have one key?",
                kind="another hospital",
            )
        kind, digest = values.get("kind"), str(values.get("study"))
        if kind == "greet":
            return self._greet(values, digest)
        study = self._studies.get(digest)
        if study is None:
            raise Refused(
                f"{UNKNOWN}no study of this digest was agreed upon since this hospital started", kind="unknown study"
            )
        if not isinstance(kind, str) or kind not in _ANSWERS:
            raise Refused("a question of a kind that is not answered", kind="unknown question")
        limits = self._hospital.file.policy
        study.check_code()
        policy.check_approval(study.approval, self._hospital)
        plan.check_kind(study.pipeline, study.place, kind, values.get("test"))
        policy.check_usage(limits, study.usage, study.pipeline, study.place, kind)
        with policy.limit_hours(limits, study.usage):
            answer = _ANSWERS[kind](self, study, question)
        policy.check_bytes(limits, study.usage, answer.size)
        return answer

    def _greet(self, values: dict[str, Any], digest: str) -> Parcel:
        """Compare, and ask for an approval, before a network is built or weights are loaded."""
        if not DIGEST.fullmatch(digest):  # it names a folder here
            raise Refused("the study is not named by a digest", kind="unknown study")
        theirs = values.get("passport")
        if not isinstance(theirs, dict):
            raise Refused("the server does not say which versions it has", kind="difference")
        _refuse_differences(theirs, handshake.versions())
        pipeline = read_pipeline(values.get("pipeline"), self._hospital)
        handshake.refuse_what_cannot_be_spread(pipeline)
        names = handshake.hospitals_in(pipeline)
        if self._name not in names:
            raise Refused(f"{self._name} is not one of the hospitals of the pipeline", kind="not a member")
        place = names.index(self._name)
        _refuse_differences(theirs, handshake.compare_first(pipeline))
        policy.check_pipeline(pipeline, place, self._hospital)
        limits, started = self._hospital.file.policy, time.monotonic()
        with policy.limit_hours(limits, policy.Usage()):  # of frozen features this loads a network
            own = handshake.study_digest(pipeline)
        known, folder = self._studies.get(own), self._hospital.path("state") / own
        policy.check_studies(limits, folder)
        usage = known.usage if known else policy.Usage.read(folder)
        policy.check_usage(limits, usage, pipeline, place, "greet")
        try:
            with policy.limit_hours(limits, usage):
                _refuse_differences(theirs, handshake.passport(pipeline))
                if own != digest:
                    raise Refused("the study has another name than its pipeline gives it", kind="unknown study")
                return self._agree(pipeline, place, own, usage)
        except BaseException:
            if self._studies.get(digest) is None or own != digest:  # else the seconds are counted with the reply
                usage.end(folder, seconds=time.monotonic() - started, sent=0)
            raise

    def _agree(self, pipeline: Pipeline, place: int, digest: str, usage: policy.Usage) -> Parcel:
        """Make a study ready that was compared, unless it is."""
        known, code = self._studies.get(digest), read_code(pipeline)
        if known is None or known.pipeline != pipeline or known.code != code:  # intervals, say, are not in the digest
            local_pipeline = localize_pipeline(pipeline, place, self._hospital)
            runtime = {"device": self._hospital.file.device}
            if self._hospital.file.threads is not None:
                runtime["threads"] = self._hospital.file.threads  # type: ignore[assignment]
            machine = prepare_machine(local_pipeline.runtime.model_copy(update=runtime))
            folder = self._hospital.path("state") / digest
            network = new_network(local_pipeline, machine)
            text = yaml.safe_dump(shareable(pipeline), sort_keys=False, allow_unicode=True)
            write_text(folder / "pipeline.yaml", text)
            about = (handshake.approval_digest(pipeline), place, local_pipeline, machine, folder, network)
            self._studies = {digest: Study(pipeline, *about, usage, code)}  # one at a time
            about_study = f"study {digest}, to be approved as {self._studies[digest].approval}"
            self._say(f"agreed on {about_study}: {shown_in_line(pipeline.title)}")
        machine = self._studies[digest].machine
        return Parcel({"device": machine.device.type, "threads": machine.threads})

    def _open(self, study: Study, question: Parcel) -> Parcel:
        if study.data is None:
            scored = self._name in scored_hospitals(study.pipeline) and self._hospital.results != "nothing"
            rows = open_rows(study.local_pipeline, self._hospital, study.machine, target=study.target, scored=scored)
            self._say("labels are read; decoding what is not in the cache")
            data = open_data(rows, self._hospital, target=study.target)
            limits = self._hospital.file.policy
            policy.check_patients(limits, len(set(data.patients.tolist())), data.count_training_patients())
            policy.check_window(limits, study.pipeline, study.place, data.client.training_rows)
            study.disclosure = data.disclose(self._leaves.smallest_count, study.pipeline.seed)
            study.data = data
            self._say(f"open: {study.data.client.training_rows:,} training rows")
        if "test" in question.values:
            test = _select_test(study.data, question)
            if test is None:
                return Parcel({"none": True})
            smallest, scores_stay = self._leaves.smallest_count, self._hospital.results == "aucs"
            values, labels = study.data.disclose_test(test, smallest, scores_stay=scores_stay)
            return Parcel(values, pack(labels))
        assert study.disclosure is not None
        values, counts = study.disclosure
        return Parcel(values, pack(counts))

    def _pretrain(self, study: Study, question: Parcel) -> Parcel:
        """Stage 1, or how far it is after some time: the server asks again, and it goes on where it was saved."""
        data, ends, progress = study.opened(), time.monotonic() + STAGE_1_SECONDS, {"step": 0, "loss": 0.0}
        steps = study.pipeline.pretrain.steps(data.client.training_rows)

        def report(step: int, loss: float) -> None:
            progress.update({"step": step, "loss": loss})
            self._say(f"stage 1: step {step}")
            if step < steps and time.monotonic() > ends:
                stopping.request_stop()

        folder = study.folder / f"stage1-{data.study.digests[data.client.name]}"  # the study's digest is of no images
        try:
            with stopping.defer_signals():  # a signal ends it where it has been saved
                done = pretrain(data.study, folder, report)
        except stopping.Stopped as stop:
            if not stop.is_pause:
                raise
            return Parcel(dict(progress))
        return Parcel({"losses": done.losses}, pack(Network(done.weights, done.buffers)))

    def _begin(self, study: Study, question: Parcel) -> Parcel:
        data, network = study.opened(), study.network
        names = handshake.hospitals_in(study.pipeline)
        k, counts = read_members(question.values, names)
        plan.check_k(study.pipeline, k)
        if self._name not in counts:
            raise Refused(f"{self._name} is not one of the hospitals of this stage 2", kind="not a member")
        policy.check_members(self._hospital.file.policy, k, len(counts))
        number = list(counts).index(self._name)
        sizes = network.size, network.buffers().numel()
        like = Beginning.like(len(counts), len(study.pipeline.tasks), *sizes)
        check_buffers(self._hospital.file.policy, sizes[1])
        start = unpack(question.packed, like, "the server")
        if not study.pipeline.pretrain.epochs:
            first = new_network(study.local_pipeline, study.machine).parameters().cpu()
            if not torch.allclose(first, start.parameters, rtol=1e-4, atol=1e-6):  # processors differ in the last bits
                text = "stage 1 has no epochs, and the server begins with other weights than the pipeline's"
                raise Refused(text, kind="first weights")
        if study.disclosure is None:
            raise Refused(f"{UNKNOWN}the study is not open here", kind="unknown study")
        own, known = (start.ratios[number], start.labeled[number]), study.disclosure[1]
        is_own = all(map(torch.equal, (part.cpu() for part in own), (known.ratios, known.labeled)))
        if counts[self._name] != data.client.training_rows or not is_own:
            text = "the server says that this hospital has other rows or labels than it has"
            raise Refused(text, kind="hospitals of stage 2")
        if study.stage_2 is not None:
            study.stage_2.host.client.close()
        study.network = starting_network(study.pipeline, study.machine, Pretrained(start.parameters, start.buffers, []))
        device, ratios = study.machine.device, with_nan(start.ratios)
        cohort = Federation.of(study.pipeline, counts, ratios, start.labeled, device, k)
        cohort = replace(cohort, places=tuple(map(names.index, counts)))
        host = make_member_host(data.study, cohort, number, data.client, study.network)
        some = "" if len(counts) == k else f"-{handshake.digest(list(counts))[:16]}"  # others than the first k
        file = study.folder / f"k{k}{some}.safetensors"
        root = plan.beginning(study.approval, k, counts, hash_request(question.packed))
        history = plan.History.of(restore_host(host, file, cohort, study.network), root)
        shapes = cohort.shapes(*sizes, number)
        study.stage_2 = StageTwo(k, host, shapes, file, cohort, number, history)
        for other in {study.folder / f"k{k}.safetensors", *study.folder.glob(f"k{k}-*.safetensors")} - {file}:
            other.unlink(missing_ok=True)  # of a K with other members, which has ended
        self._say(f"ready for stage 2 with {len(counts)} hospitals, at turn {max(host.snapshots)}")
        return Parcel({})

    def _ask(self, study: Study, question: Parcel) -> Parcel:
        stage_2, request = read_request(study, question)
        if isinstance(request, Export | Import):
            raise Refused("a client's state is neither given out nor taken in here", kind="client state")
        if isinstance(request, Locate | OwnRequest):
            policy.check_personal(self._hospital.file.policy)
        return Parcel({}, pack(self._carry_out(study, stage_2, request, question)))

    def _carry_out(self, study: Study, stage_2: StageTwo, request: Any, question: Parcel) -> Any:
        """The client's answer to a request that is in the plan; its state, and the history of that, are written."""
        host, history = stage_2.host, stage_2.history
        turn = history.at(request.after)
        plan.check_request(study.pipeline, stage_2.cohort, stage_2.number, turn, request)
        limits = self._hospital.file.policy
        if isinstance(request, BestDual):
            policy.check_dual(limits, study.pipeline, request.batches)
        noised = limits.noise == "local" and isinstance(request, Work)
        if noised:
            spent = check_epsilon(limits, study.usage.rounds, study.usage.noised)
        if not isinstance(request, Start):  # before anything is computed: an error is an answer too
            what, noise = "rounds" if is_round(request) else "others", limits.noise_multiplier if noised else None
            study.usage.begin(study.folder, what, noise)
        host.tells_not_finite = not noised
        reply: Any = answer_request(host, request)
        if noised:
            reply = add_noise(limits, reply, request.message)
            self._say(f"noise: epsilon {spent:.3g} after {study.usage.rounds} rounds")
        if request.is_turn:
            lineage = plan.extend_lineage(turn.lineage, hash_request(question.packed))
            stage, began = turn.stage, turn.began
            if isinstance(request, Start):
                stage, began = stage + 1, request.after + 1
            history.turns = {number: there for number, there in history.turns.items() if number <= request.after}
            history.turns[request.after + 1] = plan.Turn(lineage, stage, began)
        save_host(host, stage_2.file, history.plain())
        return reply

    def _score(self, study: Study, question: Parcel) -> Parcel:
        data, network = study.opened(), study.network
        test = _select_test(data, question)
        if test is None:
            raise Refused("there are no test images here, or nothing of them leaves", kind="policy")
        like = Network.like(network.size, network.buffers().numel())
        given = unpack(question.packed, like, "the server", study.machine.device)
        batch = study.pipeline.evaluation.batch_size
        study.usage.begin(study.folder, "models")
        outputs = score(network, given.parameters, given.buffers, test, batch, study.machine)
        if self._hospital.results == "aucs":
            row = disclose_row(test, outputs, study.pipeline.evaluation, self._leaves.smallest_count)
            nothing = torch.zeros((0, len(test.diseases)), dtype=torch.float64)
            return Parcel({"row": plain_row(row)}, pack(Scores(nothing, outputs.buffers)))
        return Parcel({}, pack(Scores(torch.from_numpy(outputs.scores), outputs.buffers)))


_ANSWERS: dict[Any, Callable[[Participant, Study, Parcel], Parcel]] = {
    "open": Participant._open,
    "pretrain": Participant._pretrain,
    "begin": Participant._begin,
    "ask": Participant._ask,
    "score": Participant._score,
}


def _refuse_differences(server: dict[str, str], hospital: dict[str, str]) -> None:
    if mismatches := handshake.differences(server, hospital):
        raise Refused("; ".join(mismatches), kind="difference")


def _select_test(data: OwnData, question: Parcel) -> TestSet | None:
    """The test set that a question is about: the study's, or of patients of this hospital (`own`)."""
    which = question.values.get("test")
    if which not in ("own", "study"):
        raise Refused("test images are the study's or this hospital's own", kind="unknown question")
    return data.own_test if which == "own" else data.test


def _hide_details(error: ChestfedError) -> str:
    """The text of a failure for the server: of a local one its kind only, because the message may name files."""
    if isinstance(error, Refused | WireError | TrainingError):
        return str(error)
    if isinstance(error, NotWrittenError):
        return f"the hospital cannot write to its disk ({error.reason}); its own screen says where"
    return describe_failure(error)
