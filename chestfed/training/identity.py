"""What determines a study's result, and the digest that names it."""

from __future__ import annotations

import hashlib
import json
import platform
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from chestfed._version import __version__
from chestfed.experiment.device import Machine
from chestfed.experiment.pipeline import Pipeline, identity
from chestfed.training.clients import StudyData

#: Packages whose versions can change a result; recorded with every run.
PACKAGES = (
    "torch",
    "monai",
    "numpy",
    "pandas",
    "pydicom",
    "pillow",
    "albumentations",
    "opencv-python-headless",
    "scikit-learn",
    "mlflow",
)


@dataclass(frozen=True)
class Identity:
    """What determines a study's result, and the digest that names it."""

    configuration: dict[str, Any]
    inputs: dict[str, str]
    code: str
    machine: dict[str, Any]

    @property
    def digest(self) -> str:
        """12 hexadecimal digits."""
        text = json.dumps([self.configuration, self.inputs, self.code, self.machine], sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def identify(pipeline: Pipeline, data: StudyData, machine: Machine) -> Identity:
    """The identity of a study on these data and this kind of device."""
    device = {
        "device": machine.device.type,
        "threads": machine.threads if machine.device.type == "cpu" else 0,
    }
    return Identity(identity(pipeline), data.digests, code_digest(), device)


def code_digest() -> str:
    """Digest of the package's source."""
    root = Path(__file__).parents[1]
    digest = hashlib.blake2b(digest_size=8)
    for file in sorted(root.rglob("*.py")):
        digest.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def stage_1_identity(this: Identity, data: StudyData) -> Identity:
    """What determines stage 1: a part of the study's identity."""
    parts = ("model", "preprocess", "augment", "pretrain", "runtime", "seed")
    target = data.clients[0].name
    return Identity(
        {part: this.configuration[part] for part in parts},
        {target: this.inputs[target]},
        this.code,
        this.machine,
    )


def software_versions() -> dict[str, str]:
    """Versions of chestfed, Python and the packages that can change a result."""
    versions = {"chestfed": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "not installed under this name"
    return versions
