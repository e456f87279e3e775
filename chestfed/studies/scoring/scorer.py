"""A model ready to score images, and what the user says of a model that does not describe itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor, nn

from chestfed.core.config import StrictModel
from chestfed.core.errors import ConfigError
from chestfed.core.plugins import Choice
from chestfed.core.provenance import Origin
from chestfed.data.images.batches import IMAGENET, NetworkInput
from chestfed.data.images.preprocess import Preprocess
from chestfed.learning.models import MODELS, ModelOptions
from chestfed.studies.experiment.device import Machine
from chestfed.studies.scoring.output_names import IGNORED, name_outputs

#: Kind of a model's outputs; of `scores` only the order means something.
Output = Literal["logits", "probabilities", "scores"]


class ModelDescription(StrictModel):
    """Description of a model beside its file: the YAML of `--model-config`."""

    model: Annotated[ModelOptions | None, Choice(MODELS, optional=True)] = Field(
        None, description="the network, for a file of weights alone; as in a pipeline"
    )
    diseases: list[str] | None = Field(
        None, description="one name per output, in their order; '-', and whatever is not a disease, is ignored"
    )
    preprocess: Preprocess | None = Field(None, description="how an image becomes the network's square")
    input: NetworkInput | None = Field(None, description="channels and normalization; default: 3, ImageNet's")
    output: Output = Field("logits", description="logits are turned into probabilities; scores are an order only")


@dataclass(frozen=True)
class Declared:
    """Description of the model by the user; None for what is left to the file.

    `network` names the network (`package.module:Name`) in place of the file, whose entry is ignored.
    """

    k: int | None = None
    diseases: tuple[str, ...] | None = None
    config: Path | None = None
    size: int | None = None
    output: Output | None = None
    network: str | None = None


@dataclass(frozen=True)
class Scorer:
    """A model ready to score."""

    name: str
    kind: str
    digest: str
    outputs: tuple[str, ...]  #: what each of its outputs means, in their order; `-` is ignored
    preprocess: Preprocess
    output: Output
    call: Callable[[Tensor], Tensor]  #: images float32 `[n, input.channels, size, size]` to outputs `[n, len(outputs)]`
    input: NetworkInput = IMAGENET  #: channels and normalization
    batch: int | None = None  #: the only batch size that a program accepts; None for any
    origin: Origin | None = None  #: what it was trained on; None if the file does not say
    notes: tuple[str, ...] = ()  #: what a reader has to know of how it was opened
    network: nn.Module | None = None  #: what `call` runs, if it is a network of torch and not a program
    file: Path | None = None  #: that it was opened from

    @property
    def diseases(self) -> tuple[str, ...]:
        """The outputs that are not ignored."""
        return tuple(name for name in self.outputs if name != IGNORED)


@dataclass(frozen=True)
class ModelFile:
    """A file from elsewhere while it is opened: what results call it, and what the user says of it."""

    path: Path
    name: str
    digest: str
    declared: Declared
    description: ModelDescription
    machine: Machine

    @property
    def input(self) -> NetworkInput:
        """Channels and normalization."""
        return self.description.input or IMAGENET

    def outputs(self, stored_names: Sequence[str] | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """`name_outputs` of what is declared, or else stored."""
        return name_outputs(self.path, stored_names, self.declared.diseases or self.description.diseases)

    def scorer(
        self,
        kind: str,
        outputs: tuple[str, ...],
        call: Callable[[Tensor], Tensor],
        notes: tuple[str, ...],
        fixed: tuple[int | None, int | None] = (None, None),
    ) -> Scorer:
        """The model, ready; `fixed` are the batch size and the side of the images that it accepts alone.

        Raises `ConfigError` if another size is declared.
        """
        batch, size = fixed
        preprocess = self.description.preprocess or Preprocess()
        declared_size = self.declared.size or (preprocess.size if "size" in preprocess.model_fields_set else None)
        if None not in (size, declared_size) and declared_size != size:
            raise ConfigError(
                f"{self.path}: the program takes images of {size} pixels, not {declared_size}; leave the size out",
                kind="another image size",
            )
        preprocess = preprocess.model_copy(update={"size": declared_size or size or preprocess.size})
        output = self.declared.output or self.description.output
        about = (self.name, kind, self.digest, outputs, preprocess, output, call, self.input, batch)
        return Scorer(*about, notes=notes, file=self.path)


def last_line(error: Exception) -> str:
    """The last line of an error's text, which says what went wrong at the end of a program's trace."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:300]
