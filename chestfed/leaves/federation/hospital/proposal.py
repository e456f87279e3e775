"""The pipeline that a server proposes, as this hospital reads it: no code and no file but those that lie ready here."""

from __future__ import annotations

import json
from pathlib import PurePath
from typing import Any

from pydantic import ValidationError

from chestfed.core.plugins import NotAllowedError, allow_references
from chestfed.learning.models import MODELS
from chestfed.learning.models.declaration import IMAGENET
from chestfed.learning.models.pretrained import is_present
from chestfed.leaves.federation.parcels import Refused
from chestfed.leaves.federation.settings import Hospital
from chestfed.studies.experiment.pipeline import Pipeline

#: Endings of files of weights: others beside hospital.yaml are the hospital's own, such as its keys.
WEIGHTS = (".safetensors", ".pt", ".pth", ".ckpt")
#: Characters of a pipeline as JSON: it is written down for each study.
LONGEST = 100_000


def read_pipeline(given: Any, hospital: Hospital) -> Pipeline:
    """The pipeline; raises `Refused` with the keys that cannot be read, or the code or file that is not listed.

    No file that it names is opened here.
    """
    if len(json.dumps(given, default=str)) > LONGEST:
        raise Refused(f"the pipeline has more than {LONGEST:,} characters", kind="long pipeline")
    try:
        with allow_references(hospital.file.plugins):
            pipeline = Pipeline.model_validate(given)
    except ValidationError as error:
        keys = ", ".join(".".join(map(str, issue["loc"])) for issue in error.errors())
        raise Refused(f"the pipeline cannot be read here: {keys}", kind="unreadable pipeline") from None
    except NotAllowedError as error:
        text = f"{error}: if its code is to run, list it under `plugins` in hospital.yaml"
        raise Refused(text, kind="unlisted code") from None

    _check_imagenet(pipeline, hospital)

    def find(key: str, name: str) -> str:
        if PurePath(name).name != name or PurePath(name).suffix not in WEIGHTS:
            ends = ", ".join(WEIGHTS)
            raise Refused(f"{key}: a name beside hospital.yaml is meant, which ends with {ends}", kind="unlisted file")
        if not (hospital.folder / name).is_file():
            raise Refused(f"{key}: {name} is not beside hospital.yaml, or no regular file", kind="missing weights")
        return str(hospital.folder / name)

    return pipeline.relocate(find)


def _check_imagenet(pipeline: Pipeline, hospital: Hospital) -> None:
    """Refuse published weights that the hospital does not allow or have: none are downloaded; raises `Refused`."""
    for options in (pipeline.model.model_dump(), getattr(pipeline.model, "network", None)):  # the latter of features
        if not isinstance(options, dict) or options.get("initial_weights") != IMAGENET:
            continue
        if not hospital.file.imagenet:
            text = "model.initial_weights: imagenet needs `imagenet: true` in hospital.yaml, and the file there"
            raise Refused(text, kind="unlisted weights")
        published = MODELS.find(options["name"]).imagenet
        if published is None or not is_present(published):
            text = "model.initial_weights: the ImageNet file of this network is not at the hospital, nor downloaded"
            raise Refused(text, kind="missing weights")
