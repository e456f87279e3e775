"""Outputs of an opened model for images."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from chestfed.core.errors import ChestfedError
from chestfed.data.images.batches import EvalBatches, Images
from chestfed.results.evaluation.probabilities import probabilities
from chestfed.studies.experiment.device import Machine
from chestfed.studies.scoring.output_names import IGNORED
from chestfed.studies.scoring.scorer import Scorer, last_line

#: A program from elsewhere may loop for ever: its first batch of images gets so long.
FIRST_BATCH_SECONDS = 300.0
#: So much of the largest output may depend on the other images: 8-bit quantization scales a batch as a whole.
_ROUNDING = 0.03
#: Subject of an error of a program, how it is recognized, and what helps.
_HINTS = (
    (
        "precision",
        r"type .* should be the same|same dtype|\bHalf\b|expected: \(tensor\(",
        "It computes in another precision; export it in float32",
    ),
    (
        "channels",
        r"channels|running_mean|shape\[1\]|index: 1 Got",
        "It takes another number of channels: set `input:` in the YAML of --model-config",
    ),
    ("size", r"shape|size|dimension", "Set another image size with --input-size"),
)


def score_images(
    scorer: Scorer,
    images: Images,
    batch_size: int,
    machine: Machine,
    progress: Callable[[int, int], None] | None = None,
) -> np.ndarray:
    """Scores float64 `[n, len(scorer.diseases)]` of the images, in row order.

    They are probabilities, of logits in the order of the logits, or the model's own numbers if these are no more than
    an order (`scores`). `progress(done, total)` is called after each batch.

    Raises `ChestfedError` if the program fails, takes more than `FIRST_BATCH_SECONDS` for the first batch, is in
    training mode, or its outputs are not one finite number per image and declared name.
    """
    size = scorer.batch or batch_size
    nothing = np.zeros((len(images.records), 0), np.float32)
    batches = EvalBatches(images, nothing, size, form=scorer.input, device=machine.device)
    results: list[Tensor] = []
    done = 0
    with torch.inference_mode():
        for batch in batches:
            count = len(batch.images)
            given = batch.images
            if scorer.batch is not None and count < scorer.batch:
                given = torch.cat([given, given[:1].expand(scorer.batch - count, *given.shape[1:])])
            called = _called if results else _call_with_timeout
            # A copy: what a program returns may be a view of the images, which the next batch overwrites.
            results.append(called(scorer, given, machine)[:count].clone())
            if len(results) == 1:
                _check_alone(scorer, given, machine)
            done += count
            if progress is not None:
                progress(done, len(images.records))
    places = [place for place, name in enumerate(scorer.outputs) if name != IGNORED]
    values = torch.cat(results).cpu().numpy()[:, places]
    if not np.isfinite(values).all():
        raise ChestfedError(f"{scorer.name}: returns a score that is not finite", kind="score not finite")
    if scorer.output == "logits":
        return probabilities(values)
    if scorer.output == "probabilities" and (values.min() < 0 or values.max() > 1):
        raise ChestfedError(
            f"{scorer.name}: gives {values.min():g} to {values.max():g}, which are not probabilities. If they "
            "are logits, use --output-type logits; if only their order has a meaning (percentages, margins), "
            "--output-type scores",
            kind="not probabilities",
        )
    return values


def _check_alone(scorer: Scorer, given: Tensor, machine: Machine) -> None:
    """Refuse a model that gives an image other outputs among copies of itself: it drops out, or norms by the batch."""
    size = scorer.batch or min(2, len(given))  # of equal batches, whose rounding is the same
    beside, alone = (_called(scorer, part, machine) for part in (given[:size], given[:1].repeat(size, 1, 1, 1)))
    if (beside[0] - alone[0]).abs().max() > _ROUNDING * beside.abs().max():
        raise ChestfedError(
            f"{scorer.name}: what it gives for an image depends on chance or on the other images of the batch, as in "
            "training mode. Call .eval() on the model before you export it; in its own code, dropout and batch norm "
            "must be off when `self.training` is false",
            kind="in training mode",
        )


def _call_with_timeout(scorer: Scorer, given: Tensor, machine: Machine) -> Tensor:
    """As `_called`, in a thread that is left behind if it takes too long: code in C heeds no signal of Python."""
    results: list[Tensor | Exception] = []

    def call() -> None:
        try:
            with torch.inference_mode():  # a thread has its own mode
                results.append(_called(scorer, given, machine))
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=call, name="first batch", daemon=True)
    thread.start()
    thread.join(FIRST_BATCH_SECONDS)
    if not results:
        raise ChestfedError(
            f"{scorer.name}: gave nothing for its first {len(given)} images in {FIRST_BATCH_SECONDS:.0f} s. It may "
            "contain a loop without an end; if it is only slow, set a smaller --batch-size",
            kind="no output in time",
        )
    if isinstance(results[0], Exception):
        raise results[0]
    return results[0]


def _called(scorer: Scorer, given: Tensor, machine: Machine) -> Tensor:
    """Outputs float64 `[n, len(scorer.outputs)]` of a batch."""
    try:
        with torch.autocast(machine.device.type, torch.bfloat16, enabled=machine.autocast):
            values = scorer.call(given)
    except Exception as error:
        reason = last_line(error)
        cause, hint = next(
            ((cause, f". {hint}") for cause, pattern, hint in _HINTS if re.search(pattern, reason)), ("", "")
        )
        text = f"{scorer.name}: fails on images of the shape {list(given.shape)}: {reason}{hint}"
        raise ChestfedError(text, kind="failed on the images", cause=cause) from None
    if not isinstance(values, Tensor):
        text = f"{scorer.name}: gives a {type(values).__name__}; let it return one tensor [n, outputs]"
        raise ChestfedError(text, kind="not a tensor")
    if values.dim() != 2 or len(values) != len(given):
        raise ChestfedError(
            f"{scorer.name}: gives a tensor {list(values.shape)} for {len(given)} images; let it return [n, outputs]",
            kind="another shape",
        )
    if values.shape[1] != len(scorer.outputs):
        raise ChestfedError(
            f"{scorer.name}: gives {values.shape[1]} outputs, but {len(scorer.outputs)} are declared "
            f"({', '.join(scorer.outputs)}); correct --output-names ('-' ignores an output)",
            kind="another number of outputs",
        )
    return values.double()
