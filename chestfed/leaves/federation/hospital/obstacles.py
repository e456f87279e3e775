"""Whether a study that waits for an approval could begin here: its rows are looked for before anybody approves it.

Somebody at the hospital starts it (`--pending`, `--approve`): until a study is approved no request reads a file.
"""

from __future__ import annotations

from chestfed.core.checkpoint import write_text
from chestfed.core.errors import ChestfedError
from chestfed.leaves.federation import handshake
from chestfed.leaves.federation.hospital.local import localize_pipeline, open_rows, scored_hospitals
from chestfed.leaves.federation.hospital.policy import place_obstacle
from chestfed.leaves.federation.settings import Hospital
from chestfed.studies.experiment.device import prepare_machine
from chestfed.studies.experiment.pipeline import Pipeline


def find_obstacle(digest: str, pipeline: Pipeline, hospital: Hospital) -> str:
    """Why the study cannot begin at this hospital, for its own screen; empty if label files and splits allow it.

    The kind of the error is kept for the server, which asks again: without paths, names or counts.
    """
    name, file = hospital.file.hospital, place_obstacle(digest, hospital)
    place = handshake.hospitals_in(pipeline).index(name)
    scored = name in scored_hospitals(pipeline) and hospital.results != "nothing"
    try:
        machine = prepare_machine(pipeline.runtime.model_copy(update={"device": "cpu"}))
        open_rows(localize_pipeline(pipeline, place, hospital), hospital, machine, target=place == 0, scored=scored)
    except ChestfedError as error:
        write_text(file, f"{name} cannot begin this study: {describe_failure(error)}")
        return str(error)
    file.unlink(missing_ok=True)
    return ""


def describe_failure(error: ChestfedError) -> str:
    """A failure of this hospital for the server: its kind only, because the message may name files."""
    if error.kind == "no test image":
        return f"it has no image for {error.fields['key']}; choose another split in the pipeline"
    return f"{type(error).__name__} at the hospital; its own screen says more"
