"""Anything that scores images, opened by its name: a study's model, weights, or a program from elsewhere.

What a file is, is read from its content. Weights are read as tensors only; a program is TorchScript, torch.export or
ONNX. A pickle that could run Python code is refused, and so is a program that could write files.

The input is float32 `[n, 3, size, size]`, normalised as docs/images.md says, unless a description of the model says
otherwise. The order of the outputs is that which chestfed wrote into the model, that which a program carries
(`diseases.json` among the extra files of TorchScript and torch.export, the key `diseases` in the metadata of ONNX: a
JSON list), or else has to be declared.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from chestfed.core.checkpoint import load_checkpoint
from chestfed.core.config import StrictModel, load_config
from chestfed.core.diseases import TITLES
from chestfed.core.errors import ConfigError
from chestfed.core.provenance import Origin
from chestfed.experiment.device import Machine
from chestfed.images.network_input import IMAGENET, NetworkInput
from chestfed.images.preprocess import Preprocess
from chestfed.models import ModelConfig, build_model, load_trained, read_weights
from chestfed.results.run_folder import MODEL_FILE
from chestfed.results.significance import folder_of_k
from chestfed.scoring.exported import load_exported
from chestfed.scoring.torchscript import refuse_outside_calls

#: What a model's outputs are; `scores` promise an order and nothing else.
Output = Literal["logits", "probabilities", "scores"]

#: Stands for an output that is not looked at.
IGNORED = "-"

_DISEASES_FILE = "diseases.json"


class ModelDescription(StrictModel):
    """What a file does not say of itself: the YAML of `--model-config`."""

    model: ModelConfig | None = Field(None, description="the architecture, for a file of weights alone")
    diseases: list[str] | None = Field(None, description="one per output, in their order; '-' for one to leave out")
    preprocess: Preprocess | None = Field(None, description="how an image becomes the network's square")
    input: NetworkInput | None = Field(None, description="channels and normalisation; default: 3, ImageNet's")
    output: Output = Field("logits", description="logits are turned into probabilities; scores are an order only")


@dataclass(frozen=True)
class Declared:
    """What the user says of the model; None for what is left to the file."""

    k: int | None = None
    diseases: tuple[str, ...] | None = None
    config: Path | None = None
    size: int | None = None
    output: Output | None = None


@dataclass(frozen=True)
class Scorer:
    """A model ready to score.

    Attributes
    ----------
    outputs
        What each of its outputs means, in their order; `-` is left out.
    call
        Images float32 `[n, input.channels, size, size]` to outputs `[n, len(outputs)]`.
    input
        Channels and normalisation.
    batch
        The only batch size that a program accepts; None for any.
    origin
        What it was trained on; None if the file does not say.
    """

    name: str
    kind: str
    digest: str
    outputs: tuple[str, ...]
    preprocess: Preprocess
    output: Output
    call: Callable[[Tensor], Tensor]
    input: NetworkInput = IMAGENET
    batch: int | None = None
    origin: Origin | None = None

    @property
    def diseases(self) -> tuple[str, ...]:
        """The outputs that are looked at."""
        return tuple(name for name in self.outputs if name != IGNORED)


def open_scorer(reference: str, declared: Declared, machine: Machine, name: str | None = None) -> Scorer:
    """Open a run folder (its largest K), a `kN` folder or a file, which results call `name` (default: where it is).

    Raises
    ------
    ChestfedError
        If it is not there, not finished, could run Python code, or its outputs' order is unknown or contradicts.
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
        return folder_of_k(path, k) / MODEL_FILE
    if (path / MODEL_FILE).is_file():
        return path / MODEL_FILE
    for suffix in (".pt2", ".onnx", ".safetensors", ".pt", ".pth"):
        found = sorted(path.rglob(f"*{suffix}"))
        if len(found) == 1:
            return found[0]
        if found:
            raise ConfigError(f"{reference}: holds {len(found)} files *{suffix}; name the one")
    raise ConfigError(f"{reference}: this folder holds no model: is the study finished?")


def _open(path: Path, name: str, declared: Declared, machine: Machine) -> Scorer:
    description = ModelDescription() if declared.config is None else load_config(declared.config, ModelDescription)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    digest = hashlib.blake2b(content, digest_size=16).hexdigest()
    del content
    if path.suffix == ".onnx":
        return _onnx(path, name, digest, declared, description, machine)
    if path.suffix == ".safetensors" and _has_chestfed_header(path):
        return _chestfed_model(path, name, digest, declared, machine)
    inside = _names_inside(path)
    if "models/model.json" in inside:
        return _exported(path, name, digest, declared, description, machine)
    if path.suffix == ".pt2":
        load_exported(path)  # says what is wrong with it
        raise ConfigError(f"{path}: not a program of torch.export")
    if "constants.pkl" in inside:
        return _torchscript(path, name, digest, declared, description, machine)
    return _weights(path, name, digest, declared, description, machine)


