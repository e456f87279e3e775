"""Anything that scores images, opened by its path: a study's model, weights, or a program from elsewhere.

The format of a file is read from its content. Weights are read as tensors only, a program is an ONNX file, and a pickle
that could run Python code is refused.

The input is float32 `[n, 3, size, size]`, normalized as docs/images.md says, unless a description of the model says
otherwise. The order of the outputs is the one that chestfed wrote into the model, the one that a program carries
(the key `diseases` in its metadata: a JSON list), or has to be declared.
"""

from __future__ import annotations

import copy
import hashlib
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from chestfed.core.bundled import MODEL_SUFFIXES, install_command
from chestfed.core.checkpoint import load_checkpoint
from chestfed.core.config import load_config
from chestfed.core.errors import ConfigError, first_line
from chestfed.core.provenance import Origin
from chestfed.data.images.batches import NetworkInput
from chestfed.data.images.preprocess import Preprocess
from chestfed.learning.models import MODELS, name_network, network_options, read_weights
from chestfed.results.tables.frames import read_row
from chestfed.results.tables.run_folder import COMMON_FILE, HOSPITALS, MODEL_FILE, STUDY, RunFolder
from chestfed.studies.experiment.device import Machine
from chestfed.studies.scoring.networks import find_network, load_network
from chestfed.studies.scoring.output_names import read_output_names, select_own_outputs
from chestfed.studies.scoring.scorer import Declared, ModelDescription, ModelFile, Output, Scorer, last_line

__all__ = ["Declared", "ModelDescription", "Output", "Scorer", "open_module", "open_scorer"]


def open_scorer(
    reference: str, declared: Declared, machine: Machine, name: str | None = None, site: str | None = None
) -> Scorer:
    """Open a run folder (its largest K), a `kN` folder or a file; results call it `name` (default: `short_name`).

    `site`: the hospital whose images are scored, for a folder that has models of hospitals.

    Raises `ChestfedError` if it does not exist, is not finished, could run Python code, or its outputs' order is
    unknown or contradicts.
    """
    path = Path(reference)
    if not path.exists():
        raise ConfigError(f"{path}: no such file or folder; MODEL is a run folder, a file or an MLflow URI")
    file = find_model(path, declared.k, name)
    if site is None or path.is_file() or not (file.parent / COMMON_FILE).is_file():
        return _open(file, name, declared, machine)
    chosen = _choose_for_site(file.parent, site)
    scorer = _open(chosen, name, declared, machine)
    note = f"Clients have models of their own: {site} is scored with {chosen.relative_to(file.parents[1])}."
    return replace(scorer, notes=(*scorer.notes, note))


def _choose_for_site(folder: Path, site: str) -> Path:
    """The model of a site, in the folder of a K whose clients have their own: that of the target lies in `folder`."""
    own = folder / HOSPITALS / site / MODEL_FILE
    if own.is_file():
        return own
    return folder / (MODEL_FILE if site in read_row(folder).clients else COMMON_FILE)


def find_model(path: Path, k: int | None = None, name: str | None = None) -> Path:
    """The file of a model: itself, that of a `kN` folder, of a run folder's largest or given K, or a folder's only one.

    Raises `ConfigError` if there is none or several, or the folder is not of that K.
    """
    above = path.resolve().parents[:2]  # of `.` and of a file's bare name, they are not in the name
    of_study = any((folder / STUDY).is_file() for folder in (path, *above))
    if k is not None and not of_study:
        raise ConfigError(f"{name or path}: not a run folder of a study; leave --k out", kind="no K")
    return _only_model(path, name or str(path), k)


