"""Anything that scores images, opened by its path: a study's model, weights, or a program from elsewhere.

The format of a file is read from its content. Weights are read as tensors only; a program is torch.export's or ONNX. A
pickle that could run Python code is refused, and so is a program that could write files.

The input is float32 `[n, 3, size, size]`, normalized as docs/images.md says, unless a description of the model says
otherwise. The order of the outputs is the one that chestfed wrote into the model, the one that a program carries
(`diseases.json` among the extra files of torch.export, the key `diseases` in the metadata of ONNX: a JSON list), or
has to be declared.
"""

from __future__ import annotations

import hashlib
import re
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from chestfed.core.checkpoint import load_checkpoint
from chestfed.core.config import load_config
from chestfed.core.errors import ConfigError
from chestfed.core.provenance import Origin
from chestfed.experiment.device import Machine
from chestfed.images.preprocess import Preprocess
from chestfed.models import MODELS, network_options, read_weights, title_of
from chestfed.results.run_folder import MODEL_FILE, RunFolder
from chestfed.scoring.exported import load_exported
from chestfed.scoring.networks import load_network, network_in
from chestfed.scoring.output_names import own_outputs
from chestfed.scoring.programs import open_exported, open_onnx
from chestfed.scoring.scorer import Declared, ModelDescription, ModelFile, Output, Scorer

__all__ = ["Declared", "ModelDescription", "Output", "Scorer", "open_scorer"]


def open_scorer(reference: str, declared: Declared, machine: Machine, name: str | None = None) -> Scorer:
    """Open a run folder (its largest K), a `kN` folder or a file; results call it `name` (default: its path).

    Raises
    ------
    ChestfedError
        If it does not exist, is not finished, could run Python code, or its outputs' order is unknown or contradicts.
    """
    path = Path(reference)
    if not path.exists():
        raise ConfigError(f"{path}: no such file or folder; MODEL is a run folder, a file or an MLflow URI")
    file = _only_model(path, name or reference, declared.k)
    # A run folder has several models: the name says which.
    place = str(file.parent) if (path / "study.json").is_file() else reference
    return _open(file, name or place, declared, machine)


def _only_model(path: Path, reference: str, k: int | None = None) -> Path:
    """The model file that a folder stands for."""
    if path.is_file():
        return path
    if (path / "study.json").is_file():
        return RunFolder(path).folder(k) / MODEL_FILE
    if (path / MODEL_FILE).is_file():
        return path / MODEL_FILE
    for suffix in (".pt2", ".onnx", ".safetensors", ".pt", ".pth", ".ckpt"):
        found = sorted(path.rglob(f"*{suffix}"))
        if len(found) == 1:
            return found[0]
        if found:
            raise ConfigError(f"{reference}: holds {len(found)} files *{suffix}; name one")
    raise ConfigError(f"{reference}: this folder holds no model: is the study finished?")


def _open(path: Path, name: str, declared: Declared, machine: Machine) -> Scorer:
    description = ModelDescription() if declared.config is None else load_config(declared.config, ModelDescription)
    try:
        digest = hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    file = ModelFile(path, name, digest, declared, description, machine)
    if path.suffix == ".onnx":
        return open_onnx(file)
    if path.suffix == ".safetensors" and _has_chestfed_header(path):
        return _chestfed_model(file)
    inside = _names_inside(path)
    if "models/model.json" in inside:
        return open_exported(file)
    if path.suffix == ".pt2":
        load_exported(path)  # says what is wrong with it
        raise ConfigError(f"{path}: not a program of torch.export")
    if "constants.pkl" in inside:
        raise ConfigError(
            f"{path}: a TorchScript program, which is not supported: PyTorch has deprecated the format, and what it "
            "may do cannot be bounded. Export the model with torch.export.save or torch.onnx.export, or save its "
            "state_dict and name the network with --model-config"
        )
    return _weights(file)


def _chestfed_model(file: ModelFile) -> Scorer:
    path, declared = file.path, file.declared
    tensors, values = load_checkpoint(path)
    if "model" not in values or "diseases" not in values:
        raise ConfigError(f"{path}: a state of training, not a model; the model of a run is {MODEL_FILE}")
    names = values["diseases"]
    if not names or not isinstance(names, list) or not all(isinstance(disease, str) for disease in names):
        raise ConfigError(f"{path}: its description is damaged: diseases")
    preprocess = _preprocess_in(path, values)
    if declared.config is not None:
        raise ConfigError(f"{path}: describes itself; leave --model-config out")
    if declared.output == "probabilities":
        raise ConfigError(f"{path}: gives logits; leave --output-type out")
    if declared.size not in (None, preprocess.size):
        raise ConfigError(f"{path}: was trained on images of {preprocess.size} pixels; leave --input-size out")
    outputs = own_outputs(path, names, declared.diseases)
    options, changed = network_in(values, path, declared.network)
    call, notes = load_network(options, tensors, len(outputs), path, file.machine)
    kind = f"chestfed model, {title_of(options)}"
    scorer = file.scorer(kind, outputs, call, (*changed, *notes))
    return replace(scorer, preprocess=preprocess, origin=Origin.read(values))


def _preprocess_in(path: Path, values: dict[str, Any]) -> Preprocess:
    try:
        if "preprocess" in values:
            return Preprocess(**values["preprocess"])
    except (TypeError, ValueError):
        raise ConfigError(f"{path}: its description is damaged, or of another version of chestfed") from None
    size = re.search(r"\[n, 3, (\d+), \d+\]", str(values.get("input", "")))
    return Preprocess(size=int(size.group(1)) if size else 320)


def _weights(file: ModelFile) -> Scorer:
    path, declared, description = file.path, file.declared, file.description
    tensors = read_weights(path)
    if declared.network is not None and description.model is not None:
        raise ConfigError(f"--network {declared.network}: {declared.config} names a network too; leave one out")
    model = description.model if declared.network is None else network_options(declared.network)
    if model is None:
        raise ConfigError(
            f"{path}: weights without an architecture. Describe it with --model-config FILE.yaml: `model: {{name: "
            "densenet121}` (or `package.module:Name` for your own), and `diseases:` in the order of its outputs"
        )
    outputs, notes = file.outputs(None)
    if file.input.channels != 3 and model.name in MODELS.built_in:
        raise ConfigError(f"{declared.config}: input: the built-in networks take 3 channels")
    call, left_out = load_network(model, tensors, len(outputs), path, file.machine)
    return file.scorer(f"weights, {title_of(model)}", outputs, call, (*notes, *left_out))


def _has_chestfed_header(path: Path) -> bool:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            return "chestfed" in (file.metadata() or {})
    except (SafetensorError, OSError) as error:
        raise ConfigError(f"{path}: damaged safetensors file ({error})") from None


def _names_inside(path: Path) -> set[str]:
    """Names in a torch archive without its outer folder; empty for other files."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {name.partition("/")[2] for name in archive.namelist()}
    except (zipfile.BadZipFile, OSError):
        return set()