def _chestfed_model(path: Path, name: str, digest: str, declared: Declared, machine: Machine) -> Scorer:
    tensors, values = load_checkpoint(path)
    if "model" not in values or "diseases" not in values:
        raise ConfigError(f"{path}: a state of training, not a model; the model of a run is {MODEL_FILE}")
    names = values["diseases"]
    try:
        if not names or not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise TypeError
        if "preprocess" in values:
            preprocess = Preprocess(**values["preprocess"])
        else:
            size = re.search(r"\[n, 3, (\d+), \d+\]", str(values.get("input", "")))
            preprocess = Preprocess(size=int(size.group(1)) if size else 320)
        config = ModelConfig(**values["model"])
    except (TypeError, ValueError):
        raise ConfigError(f"{path}: its description is damaged, or of another version of chestfed") from None
    outputs = _outputs(path, declared, None, names)
    if declared.config is not None:
        raise ConfigError(f"{path}: describes itself; leave --model-config out")
    if declared.output == "probabilities":
        raise ConfigError(f"{path}: gives logits; leave --outputs out")
    if declared.size not in (None, preprocess.size):
        raise ConfigError(f"{path}: was trained on images of {preprocess.size} pixels; leave --input-size out")
    return Scorer(
        name,
        f"chestfed model, {config.title}",
        digest,
        outputs,
        preprocess,
        declared.output or "logits",
        _network(config, tensors, len(outputs), path, machine),
        origin=Origin.read(values),
    )


def _weights(
    path: Path, name: str, digest: str, declared: Declared, description: ModelDescription, machine: Machine
) -> Scorer:
    tensors = read_weights(path)
    if description.model is None:
        raise ConfigError(
            f"{path}: weights without an architecture. Describe it with --model-config FILE.yaml: `model: {{name: "
            "densenet121}`, and `diseases:` in the order of its outputs"
        )
    outputs = _outputs(path, declared, description, None)
    given = description.input or IMAGENET
    if given.channels != 3:
        raise ConfigError(f"{declared.config}: input: the architectures of chestfed take 3 channels")
    call = _network(description.model, tensors, len(outputs), path, machine)
    return Scorer(
        name,
        f"weights, {description.model.title}",
        digest,
        outputs,
        _preprocess(declared, description, None),
        declared.output or description.output,
        call,
        given,
    )


def _network(
    config: ModelConfig, tensors: dict[str, Tensor], outputs: int, path: Path, machine: Machine
) -> Callable[[Tensor], Tensor]:
    module = build_model(config.model_copy(update={"initial_weights": None}), outputs, seed=0)
    load_trained(module, tensors, str(path))
    return module.to(machine.device).eval()


def _torchscript(
    path: Path, name: str, digest: str, declared: Declared, description: ModelDescription, machine: Machine
) -> Scorer:
    extra = {_DISEASES_FILE: ""}
    refuse_outside_calls(path)
    try:
        program = torch.jit.load(str(path), map_location=machine.device, _extra_files=extra)
    except Exception as error:
        reason = last_line(error)
        hint = "" if "required keyword attribute" not in reason else ". Save it before optimize_for_inference"
        raise ConfigError(f"{path}: not a TorchScript program: {reason}{hint}") from None
    outputs = _outputs(path, declared, description, _carried(path, extra[_DISEASES_FILE]))
    preprocess = _preprocess(declared, description, None)
    return Scorer(
        name,
        "TorchScript program",
        digest,
        outputs,
        preprocess,
        declared.output or description.output,
        program.eval(),
        description.input or IMAGENET,
    )


def _exported(
    path: Path, name: str, digest: str, declared: Declared, description: ModelDescription, machine: Machine
) -> Scorer:
    program, extra = load_exported(path)
    outputs = _outputs(path, declared, description, _carried(path, extra.get(_DISEASES_FILE)))
    inputs = [node for node in program.graph.nodes if node.name in program.graph_signature.user_inputs]
    if len(inputs) != 1:
        raise ConfigError(f"{path}: takes {len(inputs)} inputs; one is needed, the images")
    given = description.input or IMAGENET
    batch, size = _fixed(path, list(inputs[0].meta["val"].shape), given.channels)
    module = program.module(check_guards=False).to(machine.device)
    return Scorer(
        name,
        "torch.export program",
        digest,
        outputs,
        _preprocess(declared, description, size),
        declared.output or description.output,
        module,
        given,
        batch,
    )


