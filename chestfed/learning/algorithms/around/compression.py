"""Compressed updates of an averaging algorithm: the largest changes with error feedback, or 8 bits per number.

Top-k with error feedback: Stich, Cordonnier, Jaggi, "Sparsified SGD with Memory", NeurIPS 2018, Algorithm 1: a client
sends the k largest entries of its change plus what it has not sent before, and keeps the rest. Quantization: Alistarh,
Grubic, Li, Tomioka, Vojnovic, "QSGD", NeurIPS 2017, section 3.1: with the largest magnitude as the scale and stochastic
rounding to 127 levels and a sign, so that the mean is right. The server sees the decoded updates only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from chestfed.core.config import StrictModel
from chestfed.learning.algorithms.variables import (
    Algorithm,
    Gradients,
    Personal,
    Point,
    from_named_tensors,
    named_tensors,
)

LEVELS = 127


class Compression(StrictModel):
    """How a client's update is compressed."""

    kind: Literal["top_k", "8_bits"] = Field(description="top_k: the largest changes; 8_bits: stochastic rounding")
    share: float = Field(0.1, gt=0, le=1, description="share of the numbers that top_k sends")

    @model_validator(mode="after")
    def _fits(self) -> Compression:
        if self.kind != "top_k" and "share" in self.model_fields_set:
            raise ValueError("share: only kind: top_k leaves numbers out; remove share")
        return self

    def around(self, rule: Any) -> Compressed:
        """The rule with compressed updates."""
        kind = CompressedPersonal if isinstance(rule, Personal) else Compressed
        return kind(rule, self.share if self.kind == "top_k" else 0.0)

    def size(self, numbers: int) -> int:
        """Bytes of a tensor of so many float32 numbers."""
        return 8 * math.ceil(self.share * numbers) if self.kind == "top_k" else numbers + 4


@dataclass(frozen=True)
class Encoded:
    """An update with the numbers that are sent in place of each tensor, and what says where or how large they are.

    `places` are numbers of entries (top_k, int32), or the scale `[1]` (8_bits, where values are int8). A tensor that
    the server did not send is as it is, and its `places` are empty.
    """

    values: Any
    places: Any

    @property
    def primal(self) -> Tensor:
        """The change of the weights as far as it is sent: for its size."""
        values, places = self.values.primal, self.places.primal
        return values.to(places) * (places / LEVELS) if values.dtype == torch.int8 else values


@dataclass(frozen=True)
class Client:
    """The algorithm's own state, and what was not sent yet: a record as the server's message."""

    client: Any
    error: Any


@dataclass(frozen=True)
class Compressed(Algorithm[Any, Any, Client]):
    """`rule` with compressed updates: `share` of the numbers, or 0 for 8 bits of each."""

    rule: Any
    share: float

    @property
    def window(self) -> int:  # type: ignore[override]
        """I."""
        window: int = self.rule.window
        return window

    def start_stage(self, point: Point) -> Any:
        return self.rule.start_stage(point)

    def start_client(self, point: Point) -> Client:
        """Start with nothing left over."""
        message = self.rule.message(self.rule.start_stage(point))
        zeros = {key: part.new_zeros(part.shape if self.share else 0) for key, part in named_tensors(message).items()}
        return Client(self.rule.start_client(point), from_named_tensors(message, zeros))

    def message(self, server: Any) -> Any:
        return self.rule.message(server)

    def local_round(self, message: Any, client: Client, gradients: Gradients) -> tuple[Encoded, Client]:
        """The algorithm's own round, and its update encoded; what is not sent is kept."""
        update, state = self.rule.local_round(message, client.client, gradients)
        sent, errors = named_tensors(message), named_tensors(client.error)
        values, places, draw = dict[str, Tensor](), dict[str, Tensor](), gradients.stream("compression")
        for name, part in named_tensors(update).items():
            if name not in sent or sent[name].shape != part.shape or not part.numel():
                values[name], places[name] = part, part.new_empty(0)
                continue
            change = (part - sent[name]).flatten()
            if self.share:
                change = change + errors[name].flatten()
                places[name] = change.abs().topk(math.ceil(self.share * len(change))).indices.int()
                values[name] = change[places[name].long()]
                left = change.index_fill(0, places[name].long(), 0.0)
                errors[name] = left.view(part.shape)
            else:
                values[name], places[name] = _round(change, draw)
        encoded = Encoded(from_named_tensors(update, values), from_named_tensors(update, places))
        return encoded, Client(state, from_named_tensors(message, errors))

    def decode(self, message: Any, update: Encoded) -> Any:
        """The update as the algorithm's server takes it."""
        sent, places = named_tensors(message), named_tensors(update.places)
        decoded = {}
        for name, values in named_tensors(update.values).items():
            if not places[name].numel():
                decoded[name] = values
                continue
            start = sent[name]
            change = torch.zeros_like(start).flatten()
            if self.share:
                change[places[name].long()] = values
            else:
                change = values.to(start) * (places[name] / LEVELS)
            decoded[name] = start + change.view(start.shape)
        return from_named_tensors(update.values, decoded)

    def server_round(self, server: Any, updates: Sequence[Any], weights: Sequence[float]) -> Any:
        """The algorithm's own, on decoded updates."""
        return self.rule.server_round(server, updates, weights)

    def current(self, server: Any) -> Point:
        point: Point = self.rule.current(server)
        return point


class CompressedPersonal(Compressed):
    """The same around a personal algorithm."""

    def local_point(self, point: Point, client: Client) -> Point:
        """The algorithm's own."""
        located: Point = self.rule.local_point(point, client.client)
        return located


def _round(change: Tensor, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """Stochastic rounding to int8, `[n]`, and the scale `[1]`."""
    scale = change.abs().amax().reshape(1) if len(change) else change.new_ones(1)
    levels = change * (LEVELS / scale.clamp(min=torch.finfo(change.dtype).tiny))
    up = torch.rand(len(change), generator=draw).to(change)
    return torch.floor(levels + up).clamp(-LEVELS, LEVELS).to(torch.int8), scale
