"""Limits of a hospital: its policy in `hospital.yaml`, the studies it approved, and what they have used so far.

Everything here is checked at the hospital, before a request is carried out; the server gets the reason only.
"""

from __future__ import annotations

import datetime
import getpass
import math
import os
import signal
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import Field, PrivateAttr, ValidationError

from chestfed.core.checkpoint import write_json, write_text
from chestfed.core.config import StrictModel
from chestfed.core.errors import ChestfedError, ChestfedWarning, ConfigError
from chestfed.learning.abilities import Can
from chestfed.leaves.federation import handshake
from chestfed.leaves.federation.hospital.log import DIGEST, count_logged
from chestfed.leaves.federation.hospital.noise import list_unnoised
from chestfed.leaves.federation.hospital.plan import (
    MORE,
    REPEATS,
    least_between_answers,
    planned_models,
    planned_rounds,
)
from chestfed.leaves.federation.hospital.proposal import read_pipeline
from chestfed.leaves.federation.parcels import Later, Refused, sanitize
from chestfed.leaves.federation.settings import Hospital, Policy
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.experiment.resolved import shareable

_APPROVED, _PENDING = "approved.json", "pending"
#: Studies that wait for an approval at a time; each is a file.
MOST_PENDING = 20


class Usage(StrictModel, frozen=False):
    """Resources that a study has used at this hospital.

    `rounds` are local rounds, repeated ones included, `models` those that were scored, `others` requests to a client
    that are no rounds; all as they were begun, answered or not. `noised` are the rounds with noise, by its multiplier.
    """

    rounds: int = Field(0, ge=0)
    models: int = Field(0, ge=0)
    others: int = Field(0, ge=0)
    seconds: float = Field(0.0, ge=0)
    sent: int = Field(0, ge=0)
    noised: dict[Annotated[float, Field(gt=0)], Annotated[int, Field(ge=0)]] = Field({})
    _begun: str = PrivateAttr("")

    @classmethod
    def read(cls, folder: Path) -> Usage:
        """That of the study with this folder, at least what the hospital's log says; of a new one nothing."""
        file = folder / "usage.json"
        try:
            kept = cls.model_validate_json(file.read_bytes()) if file.exists() else cls()
        except ValidationError:
            raise ConfigError(f"{file}: damaged; the limits of the policy need it", kind="damaged file") from None
        logged = count_logged(folder.parent, folder.name)
        summed = kept.model_dump(exclude={"noised"})
        return cls(**{key: max(value, logged[key]) for key, value in summed.items()}, noised=kept.noised)

    def begin(self, folder: Path, what: str, noise: float | None = None) -> None:
        """Count a request before it is carried out, as one of `rounds`, `models` or `others`, and write the sums.

        `noise` is the multiplier of that which its answer gets.
        """
        setattr(self, what, getattr(self, what) + 1)
        if noise is not None:
            self.noised[noise] = self.noised.get(noise, 0) + 1
        self._begun = what
        write_json(folder / "usage.json", self.model_dump())

    def end(self, folder: Path, *, seconds: float, sent: int) -> str:
        """Add what a request took, and write the sums; as what it was counted, or nothing."""
        self.seconds += seconds
        self.sent += sent
        write_json(folder / "usage.json", self.model_dump())
        what, self._begun = self._begun, ""
        return what


class Approval(StrictModel):
    """An approved study: who approved it and when, what leaves of test images, and whether it was revoked."""

    title: str
    by: str
    time: str
    leaves: str
    revoked: str = ""


class Approvals(StrictModel):
    """The file of approved studies, by digest."""

    studies: dict[str, Approval] = Field({})


def check_pipeline(pipeline: Pipeline, place: int, hospital: Hospital) -> None:
    """Refuse a pipeline that the policy does not allow; no network is built for it.

    Raises
    ------
    Refused
        With each key of the policy, its value and the pipeline's; or if it cannot begin at this hospital.
    Later
        If it waits for an approval, or for the time of day at which the hospital computes.
    """
    if broken := list(_broken_limits(pipeline, place, hospital.file.policy)):
        raise Refused("the hospital's policy: " + "; ".join(broken), kind="policy")
    if place == 0 and hospital.results == "nothing":
        text = "leaves.results is `nothing` here: this hospital does not take part as the target"
        raise Refused(text, kind="policy")
    if hospital.file.policy.approval == "required":
        _wait_for_approval(pipeline, hospital)
    _check_time(hospital.file.policy)


