"""ONNX programs for tests."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest


def make_weights(outputs: int, inputs: int) -> np.ndarray:
    """The weights float32 `[outputs, inputs]` of a program."""
    return np.random.default_rng(0).normal(0, 0.01, (outputs, inputs)).astype(np.float32)


def write_program(
    path: Path,
    *,
    shape: Sequence[int | str] = ("n", 3, 64, 64),
    outputs: int = 5,
    sigmoid: bool = False,
    diseases: Sequence[str] | None = None,
) -> Path:
    """A program of one linear layer on images of this shape; `diseases` is what its metadata says."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    helper = onnx.helper
    weights = onnx.numpy_helper.from_array(make_weights(outputs, math.prod(map(int, shape[1:]))), "weights")
    nodes = [
        helper.make_node("Flatten", ["x"], ["flat"]),
        helper.make_node("Gemm", ["flat", "weights"], ["logits"], transB=1),
        helper.make_node("Sigmoid" if sigmoid else "Identity", ["logits"], ["y"]),
    ]
    images = helper.make_tensor_value_info("x", 1, list(shape))
    scores = helper.make_tensor_value_info("y", 1, [shape[0], outputs])
    graph = helper.make_graph(nodes, "linear", [images], [scores], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    if diseases is not None:
        helper.set_model_props(model, {"diseases": json.dumps(diseases)})
    onnx.save(model, str(path))
    return path
