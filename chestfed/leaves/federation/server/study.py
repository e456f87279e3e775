"""`chestfed federation run`: a study of the pipeline's hospitals, with the run folder and the record of any study."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from chestfed.core.checkpoint import load_checkpoint, read_json, write_json
from chestfed.core.errors import ChestfedError, ConfigError
from chestfed.core.manifest import Part, write_manifest
from chestfed.learning.abilities import Can
from chestfed.learning.models import fetch_weights
from chestfed.leaves.federation import handshake
from chestfed.leaves.federation.description import describe
from chestfed.leaves.federation.parcels import Line
from chestfed.leaves.federation.server.conversation import Conversation
from chestfed.leaves.federation.server.deployment import Hospitals
from chestfed.leaves.federation.server.membership import Membership
from chestfed.leaves.federation.server.progress import Progress
from chestfed.leaves.federation.settings import Federation
from chestfed.results.tables.run_folder import FEDERATION, FILES, RESULT, RunFolder
from chestfed.studies.experiment.device import prepare_machine
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.experiment.rules import check_runs
from chestfed.studies.training.data.experiment import Experiment
from chestfed.studies.training.pretrain import STATE
from chestfed.studies.training.reporting import Reporters, warn
from chestfed.studies.training.run import StudyResult, name_folder, run_study


class Events:
    """Events between server and hospitals: reported, and appended to `federation.jsonl` in the runs folder."""

    def __init__(self, out: Path, say: Any, progress: Progress | None = None) -> None:
        self._file = out / "federation.jsonl"
        self._say, self._progress = say, progress

    def __call__(self, hospital: str, event: str, details: str) -> None:
        self._say(f"{hospital}: {event}{f' ({details})' if details else ''}")
        if self._progress is not None:
            self._progress.event(hospital, event, details)
        entry = {"time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "hospital": hospital, "event": event, "details": details}
        try:
            with self._file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
        except OSError as error:
            raise ChestfedError(
                f"{self._file}: cannot be written: {error.strerror}. What is finished is kept",
                kind="cannot be written",
                file=self._file,
            ) from None


def require_members(names: Sequence[str], federation: Federation) -> None:
    """Raise `ConfigError` unless all these hospitals are members of the federation."""
    known = federation.members
    missing = [name for name in names if name not in known]
    if missing:
        raise ConfigError(
            f"the pipeline's sites {', '.join(missing)} are no hospitals of this federation, which has "
            f"{', '.join(known)}. A site's entry `config: NAME.yaml` stands for the hospital NAME; "
            "the file is not read",
            kind="not members",
            hospitals=missing,
        )


def run_over_hospitals(
    pipeline: Pipeline,
    name: str,
    federation: Federation,
    line: Line,
    out: Path,
    reporters: Reporters,
    say: Any,
    *,
    without: Sequence[str] = (),
    rejoin: Sequence[str] = (),
    progress: Progress | None = None,
) -> StudyResult:
    """Run the study, or what is left of it.

    From here on it is run without some hospitals; those of `rejoin`, which had left or were not there, take part from
    the next K on.

    Raises
    ------
    ChestfedError
        If a hospital refuses, or does not answer in time. What is finished is kept.
    """
    handshake.refuse_what_cannot_be_spread(pipeline)
    check_runs([pipeline])
    fetch_weights(pipeline.model)
    names = handshake.hospitals_in(pipeline)
    machine = prepare_machine(pipeline.runtime.model_copy(update={"device": "cpu"}))
    out.mkdir(parents=True, exist_ok=True)
    events = Events(out, say, progress)
    faults, digest = federation.file.faults, handshake.study_digest(pipeline)
    membership = Membership(out / f"federation-{digest[:16]}.json", names, faults.least_hospitals)
    require_members(membership.after(without, rejoin), federation)
    membership.change(without, rejoin)
    conversation = Conversation(line, faults, digest, events)
    conversation.heads = membership.record.heads
    hospitals = Hospitals(conversation, faults, pipeline, membership)
    try:
        say(f"comparing versions, labels, preprocessing and model with {', '.join(membership.present)}")
        hospitals.greet()
        say("all agree; the hospitals read their labels and images; shared images are not searched for")
        experiment = hospitals.gather(machine)
        folder = name_folder(experiment, name, out)
        changes = membership.place(finished_rounds(experiment, folder, without))
        for change in changes:
            events(change.hospital, change.event, f"K={change.k}, after round {change.round}")
        members = {k: membership.members(k) for k in pipeline.k}
        result = run_study(replace(experiment, members=members), name, out, reporters, hospitals)
        moved = {"bytes_sent": conversation.bytes_sent, "bytes_received": conversation.bytes_received}
        about = {"federation": federation.file.federation, **moved}
        write_json(result.folder / FEDERATION, read_json(result.folder / FEDERATION) | about)
        write_manifest(result.folder, Part(RunFolder(result.folder).digest, "."), FILES)
        return result
    finally:
        conversation.close()
        membership.save()
        for hospital, (number, head) in conversation.heads.items():
            events(hospital, "log", f"its last line is {number}:{head}")


def show_plan(pipeline: Pipeline, federation: Federation, say: Any) -> None:
    """`--dry-run`: what hospitals will read of the pipeline, and whom it needs.

    Raises
    ------
    ConfigError
        If a federation cannot run it, or one of its hospitals is not a member.
    """
    handshake.refuse_what_cannot_be_spread(pipeline)
    check_runs([pipeline])
    names = handshake.hospitals_in(pipeline)
    require_members(names, federation)
    for line in describe(pipeline, names[0]):
        say(f"  {line}")
    say(f"a hospital approves it as {handshake.approval_digest(pipeline)}; no hospital was asked")


def finished_rounds(experiment: Experiment, folder: Path, changed: Sequence[str]) -> dict[int, int | None]:
    """The finished rounds of each K in a run folder; None of a finished K.

    A K under way whose algorithm cannot go on without a client is begun anew if hospitals have `changed`.
    """
    settings, rounds = experiment.pipeline.federated, dict[int, int | None]()
    goes_on = (
        Can.SOME_CLIENTS in settings.spec.can
        and settings.stage_output != "algorithm"
        and settings.exchange().takes_buffers
    )
    for k in experiment.pipeline.k:
        state = folder / f"k{k}" / STATE
        if (folder / f"k{k}" / RESULT).exists():
            rounds[k] = None
        elif not state.exists():
            rounds[k] = 0
        elif changed and not goes_on:
            warn(f"K={k}: {settings.spec.name} needs every hospital until a K ends; K={k} is begun anew without them")
            state.unlink()
            rounds[k] = 0
        else:
            rounds[k] = len(load_checkpoint(state)[1]["history"])
    return rounds
