"""A small network on 16x16 gray pixels, trained as a whole, with one of three scalings of its input: do they decide
whether AUC maximization pays? `benchmarks.rare_findings` compares losses with each (docs/rare_findings.md).

    model: {name: "benchmarks.pixels:build_network", options: {scaling: pixel}}

`python -m benchmarks.pixels FOLDER` computes `MEAN_IMAGE` from the images of a folder.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

SIDE: Final = 16
#: Mean and deviation of ImageNet's three channels, over them: what the suite has normalized gray levels with.
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
#: Mean over Guangzhou's 5,856 images, resized to 16x16, in percent of white.
MEAN_IMAGE: Final = """
25 33 36 38 42 52 61 65 65 60 51 42 38 35 31 24
26 36 41 46 50 55 60 63 63 59 55 50 46 41 34 26
26 36 45 52 55 55 58 63 64 58 55 56 52 44 35 26
23 34 47 56 54 49 55 65 65 55 50 55 56 46 33 24
20 32 48 56 50 45 53 66 67 54 46 52 56 47 31 21
17 30 49 54 45 44 54 67 69 58 47 48 55 48 29 17
14 29 50 50 42 44 56 69 71 63 51 47 52 49 28 15
13 30 50 46 40 45 59 71 72 66 56 47 49 49 28 12
11 30 49 43 40 48 61 72 74 68 61 49 47 48 28 11
 9 30 47 41 40 48 61 73 74 69 64 52 45 46 28 10
 9 30 44 39 40 47 60 73 75 69 65 55 44 44 28  9
 9 31 42 40 43 49 60 72 75 68 64 55 43 42 28  9
 9 31 44 48 54 59 65 74 75 68 64 57 46 41 28  9
 9 32 50 59 65 68 70 75 76 70 68 63 54 45 29  9
10 34 56 66 71 73 74 77 77 72 70 67 61 51 31  9
11 36 59 69 73 75 75 77 77 73 71 68 64 56 33 10
"""


class Pixels(nn.Module):
    """One hidden layer of rectified units: float32 `[n, 3, height, width]` to logits `[n, num_classes]`.

    `scaling` is what is done to the gray levels: `imagenet` leaves them as the suite normalizes them, `image` gives
    each image mean 0 and deviation 1, `pixel` subtracts the mean image.
    """

    mean_image: Tensor

    def __init__(self, num_classes: int, scaling: Literal["imagenet", "image", "pixel"], units: int = 32) -> None:
        super().__init__()
        self.scaling = scaling
        self.register_buffer("mean_image", read_mean_image(), persistent=False)
        self.hidden = nn.Linear(SIDE * SIDE, units)
        self.classifier = nn.Linear(units, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of images."""
        gray = functional.adaptive_avg_pool2d(x.mean(1, keepdim=True), SIDE).flatten(1)
        if self.scaling == "image":
            gray = (gray - gray.mean(1, keepdim=True)) / (gray.std(1, keepdim=True) + 1e-6)
        elif self.scaling == "pixel":
            gray = gray - self.mean_image
        logits: Tensor = self.classifier(torch.relu(self.hidden(gray)))
        return logits


def build_network(num_classes: int, scaling: Literal["imagenet", "image", "pixel"] = "imagenet") -> nn.Module:
    """The network with one of the scalings, its weights drawn by torch's rule."""
    return Pixels(num_classes, scaling)


def read_mean_image() -> Tensor:
    """The mean image, normalized as the suite normalizes images: float32 `[SIDE * SIDE]`."""
    gray = torch.tensor([[int(word) for word in line.split()] for line in MEAN_IMAGE.split("\n") if line]) / 100
    channels = [(gray.flatten() - mean) / std for mean, std in zip(_MEAN, _STD, strict=True)]
    return torch.stack(channels).mean(0).float()


def main() -> None:
    """Print the mean image of a folder's images."""
    import numpy as np
    from PIL import Image

    files = sorted(path for path in Path(sys.argv[1]).rglob("*") if path.suffix in (".jpeg", ".jpg", ".png"))
    total = np.zeros((SIDE, SIDE))
    for path in files:
        with Image.open(path) as image:
            gray = image.convert("L").resize((SIDE, SIDE), Image.Resampling.BOX)
        total += np.asarray(gray, float) / 255
    for row in np.rint(100 * total / len(files)).astype(int):
        print(*(f"{value:2d}" for value in row))


if __name__ == "__main__":
    main()