def open_module(module: nn.Module, declared: Declared, described: Mapping[str, Any] | None, machine: Machine) -> Scorer:
    """A module that is in memory; `described` are the keys of its `NetworkInput`, by default ImageNet's.

    A copy of it is scored, in evaluation mode. Results call it by its class and a digest of its weights.

    Raises `ConfigError` if the names of its outputs are not declared, or its description is invalid.
    """
    name = type(module).__name__
    if declared.diseases is None:
        text = f"{name}: name its outputs in their order, as diseases=[...]; '-' ignores one"
        raise ConfigError(text, kind="outputs without names")
    try:
        form = None if described is None else NetworkInput.model_validate(dict(described))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"input: {first_line(error)}", kind="unusable input") from None
    digest = hashlib.blake2b(name.encode(), digest_size=16)
    for key, tensor in module.state_dict().items():
        digest.update(key.encode() + tensor.detach().cpu().double().numpy().tobytes())
    network = copy.deepcopy(module).to(machine.device).eval()
    about = ModelDescription(input=form)
    file = ModelFile(Path(name), f"{name} {digest.hexdigest()[:8]}", digest.hexdigest(), declared, about, machine)
    outputs, notes = file.outputs(None)
    return replace(file.scorer("torch module", outputs, network, notes), network=network)


def short_name(file: Path, digest: str) -> str:
    """Run folder and K of a study's model, else a file's name and digest: results may leave, and paths name people."""
    place = file.absolute() if file.name == COMMON_FILE else file.absolute().parent
    run = next((folder for folder in list(place.parents)[:3] if (folder / STUDY).is_file()), None)
    return f"{file.name} {digest[:8]}" if run is None else place.relative_to(run.parent).with_suffix("").as_posix()


def _only_model(path: Path, reference: str, k: int | None = None) -> Path:
    """The model file that a folder stands for."""
    of_k = path.parent if path.is_file() else path
    in_run = (of_k.parent / STUDY).is_file()
    if k is not None and of_k.name != f"k{k}" and in_run:
        raise ConfigError(f"{reference}: is not of K={k}; leave --k out, or give the run folder", kind="another K")
    if in_run and of_k.name.startswith("k") and of_k.name[1:].isdigit():
        RunFolder.open(of_k.parent).folder(int(of_k.name[1:]))  # checks that it is of this run and K
    if path.is_file():
        return path
    if (path / STUDY).is_file():
        return RunFolder(path).folder(k) / MODEL_FILE
    if (path / MODEL_FILE).is_file():
        return path / MODEL_FILE
    for suffix in MODEL_SUFFIXES:
        files = sorted(path.rglob(f"*{suffix}"))
        if len(files) == 1:
            return files[0]
        if files:
            raise ConfigError(f"{reference}: contains {len(files)} files *{suffix}; name one")
    raise ConfigError(f"{reference}: no model in this folder; is the study finished?", kind="no model")


def _open(path: Path, name: str | None, declared: Declared, machine: Machine) -> Scorer:
    description = ModelDescription() if declared.config is None else load_config(declared.config, ModelDescription)
    try:
        digest = hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    file = ModelFile(path, name or short_name(path, digest), digest, declared, description, machine)
    if path.suffix == ".onnx":
        return _onnx(file)
    if path.suffix == ".safetensors" and _has_chestfed_header(path):
        return _chestfed_model(file)
    if path.suffix == ".pt2" or _names_inside(path) & {"constants.pkl", "models/model.json"}:
        raise ConfigError(
            f"{path}: a program of torch.export or TorchScript, which is not supported. Possible are the model of a "
            "study (model.safetensors), an ONNX program (.onnx, written by torch.onnx.export), and weights "
            "(.safetensors, .pth, .ckpt) with a network named in --model-config",
            kind="program of torch",
        )
    return _weights(file)


def _chestfed_model(file: ModelFile) -> Scorer:
    path, declared = file.path, file.declared
    tensors, values = load_checkpoint(path)
    if "model" not in values or "diseases" not in values:
        raise ConfigError(f"{path}: a training state, not a model; the model of a run is {MODEL_FILE}")
    names = values["diseases"]
    if not names or not isinstance(names, list) or not all(isinstance(disease, str) for disease in names):
        raise ConfigError(f"{path}: its description is damaged: diseases", kind="damaged description", key="diseases")
    preprocess = _preprocess_in(path, values)
    if declared.config is not None:
        raise ConfigError(f"{path}: this file describes itself; omit --model-config")
    if declared.output == "probabilities":
        raise ConfigError(f"{path}: this model returns logits; omit --output-type")
    if declared.size not in (None, preprocess.size):
        raise ConfigError(f"{path}: was trained on images of {preprocess.size} pixels; omit --input-size")
    outputs = select_own_outputs(path, names, declared.diseases)
    options, changed = find_network(values, path, declared.network)
    network, notes = load_network(options, tensors, len(outputs), path, file.machine)
    kind = f"chestfed model, {name_network(options)}"
    scorer = file.scorer(kind, outputs, network, (*changed, *notes))
    return replace(scorer, preprocess=preprocess, origin=Origin.read(values), network=network)