def _onnx(
    path: Path, name: str, digest: str, declared: Declared, description: ModelDescription, machine: Machine
) -> Scorer:
    try:
        import onnxruntime
    except ImportError:
        raise ConfigError(f"{path}: ONNX programs need onnxruntime: pip install 'chestfed[onnx]'") from None
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = machine.threads
    try:
        session = onnxruntime.InferenceSession(path.read_bytes(), settings, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise ConfigError(f"{path}: not an ONNX program that onnxruntime can run: {last_line(error)}") from None
    outputs = _outputs(
        path, declared, description, _carried(path, session.get_modelmeta().custom_metadata_map.get("diseases"))
    )
    inputs, results = session.get_inputs(), session.get_outputs()
    if len(inputs) != 1 or len(results) != 1:
        raise ConfigError(f"{path}: has {len(inputs)} inputs and {len(results)} outputs; one each is needed")
    given = description.input or IMAGENET
    batch, size = _fixed(path, inputs[0].shape, given.channels)

    def call(images: Tensor) -> Tensor:
        (values,) = session.run([results[0].name], {inputs[0].name: images.cpu().contiguous().numpy()})
        return torch.from_numpy(np.asarray(values))

    output, preprocess = declared.output or description.output, _preprocess(declared, description, size)
    return Scorer(name, "ONNX program", digest, outputs, preprocess, output, call, given, batch)


def _fixed(path: Path, shape: Sequence[Any], channels: int) -> tuple[int | None, int | None]:
    """Batch size and side of an input `[n, channels, side, side]`, where they are fixed."""
    if len(shape) == 4 and isinstance(shape[1], int) and shape[1] != channels:
        advice = ": say so, and how grey levels become its numbers, with --model-config and its `input:`"
        raise ConfigError(
            f"{path}: takes images of {shape[1]} channels, not {channels}" + (advice if shape[1] in (1, 3) else "")
        )
    if len(shape) != 4:
        raise ConfigError(f"{path}: takes an input of the shape {list(shape)}; [n, channels, side, side] is needed")
    batch, _, height, width = (part if type(part) is int else None for part in shape)
    if height != width:
        raise ConfigError(f"{path}: takes images of {height} x {width}; a square is needed")
    return batch, height


def _preprocess(declared: Declared, description: ModelDescription, fixed: int | None) -> Preprocess:
    chosen = description.preprocess or Preprocess(size=fixed or 320)
    if declared.size is not None:
        chosen = Preprocess(size=declared.size, fit=chosen.fit)
    if fixed is not None and chosen.size != fixed:
        raise ConfigError(f"the program takes images of {fixed} pixels, not {chosen.size}")
    return chosen


def _outputs(
    path: Path, declared: Declared, description: ModelDescription | None, carried: Sequence[str] | None
) -> tuple[str, ...]:
    """The outputs' order; what is declared has to agree with what the file carries."""
    said = declared.diseases or (tuple(description.diseases) if description and description.diseases else None)
    order = said or (tuple(carried) if carried else None)
    if order is None:
        raise ConfigError(
            f"{path}: does not say what its outputs are. Name them in their order: --labels-order "
            "cardiomegaly,edema,... ('-' for one to leave out)"
        )
    for name in order if carried is None or said else ():
        if name not in TITLES and name != IGNORED and name not in (carried or ()):
            close = difflib.get_close_matches(name.lower().replace(" ", "_"), TITLES, n=1, cutoff=0.5)
            hint = f"did you mean '{close[0]}'?" if close else f"known: {', '.join(TITLES)}"
            raise ConfigError(f"--labels-order: unknown disease '{name}'; {hint} ('-' leaves an output out)")
    named = [name for name in order if name != IGNORED]
    if not named or len(set(named)) < len(named):
        raise ConfigError(f"--labels-order: {', '.join(order)}: names a disease twice, or none")
    if carried and said:
        agree = len(carried) == len(said) and all(b in (a, IGNORED) for a, b in zip(carried, said, strict=True))
        if not agree:
            raise ConfigError(
                f"{path}: its outputs are, by its own account, {', '.join(carried)}; --labels-order says "
                f"{', '.join(said)}. Leave it out, or correct it"
            )
    return tuple(order)


def _carried(path: Path, text: str | bytes | None) -> list[str] | None:
    """The order that a program carries, if any."""
    if not text:
        return None
    try:
        names = json.loads(text)
    except ValueError:
        names = None
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"{path}: the diseases that it carries are not a JSON list of names")
    return names


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


def last_line(error: Exception) -> str:
    """The last line of an error's text, which says what of a program's trace."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:300]
