"""Programs from elsewhere, in torch.export's format or ONNX."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chestfed.core.errors import ConfigError
from chestfed.experiment.device import Machine
from chestfed.images.network_input import IMAGENET
from chestfed.scoring.exported import load_exported
from chestfed.scoring.output_names import carried_names, named_outputs
from chestfed.scoring.scorer import Declared, ModelDescription, Scorer, preprocess_of

_DISEASES_FILE = "diseases.json"


def open_exported(
    path: Path, name: str, digest: str, declared: Declared, description: ModelDescription, machine: Machine
) -> Scorer:
    """A program of torch.export.

    Raises
    ------
    ConfigError
        If it could run code, or takes or gives something else than images and scores.
    """
    program, extra = load_exported(path)
    carried = carried_names(path, extra.get(_DISEASES_FILE))
    outputs, notes = named_outputs(path, carried, declared.diseases or description.diseases)
    inputs = [node for node in program.graph.nodes if node.name in program.graph_signature.user_inputs]
    if len(inputs) != 1:
        raise ConfigError(f"{path}: takes {len(inputs)} inputs; one is needed, the images")
    given = description.input or IMAGENET
    batch, size = _fixed(path, list(inputs[0].meta["val"].shape), given.channels)
    return Scorer(
        name,
        "torch.export program",
        digest,
        outputs,
        preprocess_of(declared, description, size),
        declared.output or description.output,
        program.module(check_guards=False).to(machine.device),
        given,
        batch,
        notes=notes,
    )


def open_onnx(
    path: Path, name: str, digest: str, declared: Declared, description: ModelDescription, machine: Machine
) -> Scorer:
    """An ONNX program, on the CPU.

    Raises
    ------
    ConfigError
        If onnxruntime is missing or cannot run it, or it takes or gives something else than images and scores.
    """
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
    carried = carried_names(path, session.get_modelmeta().custom_metadata_map.get("diseases"))
    outputs, notes = named_outputs(path, carried, declared.diseases or description.diseases)
    inputs, results = session.get_inputs(), session.get_outputs()
    if len(inputs) != 1 or len(results) != 1:
        raise ConfigError(f"{path}: has {len(inputs)} inputs and {len(results)} outputs; one each is needed")
    given = description.input or IMAGENET
    batch, size = _fixed(path, inputs[0].shape, given.channels)

    def call(images: Tensor) -> Tensor:
        (values,) = session.run([results[0].name], {inputs[0].name: images.cpu().contiguous().numpy()})
        return torch.from_numpy(np.asarray(values))

    output, preprocess = declared.output or description.output, preprocess_of(declared, description, size)
    return Scorer(name, "ONNX program", digest, outputs, preprocess, output, call, given, batch, notes=notes)


def _fixed(path: Path, shape: Sequence[Any], channels: int) -> tuple[int | None, int | None]:
    """Batch size and side of an input `[n, channels, side, side]`, where they are fixed."""
    if len(shape) == 4 and isinstance(shape[1], int) and shape[1] != channels:
        advice = ": say so, and how gray levels become its numbers, with --model-config and its `input:`"
        raise ConfigError(
            f"{path}: takes images of {shape[1]} channels, not {channels}" + (advice if shape[1] in (1, 3) else "")
        )
    if len(shape) != 4:
        raise ConfigError(f"{path}: takes an input of the shape {list(shape)}; [n, channels, side, side] is needed")
    batch, _, height, width = (part if type(part) is int else None for part in shape)
    if height != width:
        raise ConfigError(f"{path}: takes images of {height} x {width}; a square is needed")
    return batch, height


def last_line(error: Exception) -> str:
    """The last line of an error's text, which says what went wrong at the end of a program's trace."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:300]
