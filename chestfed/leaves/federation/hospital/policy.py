"""What a hospital allows: its policy in `hospital.yaml`, the studies it approved, and what they have used so far.

Everything here is checked at the hospital, before a request is carried out; the server gets the reason only.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, ValidationError

from chestfed.core.checkpoint import write_json, write_text
from chestfed.core.config import StrictModel
from chestfed.core.errors import ChestfedError, ConfigError
from chestfed.leaves.federation import handshake
from chestfed.leaves.federation.parcels import Later, Refused
from chestfed.leaves.federation.settings import Hospital, Policy
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.experiment.resolved import shareable

_APPROVED, _PENDING = "approved.json", "pending"


class Usage(StrictModel, frozen=False):
    """What a study has used at this hospital: `rounds` are answered local rounds, repeated ones included."""

    rounds: int = 0
    seconds: float = 0.0
    sent: int = 0

    @classmethod
    def read(cls, folder: Path) -> Usage:
        """That of the study with this folder; of a new one nothing."""
        file = folder / "usage.json"
        try:
            return cls.model_validate_json(file.read_bytes()) if file.exists() else cls()
        except ValidationError:
            raise ConfigError(f"{file}: damaged; the limits of the policy need it", kind="damaged file") from None

    def add(self, folder: Path, *, is_round: bool, seconds: float, sent: int) -> None:
        """Count a request, and write the sums."""
        self.rounds += is_round
        self.seconds += seconds
        self.sent += sent
        write_json(folder / "usage.json", self.model_dump())


def check_pipeline(pipeline: Pipeline, hospital: Hospital) -> None:
    """Refuse a pipeline that the policy does not allow.

    Raises
    ------
    Refused
        With each key of the policy, its value and the pipeline's.
    Later
        If it waits for an approval.
    """
    if broken := list(_broken_limits(pipeline, hospital.file.policy)):
        raise Refused("the hospital's policy: " + "; ".join(broken), kind="policy")
    if hospital.file.policy.approval == "none":
        return
    digest, state = handshake.approval_digest(pipeline), hospital.path("state")
    if digest not in read_approvals(state):
        text = yaml.safe_dump(shareable(pipeline), sort_keys=False, allow_unicode=True)
        write_text(state / _PENDING / f"{digest}.yaml", text)
        raise Later(f"the study {digest} waits for an approval at the hospital", kind="not approved", study=digest)


def _broken_limits(pipeline: Pipeline, policy: Policy) -> Iterator[str]:
    settings = pipeline.federated
    windows = min(stage.window for stage in settings.schedule)
    least = {
        "least_batch_size": (policy.least_batch_size, min(settings.batch_size, pipeline.pretrain.batch_size)),
        "least_window": (policy.least_window, windows),
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
    if settings.spec.sends_scores and not policy.image_scores:
        yield f"image_scores is false, and {settings.spec.name} sends scores of single training images"
    if (settings.spec.personal or settings.spec.decentralized) and not policy.own_weights:
        yield f"own_weights is false, and {settings.spec.name} sends this hospital's own weights"
    present = {
        "clipping": settings.aggregation == "norm_clipping" or settings.privacy is not None,
        "secure_sum": settings.aggregation == "secure_sum",
        "noise": settings.privacy is not None and settings.privacy.noise == "secret",
    }
    for name in policy.require:
        if not present[name]:
            yield f"require: {name} is not in the pipeline"


def check_usage(policy: Policy, usage: Usage, kind: str) -> None:
    """Refuse a request that the limits of the policy do not allow any more, or not at this time of day.

    Raises
    ------
    Refused
        If a limit is reached.
    Later
        Outside the times of day at which the hospital computes.
    """
    used = {
        "most_rounds": (policy.most_rounds_answered, usage.rounds),
        "most_hours": (policy.most_hours, usage.seconds / 3600),
        "most_megabytes": (policy.most_megabytes, usage.sent / 1e6),
    }
    for key, (limit, amount) in used.items():
        if limit is not None and amount >= limit:
            raise Refused(f"the hospital's policy: {key} is reached ({amount:.4g} of {limit})", kind="policy")
    if kind in ("pretrain", "ask", "score", "open") and not is_time(policy.times, datetime.datetime.now()):  # noqa: DTZ005
        raise Later(f"the hospital computes at {', '.join(policy.times)} only", kind="time of day")


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


def check_images(policy: Policy, rows: int) -> None:
    """Refuse to train on fewer images than the policy demands; raises `Refused`."""
    if rows < policy.least_images:
        raise Refused(f"the hospital's policy: least_images is {policy.least_images}; there are fewer", kind="policy")


def read_approvals(state: Path) -> dict[str, Any]:
    """The approved studies, by digest, with title and time."""
    file = state / _APPROVED
    if not file.exists():
        return {}
    try:
        return Approvals.model_validate_json(file.read_bytes()).studies
    except ValidationError:
        raise ConfigError(f"{file}: damaged; delete it and approve the studies again", kind="damaged file") from None


class Approvals(StrictModel):
    """The file of approved studies."""

    studies: dict[str, dict[str, str]] = Field({})


def read_pending(state: Path) -> dict[str, Pipeline]:
    """The pipelines that wait for an approval, by digest."""
    approved, pending = read_approvals(state), dict[str, Pipeline]()
    for file in sorted((state / _PENDING).glob("*.yaml")):
        pipeline = Pipeline.model_validate(yaml.safe_load(file.read_text(encoding="utf-8")))
        if (digest := handshake.approval_digest(pipeline)) not in approved:
            pending[digest] = pipeline
    return pending


def approve(state: Path, digest: str) -> Pipeline:
    """Approve a study that waits.

    Raises
    ------
    ChestfedError
        If none with this digest waits.
    """
    pending = read_pending(state)
    if digest not in pending:
        names = ", ".join(pending) or "none"
        raise ChestfedError(f"'{digest}': no such study waits for an approval; waiting: {names}", kind="not pending")
    entry = {"title": pending[digest].title, "time": time.strftime("%Y-%m-%dT%H:%M:%S%z")}
    write_json(state / _APPROVED, {"studies": read_approvals(state) | {digest: entry}})
    return pending[digest]
