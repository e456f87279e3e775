"""What a network takes: number of channels, range of the gray levels, means and standard deviations."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from chestfed.core.config import StrictModel


class NetworkInput(StrictModel):
    """Each channel is (gray / 255 * (high - low) + low - mean) / std, the same gray in every one."""

    channels: Literal[1, 3] = Field(3, description="1, or the gray image three times")
    range: list[float] = Field([0.0, 1.0], description="[low, high]: what black and white become")
    mean: list[float] | None = Field(None, description="one number per channel, taken away after `range`")
    std: list[float] | None = Field(None, description="one number per channel, divided by after `mean`")

    @model_validator(mode="after")
    def _fits(self) -> NetworkInput:
        if len(self.range) != 2 or not -1e6 <= self.range[0] < self.range[1] <= 1e6:
            raise ValueError(f"range: {self.range} is not [low, high] with low below high")
        if (self.mean is None) != (self.std is None):
            raise ValueError("mean and std go together: give both, or neither")
        for name, values in (("mean", self.mean), ("std", self.std)):
            if values is not None and (len(values) != self.channels or not all(abs(v) <= 1e6 for v in values)):
                raise ValueError(f"{name}: {values} is not one number for each of {self.channels} channels")
        if any(value <= 0 for value in self.std or ()):
            raise ValueError(f"std: {self.std} is not above 0")
        return self

    def coefficients(self) -> list[tuple[float, float]]:
        """Per channel what a gray level of 0 to 255 is multiplied by, and what is added then."""
        low, high = self.range
        means, stds = self.mean or [0.0] * self.channels, self.std or [1.0] * self.channels
        return [((high - low) / (255 * std), (low - mean) / std) for mean, std in zip(means, stds, strict=True)]

    def __str__(self) -> str:
        """For captions."""
        numbers = f"{self.channels} channel{'s' if self.channels > 1 else ''}, {self.range[0]:g} to {self.range[1]:g}"
        if self == IMAGENET:
            return f"{numbers}, ImageNet's mean and deviation"
        if self.mean is None or self.std is None:
            return f"{numbers}, no mean or deviation taken"
        mean, std = (", ".join(f"{value:g}" for value in values) for values in (self.mean, self.std))
        return f"{numbers}, mean {mean}, deviation {std}"


#: ImageNet's channel means and standard deviations, so that weights trained on ImageNet fit.
IMAGENET = NetworkInput(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])
