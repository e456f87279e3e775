"""A network of one's own, as docs/evaluation.md and the tests use it: one file outside the package."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import nn

from chestfed.learning.models import ModelOptions, ModelSpec


class TinyOptions(ModelOptions):
    """A transformer over patches."""

    width: int = Field(16, ge=4, description="channels of a token")
    patch: int = Field(16, ge=1, description="side of a patch in pixels")
    dropout: float = Field(0.1, ge=0, lt=1, description="share of activations dropped in training")


class TinyTransformer(nn.Module):
    """Patches, one encoder layer, the mean of the tokens, one linear layer."""

    def __init__(self, outputs: int, width: int = 16, patch: int = 16, dropout: float = 0.1) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.encoder = nn.TransformerEncoderLayer(width, 2, 2 * width, dropout, batch_first=True)
        self.head = nn.Linear(width, outputs)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Logits."""
        tokens = self.patches(images).flatten(2).transpose(1, 2)
        return self.head(self.encoder(tokens).mean(1))


def build(options: TinyOptions, outputs: int) -> nn.Module:
    """The network with these options."""
    return TinyTransformer(outputs, options.width, options.patch, options.dropout)


TINY = ModelSpec("tiny", "Tiny transformer", TinyOptions, build)


def make_tiny(num_classes: int, width: int = 16) -> nn.Module:
    """A plain factory, which knows nothing of chestfed."""
    return TinyTransformer(num_classes, width)