def _wait_for_approval(pipeline: Pipeline, hospital: Hospital) -> None:
    digest, state = handshake.approval_digest(pipeline), hospital.path("state")
    if not _is_approved(digest, hospital):
        file, waiting = state / _PENDING / f"{digest}.yaml", list((state / _PENDING).glob("*.yaml"))
        if file not in waiting:
            if len(waiting) >= MOST_PENDING:
                text = f"{len(waiting)} studies wait for an approval at the hospital already"
                raise Refused(text, kind="too many pending")
            write_text(file, yaml.safe_dump(shareable(pipeline), sort_keys=False, allow_unicode=True))
        if (obstacle := place_obstacle(digest, hospital)).exists():
            raise Refused(obstacle.read_text(encoding="utf-8"), kind="cannot begin", study=digest)
        raise Later(f"the study {digest} waits for an approval at the hospital", kind="not approved", study=digest)


def place_obstacle(digest: str, hospital: Hospital) -> Path:
    """The file that says why a study that waits cannot begin at this hospital, as far as the server may know it."""
    return hospital.path("state") / _PENDING / f"{digest}.txt"


def check_approval(digest: str, hospital: Hospital) -> None:
    """Refuse a request of a study that is not approved any more, or not for what leaves now; raises `Refused`."""
    if hospital.file.policy.approval == "required" and not _is_approved(digest, hospital):
        text = "the study is not approved any more at the hospital, or not with what leaves now"
        raise Refused(text, kind="not approved", study=digest)


def _is_approved(digest: str, hospital: Hospital) -> bool:
    approval = read_approvals(hospital.path("state")).get(digest)
    return approval is not None and not approval.revoked and approval.leaves == hospital.what_leaves


def _broken_limits(pipeline: Pipeline, place: int, policy: Policy) -> Iterator[str]:
    settings = pipeline.federated
    local = settings.local_steps  # by the rows of this hospital where they are counted in epochs: later
    by_rows = local is not None and local.epochs is not None
    steps = 1 if by_rows else least_between_answers(settings, 1, place)
    least = {
        "least_batch_size": (policy.least_batch_size, min(settings.batch_size, pipeline.pretrain.batch_size)),
        "least_window": (policy.least_window, steps),
    }
    most = {
        "most_epochs": (policy.most_epochs, pipeline.pretrain.epochs),
        "most_rounds": (policy.most_rounds, settings.rounds),
    }
    for key, (bound, value) in least.items():
        if value < bound:
            yield f"{key} is {bound}, the pipeline has {value}"
    for key, (limit, amount) in most.items():
        if limit is not None and amount > limit:
            yield f"{key} is {limit}, the pipeline has {amount}"
    if _are_few_for_duals(policy, pipeline, batches := getattr(settings.algorithm, "dual_batches", None)):
        yield f"least_window is {policy.least_window}, and the dual variables are of {batches} batches"
    if Can.SCORES in settings.spec.can and not policy.image_scores:
        yield f"image_scores is false, and {settings.spec.name} sends scores of single training images"
    if (Can.OWN_POINTS in settings.spec.can or not settings.spec.has_server) and not policy.own_weights:
        yield f"own_weights is false, and {settings.spec.name} sends this hospital's own weights"
    if place == 0 and pipeline.pretrain.epochs and not policy.own_weights:
        yield "own_weights is false, and the network of stage 1 is trained at this hospital alone"
    if policy.noise == "local":
        yield from (f"noise is local, and {reason}" for reason in list_unnoised(pipeline, place))
    present = settings.exchange().protects
    for name in policy.require:
        if name not in present:
            yield f"require: {name} is not in the pipeline"


def check_usage(policy: Policy, usage: Usage, pipeline: Pipeline, place: int, kind: str) -> None:
    """Refuse a request that the limits of the policy do not allow any more, or not at this time of day.

    Raises
    ------
    Refused
        If a limit is reached.
    Later
        Outside the times of day at which the hospital computes.
    """
    rounds = policy.most_rounds_answered or REPEATS * planned_rounds(pipeline, place) + MORE
    models = policy.most_models_scored or REPEATS * planned_models(pipeline) + MORE
    used = {
        "most_rounds_answered": (kind == "ask", rounds, usage.rounds),
        "most_rounds_answered (other answers)": (kind == "ask", 3 * rounds, usage.others),
        "most_models_scored": (kind == "score", models, usage.models),
        "most_hours": (True, policy.most_hours, usage.seconds / 3600),
        "most_megabytes": (True, policy.most_megabytes, usage.sent / 1e6),
    }
    for key, (counts, limit, amount) in used.items():
        if counts and limit is not None and amount >= limit:
            raise Refused(f"the hospital's policy: {key} is reached ({amount:.4g} of {limit})", kind="policy")
    _check_time(policy)


