"""Programs from elsewhere, in torch.export's format or ONNX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chestfed.core.errors import ConfigError
from chestfed.scoring.exported import load_exported
from chestfed.scoring.output_names import carried_names
from chestfed.scoring.scorer import ModelFile, Scorer

_DISEASES_FILE = "diseases.json"


def open_exported(file: ModelFile) -> Scorer:
    """A program of torch.export.

    Raises
    ------
    ConfigError
        If it could run code, or takes or gives something else than images and scores.
    """
    program, extra = load_exported(file.path)
    outputs, notes = file.outputs(carried_names(file.path, extra.get(_DISEASES_FILE)))
    inputs = [node for node in program.graph.nodes if node.name in program.graph_signature.user_inputs]
    if len(inputs) != 1:
        raise ConfigError(f"{file.path}: takes {len(inputs)} inputs; one is needed, the images")
    fixed = _fixed(file, list(inputs[0].meta["val"].shape))
    call = program.module(check_guards=False).to(file.machine.device)
    return file.scorer("torch.export program", outputs, call, notes, fixed)


def open_onnx(file: ModelFile) -> Scorer:
    """An ONNX program, on the CPU.

    Raises
    ------
    ConfigError
        If onnxruntime is missing or cannot run it, or it takes or gives something else than images and scores.
    """
    path = file.path
    try:
        import onnxruntime
    except ImportError:
        raise ConfigError(f"{path}: ONNX programs need onnxruntime: pip install 'chestfed[onnx]'") from None
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = file.machine.threads
    try:
        session = onnxruntime.InferenceSession(path.read_bytes(), settings, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise ConfigError(f"{path}: not an ONNX program that onnxruntime can run: {last_line(error)}") from None
    outputs, notes = file.outputs(carried_names(path, session.get_modelmeta().custom_metadata_map.get("diseases")))
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
