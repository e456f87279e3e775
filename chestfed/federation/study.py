"""`chestfed federation run`: a study of the pipeline's hospitals, with the run folder and the record of any study."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from chestfed.core.checkpoint import read_json, write_json
from chestfed.core.errors import ChestfedError, ConfigError
from chestfed.core.manifest import Part, write_manifest
from chestfed.experiment.device import prepare_machine
from chestfed.experiment.pipeline import Pipeline
from chestfed.experiment.resolved import identity
from chestfed.experiment.rules import check_runs
from chestfed.federation import handshake
from chestfed.federation.conversation import Conversation
from chestfed.federation.deployment import Hospitals
from chestfed.federation.parcels import Line
from chestfed.federation.settings import Federation
from chestfed.results.run_folder import FEDERATION, FILES, RunFolder
from chestfed.training.reporting import Reporters
from chestfed.training.run import StudyResult, run_study


class Events:
    """What happened between server and hospitals: told, and appended to `federation.jsonl` in the runs folder."""

    def __init__(self, out: Path, say: Any) -> None:
        self._file = out / "federation.jsonl"
        self._say = say

    def __call__(self, hospital: str, event: str, details: str) -> None:
        self._say(f"{hospital}: {event}{f' ({details})' if details else ''}")
        entry = {"time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "hospital": hospital, "event": event, "details": details}
        try:
            with self._file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
        except OSError as error:
            raise ChestfedError(
                f"{self._file}: cannot be written: {error.strerror}. What is finished is kept"
            ) from None


def hospitals_of(pipeline: Pipeline, federation: Federation) -> list[str]:
    """The hospitals of a pipeline."""
    names = handshake.hospitals_in(pipeline)
    known = [member.name for member in federation.file.hospitals]
    missing = [name for name in names if name not in known]
    if missing:
        raise ConfigError(
            f"the pipeline's sites {', '.join(missing)} are no hospitals of this federation, which has "
            f"{', '.join(known)}. A site's entry `config: NAME.yaml` stands for the hospital NAME; the file is not read"
        )
    return names


def run_over_hospitals(
    pipeline: Pipeline, name: str, federation: Federation, line: Line, out: Path, reporters: Reporters, say: Any
) -> StudyResult:
    """Run the study, or what is left of it.

    Raises
    ------
    ChestfedError
        If a hospital refuses, or does not answer in time. What is finished is kept.
    """
    handshake.refuse_what_cannot_be_spread(pipeline)
    check_runs([pipeline])
    names = hospitals_of(pipeline, federation)
    machine = prepare_machine(pipeline.runtime.model_copy(update={"device": "cpu"}))
    out.mkdir(parents=True, exist_ok=True)
    events = Events(out, say)
    faults, digest = federation.file.faults, handshake.digest([identity(pipeline), names])
    conversation = Conversation(line, faults, digest, events)
    hospitals = Hospitals(conversation, faults, pipeline, names)
    try:
        say(f"comparing versions, labels, preprocessing and model with {', '.join(names)}")
        hospitals.greet()
        say("all agree; the hospitals read their labels and images, and nobody looks for images that two of them share")
        result = run_study(hospitals.gather(machine), name, out, reporters, hospitals)
        moved = {"bytes_sent": conversation.bytes_sent, "bytes_received": conversation.bytes_received}
        about = {"federation": federation.file.federation, **moved}
        write_json(result.folder / FEDERATION, read_json(result.folder / FEDERATION) | about)
        write_manifest(result.folder, Part(RunFolder(result.folder).digest, "."), FILES)
        return result
    finally:
        conversation.close()