def _check_time(policy: Policy) -> None:
    if not is_time(policy.times, datetime.datetime.now()):  # noqa: DTZ005
        raise Later(f"the hospital computes at {', '.join(policy.times)} only", kind="time of day")


def check_studies(policy: Policy, folder: Path) -> None:
    """Refuse a new study, with this folder, where as many as the policy allows have folders; raises `Refused`."""
    if not folder.exists():
        there = sum(DIGEST.fullmatch(other.name) is not None for other in folder.parent.glob("*"))
        if there >= policy.most_studies:
            raise Refused(f"the hospital's policy: most_studies is reached ({there})", kind="too many studies")


def check_bytes(policy: Policy, usage: Usage, sent: int) -> None:
    """Refuse to send an answer of so many bytes beyond the policy's limit; raises `Refused`."""
    if policy.most_megabytes is not None and usage.sent + sent > policy.most_megabytes * 1e6:
        text = f"the hospital's policy: most_megabytes is {policy.most_megabytes}, and the answer would be beyond it"
        raise Refused(text, kind="policy")


@contextmanager
def limit_hours(policy: Policy, usage: Usage) -> Iterator[None]:
    """Break a request off when the hours of its study are used up, or the time of day is over.

    Raises
    ------
    Refused
        When the hours are.
    Later
        When the time of day is.
    ConfigError
        Where there is no such timer: not in the main thread, or on Windows.
    """
    if policy.most_hours is None and not policy.times:
        yield
        return
    hours = math.inf if policy.most_hours is None else policy.most_hours
    ends = time.monotonic() + hours * 3600 - usage.seconds

    def start_timer() -> None:
        """Until the hours end or a minute of the clock, which may be set, does.

        It goes on every second, in case that code on the way takes the first error for a failure of its own.
        """
        now = datetime.datetime.now()  # noqa: DTZ005
        minute = 60 - now.second - now.microsecond / 1e6
        signal.setitimer(signal.ITIMER_REAL, max(min(ends - time.monotonic(), minute), 1e-3), 1.0)

    def check(*_: object) -> None:
        if time.monotonic() >= ends:
            raise Refused(f"the hospital's policy: most_hours is reached ({policy.most_hours})", kind="policy")
        _check_time(policy)
        start_timer()

    try:
        before = signal.signal(signal.SIGALRM, check)
    except (AttributeError, ValueError) as error:
        text = f"policy.most_hours and policy.times: cannot be enforced here ({error}); set null, and []"
        raise ConfigError(text, kind="no limit") from None
    try:
        start_timer()
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def is_time(spans: tuple[str, ...], now: datetime.datetime) -> bool:
    """Whether a local time lies in one of the spans `HH:MM-HH:MM`, which may pass midnight; always without spans."""
    clock = now.strftime("%H:%M")
    for span in spans:
        start, _, end = span.partition("-")
        if start <= clock < end if start < end else clock >= start or clock < end:
            return True
    return not spans


def check_personal(policy: Policy) -> None:
    """Refuse to give out this hospital's own weights, whatever pipeline asks; raises `Refused`."""
    if not policy.own_weights:
        raise Refused("the hospital's policy: own_weights is false", kind="policy")


def check_patients(policy: Policy, patients: int, classes: Iterable[Sequence[int]]) -> None:
    """Refuse to train on images of fewer patients than the policy demands; raises `Refused`.

    `classes` are, per disease, the patients with positive and with negative labels, and others that do not count here.
    """
    least = policy.least_patients
    if patients < least or any(0 < count < least for counts in classes for count in counts[:2]):
        text = f"the hospital's policy: least_patients is {least}; there are fewer, in all or of a class"
        raise Refused(text, kind="policy")


