"""Determinants of a study's result, and the digest that names it."""

from __future__ import annotations

import functools
import hashlib
import json
import platform
import subprocess
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from chestfed._version import __version__
from chestfed.learning.engines.declaration import processes
from chestfed.studies.experiment.device import Machine
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.experiment.resolved import identity
from chestfed.studies.training.data.experiment import Experiment

#: Packages whose versions can change a result: shown with it. All others are recorded too.
PACKAGES = (
    "torch",
    "monai",
    "numpy",
    "pandas",
    "pydicom",
    "pillow",
    "opencv-python-headless",
    "scikit-learn",
    "mlflow",
)

#: Raised by hand when the same configuration and data come to other numbers: runs of another version are not resumed.
#: Changes that leave all numbers as they are (the report, a new algorithm, a message) do not raise it;
#: tests/studies/training/test_identity.py trains a small study and says when it is due.
RESULTS_VERSION = 7


@dataclass(frozen=True)
class Identity:
    """Determinants of a study's result, and the digest that names it.

    `configuration` is resolved and holds the code of plug-ins; `inputs` are digests of the sites' content; `machine` is
    the kind of device.
    """

    configuration: dict[str, Any]
    inputs: dict[str, str]
    machine: dict[str, Any]
    results_version: int = RESULTS_VERSION

    @property
    def digest(self) -> str:
        """12 hexadecimal digits."""
        text = json.dumps([self.configuration, self.inputs, self.results_version, self.machine], sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()

    @property
    def settings(self) -> str:
        """The digest without the sites' content: what a dry run knows, which reads no image."""
        return replace(self, inputs={}).digest


def identify(experiment: Experiment) -> Identity:
    """The identity of a study on these data and this kind of device."""
    return replace(identify_settings(experiment.pipeline, experiment.machine), inputs=dict(experiment.digests))


def identify_settings(pipeline: Pipeline, machine: Machine) -> Identity:
    """Identity before any image is read."""
    device = {"device": machine.device.type, "threads": machine.threads if machine.device.type == "cpu" else 0}
    if pipeline.runtime.sync_batch_norm:
        device["processes"] = processes()
    return Identity(identity(pipeline), {}, device)


def stage_1_identity(experiment: Experiment) -> Identity:
    """Identity of stage 1: a part of the study's identity."""
    this = identify(experiment)
    parts = ("model", "preprocess", "augment", "pretrain", "runtime", "seed", "split")
    target, network = experiment.clients[0].name, this.configuration["model"]["name"]
    plugins = {name: code for name, code in this.configuration["plugins"].items() if name == network}
    return Identity(
        {part: this.configuration[part] for part in parts if part in this.configuration} | {"plugins": plugins},
        {target: this.inputs[target]},
        this.machine,
    )


def software_versions() -> dict[str, str]:
    """Versions of chestfed, with the commit, of Python and of the packages that can change a result."""
    versions = {"chestfed": __version__, "commit": _commit() or "not known", "python": platform.python_version()}
    installed = installed_packages()
    return versions | {name: installed.get(name, "not installed under this name") for name in PACKAGES}


@functools.cache  # it reads a file of every distribution
def installed_packages() -> dict[str, str]:
    """Version of every installed distribution by its name, in small letters."""
    packages = (part.metadata for part in metadata.distributions())
    return dict(sorted((package["Name"].lower(), package["Version"]) for package in packages if package["Name"]))


def _commit() -> str | None:
    """The commit of the checkout that this package is run from, marked if files were changed; None if it is none."""
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():
        return None
    try:
        result = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude", "*"],
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip()
