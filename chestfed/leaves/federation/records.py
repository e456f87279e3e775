"""Values that server and hospital exchange besides the requests of stage 2: numbers, by name."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Literal, TypeVar

import numpy as np
import torch
from pydantic import Field, StringConstraints, TypeAdapter, ValidationError
from torch import Tensor

from chestfed.core.config import StrictModel
from chestfed.core.provenance import Origin
from chestfed.learning.engines.messages.wire import LARGEST_COUNT, WireError
from chestfed.leaves.federation.parcels import shown_in_line
from chestfed.results.tables.frames import Row
from chestfed.studies.training.client_summary import BINS

_ROW: Final = TypeAdapter(Row)
#: Characters of a reason or warning.
_LONGEST: Final = 1000


Number = Annotated[int, Field(ge=0, le=LARGEST_COUNT)]
Digits = Annotated[str, StringConstraints(pattern="^[0-9a-f]{1,64}$")]


class Hardware(StrictModel):
    """Device and threads that a hospital computes with."""

    device: Annotated[str, StringConstraints(pattern="^[a-z]{1,16}$")]
    threads: Number


class DiseaseCounts(StrictModel):
    """Label counts of one disease in a `Card`."""

    positives: Number
    negatives: Number
    missing: Number
    prevalence: Annotated[float, Field(ge=0, le=1)] | None


class Card(StrictModel):
    """Entry of a hospital, or of test images, in `sites.json`; see `chestfed.studies.training.client_summary`."""

    name: str
    role: str
    data: Origin
    images: Number
    unreadable: Number
    rows: Number
    diseases: dict[str, DiseaseCounts]
    gray_levels: Annotated[list[Number], Field(min_length=BINS, max_length=BINS)]
    gray_level_images: Number
    shown: Annotated[list[Any], Field(max_length=0)]


class Opened(StrictModel):
    """Report of a hospital on its images; `key`: fingerprint of the key of its keyed names.

    The second card is that of the test images.
    """

    rows: Annotated[int, Field(ge=1, le=LARGEST_COUNT)]
    origin: Origin
    digest: Digits
    key: Digits
    unreadable: Annotated[int, Field(ge=0, le=10_000_000)]
    cards: list[Card]


class OpenedTest(StrictModel):
    """Report of a hospital on test images: keyed names, or, if scores stay, the numbers of images and patients."""

    key: Digits
    origin: Origin
    digest: Digits
    is_test_set: bool
    split: Literal["train split", "valid split", "test split", "held-out patients"]
    images: tuple[Digits, ...] = ()
    patients: tuple[Digits, ...] = ()
    kept: tuple[Number, Number] | None = None


class StageOne(StrictModel):
    """Progress of stage 1: its finished steps, and the last mean loss."""

    step: Number
    loss: float


class Losses(StrictModel):
    """Mean losses of stage 1."""

    losses: list[float]


Model = TypeVar("Model", bound=StrictModel)


def read_values(kind: type[Model], values: dict[str, Any], sender: str) -> Model:
    """The plain values of an answer, checked.

    Raises
    ------
    WireError
        If they are anything else; the text names keys and quotes nothing.
    """
    fields = {key: value for key, value in values.items() if key not in ("nonce", "kind", "log")}
    try:
        return kind.model_validate_json(json.dumps(fields))
    except ValidationError as error:
        wrong = ", ".join(sorted({ascii(issue["loc"][0])[:40] if issue["loc"] else "all" for issue in error.errors()}))
        text = f"{sender} sent values that cannot be used: {wrong}"
        raise WireError(text, kind="impossible values", sender=sender) from None


@dataclass(frozen=True)
class Counts:
    """Shares of a hospital: of positives per disease, -1 without labels, and of labeled images, float64 `[J]`."""

    ratios: Tensor
    labeled: Tensor

    @classmethod
    def like(cls, diseases: int) -> Counts:
        return cls(_empty(torch.float64, diseases), _empty(torch.float64, diseases))


@dataclass(frozen=True)
class TestLabels:
    """Labels of the test images, float32 `[n, J]`, -1 for missing, and numbers of their patients, int64 `[n]`."""

    __test__ = False  # not a test class, whatever pytest thinks of the name

    labels: Tensor
    numbers: Tensor

    @classmethod
    def like(cls, images: int, diseases: int) -> TestLabels:
        return cls(_empty(torch.float32, images, diseases), _empty(torch.int64, images))


@dataclass(frozen=True)
class Network:
    """Parameters float32 `[d]` and buffers float32 `[b]`."""

    parameters: Tensor
    buffers: Tensor

    @classmethod
    def like(cls, parameters: int, buffers: int) -> Network:
        return cls(_empty(torch.float32, parameters), _empty(torch.float32, buffers))


@dataclass(frozen=True)
class Beginning:
    """Start of stage 2: the counts of the K hospitals, float64 `[K, J]`, and the network after stage 1."""

    ratios: Tensor
    labeled: Tensor
    parameters: Tensor
    buffers: Tensor

    @classmethod
    def like(cls, k: int, diseases: int, parameters: int, buffers: int) -> Beginning:
        network = _empty(torch.float32, parameters), _empty(torch.float32, buffers)
        return cls(_empty(torch.float64, k, diseases), _empty(torch.float64, k, diseases), *network)


@dataclass(frozen=True)
class Scores:
    """Probabilities of the test images, float64 `[n, J]`, and the buffers float32 `[b]` that they are of.

    Where the probabilities stay n is 0, and a row of AUCs is beside them.
    """

    scores: Tensor
    buffers: Tensor

    @classmethod
    def like(cls, images: int, diseases: int, buffers: int) -> Scores:
        return cls(_empty(torch.float64, images, diseases), _empty(torch.float32, buffers))


def plain_row(row: Row) -> Any:
    """AUCs and intervals as plain data."""
    return _ROW.dump_python(row, mode="json")


def read_row(plain: Any, diseases: Sequence[str], sender: str) -> Row:
    """The inverse of `plain_row`, checked; a reason is one line, and no formula to a spreadsheet program.

    Raises
    ------
    WireError
        If it is not a row, or of other diseases, or a number is out of its range.
    """
    try:
        row = _ROW.validate_python(plain, strict=False)
    except ValidationError:
        raise WireError(
            f"{sender} sent a row of AUCs that cannot be read", kind="impossible AUCs", sender=sender
        ) from None
    if [auc.disease for auc in row.aucs] != [*diseases, "mean"] or not row.scores_stay:
        raise WireError(f"{sender} sent AUCs of other diseases", kind="impossible AUCs", sender=sender)
    for auc in row.aucs:
        values = [value for value in (auc.value, *(auc.interval or ())) if value is not None]
        counts = [count for count in (auc.positives, auc.negatives, auc.missing) if count is not None]
        ordered = auc.interval is None or auc.interval.low <= auc.interval.high
        if not all(0 <= value <= 1 for value in values) or min(counts, default=0) < 0 or not ordered:
            text = f"{sender} sent an AUC of {auc.disease} that is out of its range"
            raise WireError(text, kind="impossible AUCs", sender=sender)
        if len(auc.reason) > _LONGEST:
            raise WireError(f"{sender} sent a text of more than {_LONGEST} characters")
    return replace(row, aucs=tuple(replace(auc, reason=_quote(shown_in_line(auc.reason))) for auc in row.aucs))


def _quote(text: str) -> str:
    """As code books quote the cells of a hospital."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def without_nan(values: np.ndarray) -> Tensor:
    """-1 in place of NaN, which is not sent."""
    return torch.from_numpy(np.where(np.isnan(values), -1, values).astype(values.dtype))


def with_nan(values: Tensor) -> np.ndarray:
    """The inverse of `without_nan`."""
    return torch.where(values < 0, torch.nan, values).numpy()


def _empty(dtype: torch.dtype, *shape: int) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")