def check_members(policy: Policy, k: int, members: int) -> None:
    """Refuse stage 2 of K hospitals with fewer members than the policy demands; raises `Refused`."""
    if members < min(k, policy.least_members):
        text = f"the hospital's policy: least_members is {policy.least_members}; stage 2 of K={k} has {members}"
        raise Refused(text, kind="policy")


def check_window(policy: Policy, pipeline: Pipeline, place: int, rows: int) -> None:
    """Refuse rounds of fewer steps than the policy demands, at a hospital with so many rows; raises `Refused`."""
    if least_between_answers(pipeline.federated, rows, place) < policy.least_window:
        raise Refused(f"the hospital's policy: least_window is {policy.least_window}", kind="policy")


def check_dual(policy: Policy, pipeline: Pipeline, batches: int) -> None:
    """Refuse dual variables of fewer images than the smallest round that the policy allows; raises `Refused`."""
    if _are_few_for_duals(policy, pipeline, batches):
        text = f"the hospital's policy: least_window is {policy.least_window}, the dual variables are of fewer images"
        raise Refused(text, kind="policy")


def _are_few_for_duals(policy: Policy, pipeline: Pipeline, batches: int | None) -> bool:
    least = policy.least_batch_size * policy.least_window
    return batches is not None and pipeline.federated.batch_size * batches < least


def read_approvals(state: Path) -> dict[str, Approval]:
    """The approved studies, by digest, those that were revoked since included."""
    file = state / _APPROVED
    if not file.exists():
        return {}
    try:
        return Approvals.model_validate_json(file.read_bytes()).studies
    except ValidationError:
        raise ConfigError(f"{file}: damaged; delete it and approve the studies again", kind="damaged file") from None


def read_pending(hospital: Hospital) -> dict[str, Pipeline]:
    """The pipelines that wait for an approval, by digest; that of one whose code has changed since is another."""
    pending = dict[str, Pipeline]()
    for file in sorted((hospital.path("state") / _PENDING).glob("*.yaml")):
        try:
            pipeline = read_pipeline(yaml.safe_load(file.read_text(encoding="utf-8")), hospital)
            digest = handshake.approval_digest(pipeline)
        except (ChestfedError, OSError, ValueError, yaml.YAMLError) as error:  # the others can be approved
            text = f"{file}: cannot be read, delete it: {sanitize(error)}"
            warnings.warn(text, ChestfedWarning, stacklevel=2)
            continue
        if not _is_approved(digest, hospital):
            pending[digest] = pipeline
    return pending


def approve(hospital: Hospital, digest: str) -> Approval:
    """Approve a study that waits.

    Raises
    ------
    ChestfedError
        If none with this digest waits.
    """
    pending, state = read_pending(hospital), hospital.path("state")
    if digest not in pending:
        names = ", ".join(pending) or "none"
        raise ChestfedError(f"'{digest}': no such study waits for an approval; waiting: {names}", kind="not pending")
    about = {"title": pending[digest].title, "by": _name_account(), "time": time.strftime("%Y-%m-%dT%H:%M:%S%z")}
    approval = Approval(**about, leaves=hospital.what_leaves)
    _write_approvals(state, read_approvals(state) | {digest: approval})
    (state / _PENDING / f"{digest}.yaml").unlink(missing_ok=True)
    return approval


def revoke(hospital: Hospital, digest: str) -> Approval:
    """Take an approval back: a running hospital answers no further request of the study.

    Raises
    ------
    ChestfedError
        If no such study is approved.
    """
    state = hospital.path("state")
    approvals = read_approvals(state)
    if digest not in approvals or approvals[digest].revoked:
        names = ", ".join(key for key, entry in approvals.items() if not entry.revoked) or "none"
        raise ChestfedError(f"'{digest}': no such study is approved; approved: {names}", kind="not approved")
    revoked = f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} by {_name_account()}"
    approvals[digest] = approvals[digest].model_copy(update={"revoked": revoked})
    _write_approvals(state, approvals)
    return approvals[digest]


def _name_account() -> str:
    """The account that runs this process, as the operating system has it: the environment can name any."""
    if sys.platform == "win32":
        return getpass.getuser()
    import pwd

    uid = os.getuid()
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:  # a container may run under a number alone
        return f"uid {uid}"


def _write_approvals(state: Path, studies: dict[str, Approval]) -> None:
    write_json(state / _APPROVED, Approvals(studies=studies).model_dump())
