"""Compressed updates: the largest changes with error feedback, or 8 bits per number.

Top-k with error feedback: Stich, Cordonnier, Jaggi, "Sparsified SGD with Memory", NeurIPS 2018, Algorithm 1: a client
sends the k largest entries of its change plus what it has not sent before, and keeps the rest. Quantization: Alistarh,
Grubic, Li, Tomioka, Vojnovic, "QSGD", NeurIPS 2017, section 3.1: with the largest magnitude as the scale and stochastic
rounding to 127 levels and a sign, so that the mean is right. The server sees the decoded updates only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from chestfed.core.config import StrictModel
from chestfed.learning.abilities import Can, Demand
from chestfed.learning.algorithms.variables import Record, Stateless, from_named_tensors, named_tensors
from chestfed.learning.exchange.step import Arrived, Draw, Place, Step, StepSpec

LEVELS = 127


class Compression(StrictModel):
    """How a client's update is compressed."""

    kind: Literal["top_k", "8_bits"] = Field(description="top_k: the largest changes; 8_bits: stochastic rounding")
    share: float = Field(0.1, gt=0, le=1, description="share of the numbers that top_k sends")

    @model_validator(mode="after")
    def _fits(self) -> Compression:
        if self.kind != "top_k" and self.share != type(self).model_fields["share"].default:
            raise ValueError("share: only kind: top_k leaves numbers out; remove share")
        return self


@dataclass(frozen=True)
class EncodedUpdate:
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
class Compressed(Step):
    """`share` of the numbers, or 0 for 8 bits of each; a client keeps what it did not send."""

    share: float
    key: ClassVar[str] = "compression"
    place: ClassVar[Place] = "code"

    @property
    def demand(self) -> Demand:
        needs = frozenset({Can.ROBUST, Can.EACH, Can.ONE_MESSAGE})
        return Demand(self.key, needs, {Can.NUMBERS: "clients send encoded numbers"})

    def describe(self) -> str:
        return f"compression: {f'the largest {self.share:.0%}' if self.share else '8 bits'}"

    def start_client(self, message: Any) -> Record:
        """Nothing is left over yet: a record as the server's message."""
        if not self.share:
            return Stateless()
        zeros = {name: torch.zeros_like(part) for name, part in named_tensors(message).items()}
        left: Record = from_named_tensors(message, zeros)
        return left

    def at_client(self, update: Any, message: Any, kept: Any, draw: Draw) -> tuple[EncodedUpdate, Any]:
        sent, errors, generator = named_tensors(message), named_tensors(kept), draw()
        values, places = dict[str, Tensor](), dict[str, Tensor]()
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
                values[name], places[name] = _round(change, generator)
        encoded = EncodedUpdate(from_named_tensors(update, values), from_named_tensors(update, places))
        return encoded, from_named_tensors(kept, errors)

    def at_server(self, arrived: Arrived) -> Arrived:
        parts = [
            replace(part, update=self.decode(arrived.before.update, part.update))
            if isinstance(part.update, EncodedUpdate)
            else part
            for part in arrived.parts
        ]
        return replace(arrived, parts=parts)

    def decode(self, message: Any, update: EncodedUpdate) -> Any:
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


def _round(change: Tensor, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """Stochastic rounding to int8, `[n]`, and the scale `[1]`."""
    scale = change.abs().amax().reshape(1) if len(change) else change.new_ones(1)
    levels = change * (LEVELS / scale.clamp(min=torch.finfo(change.dtype).tiny))
    up = torch.rand(len(change), generator=draw).to(change)
    return torch.floor(levels + up).clamp(-LEVELS, LEVELS).to(torch.int8), scale


def build(values: Mapping[str, Any], seed: int = 0) -> Compressed | None:
    chosen = values["compression"]
    return None if chosen is None else Compressed(chosen.share if chosen.kind == "top_k" else 0.0)


COMPRESSION = StepSpec(
    "compression",
    "compressed updates of the clients",
    {"compression": (Compression | None, Field(None, description="compression of what clients send; null: none"))},
    build,
)