def _preprocess_in(path: Path, values: dict[str, Any]) -> Preprocess:
    try:
        return Preprocess(**values["preprocess"])
    except (KeyError, TypeError, ValueError):
        text = f"{path}: its description is damaged: preprocess"
        raise ConfigError(text, kind="damaged description", key="preprocess") from None


def _weights(file: ModelFile) -> Scorer:
    path, declared, description = file.path, file.declared, file.description
    tensors = read_weights(path)
    if declared.network is not None and description.model is not None:
        raise ConfigError(
            f"--network {declared.network}: {declared.config} also names a network; omit one of them",
            kind="two networks named",
        )
    model = description.model if declared.network is None else network_options(declared.network)
    if model is None:
        raise ConfigError(
            f"{path}: weights without an architecture. Describe it with --model-config FILE.yaml: `model: {{name: "
            "densenet121}` (or `package.module:Name` for your own), and `diseases:` in the order of its outputs",
            kind="weights without a network",
        )
    outputs, notes = file.outputs(None)
    if file.input.channels != 3 and model.name in MODELS.built_in:
        raise ConfigError(f"{declared.config}: input: the built-in networks take 3 channels")
    network, left_out = load_network(model, tensors, len(outputs), path, file.machine)
    scorer = file.scorer(f"weights, {name_network(model)}", outputs, network, (*notes, *left_out))
    return replace(scorer, network=network)


def _onnx(file: ModelFile) -> Scorer:
    """An ONNX program, on the CPU."""
    path = file.path
    if file.declared.network is not None or file.description.model is not None:
        raise ConfigError(
            f"{path}: a program is its own network; omit --network, and `model:` in --model-config",
            kind="network beside a program",
        )
    try:
        import onnxruntime
    except ImportError:
        text = f"{path}: ONNX programs need onnxruntime: {install_command('onnx')}"
        raise ConfigError(text, kind="missing package", extra="onnx") from None
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = file.machine.threads
    try:
        session = onnxruntime.InferenceSession(path.read_bytes(), settings, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise ConfigError(f"{path}: not an ONNX program that onnxruntime can run: {last_line(error)}") from None
    outputs, notes = file.outputs(read_output_names(path, session.get_modelmeta().custom_metadata_map.get("diseases")))
    inputs, results = session.get_inputs(), session.get_outputs()
    if len(inputs) != 1 or len(results) != 1:
        raise ConfigError(f"{path}: has {len(inputs)} inputs and {len(results)} outputs; one each is needed")

    def call(images: Tensor) -> Tensor:
        (values,) = session.run([results[0].name], {inputs[0].name: images.cpu().contiguous().numpy()})
        return torch.from_numpy(np.asarray(values))

    return file.scorer("ONNX program", outputs, call, notes, _fixed(file, inputs[0].shape))


def _fixed(file: ModelFile, shape: Sequence[Any]) -> tuple[int | None, int | None]:
    """Batch size and side of an input `[n, channels, side, side]`, where they are fixed."""
    path, channels = file.path, file.input.channels
    layers = shape[1] if len(shape) == 4 else 0
    if isinstance(layers, int) and layers not in (1, 3):
        form = "[n, channels, side, side] with 1 or 3 channels"
        raise ConfigError(
            f"{path}: takes an input of the shape {list(shape)}; {form} is required", kind="unusable input shape"
        )
    if isinstance(layers, int) and layers != channels:
        advice = "describe the input under `input:` in the YAML of --model-config"
        raise ConfigError(
            f"{path}: takes images of {layers} channels, not {channels}: {advice}", kind="another number of channels"
        )
    batch, _, height, width = (part if type(part) is int else None for part in shape)
    if height != width:
        raise ConfigError(f"{path}: takes images of {height} x {width}; a square is needed")
    return batch, height


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
