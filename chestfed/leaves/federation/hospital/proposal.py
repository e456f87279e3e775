"""The pipeline that a server proposes, as this hospital reads it: no code and no file but those that lie ready here."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from pydantic import ValidationError

from chestfed.core.plugins import NotAllowedError, allow_references
from chestfed.learning.models.pretrained import IMAGENET
from chestfed.leaves.federation.parcels import Refused
from chestfed.leaves.federation.settings import Hospital
from chestfed.studies.experiment.pipeline import Pipeline


def read_pipeline(given: Any, hospital: Hospital) -> Pipeline:
    """The pipeline; raises `Refused` with the keys that cannot be read, or the code or file that is not listed."""
    try:
        with allow_references(hospital.file.plugins):
            pipeline = Pipeline.model_validate(given)
    except ValidationError as error:
        keys = ", ".join(".".join(map(str, issue["loc"])) for issue in error.errors())
        raise Refused(f"the pipeline cannot be read here: {keys}", kind="unreadable pipeline") from None
    except NotAllowedError as error:
        text = f"{error}: if its code is to run, list it under `plugins` in hospital.yaml"
        raise Refused(text, kind="unlisted code") from None
    weights = pipeline.model.initial_weights
    if weights is None or weights == IMAGENET:
        return pipeline
    if PurePath(weights).name != weights:
        raise Refused(
            "model.initial_weights: a file beside hospital.yaml is meant, so it is a name without folders",
            kind="unlisted file",
        )
    if not (hospital.folder / weights).is_file():
        text = f"model.initial_weights: {weights} is not beside hospital.yaml"
        raise Refused(text, kind="missing weights")
    model = pipeline.model.model_copy(update={"initial_weights": str(hospital.folder / weights)})
    return pipeline.model_copy(update={"model": model})
