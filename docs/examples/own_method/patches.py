"""A small vision transformer: 16 x 16 patches, two layers."""

from pydantic import Field
from torch import nn

from chestfed.plugins import ModelOptions, ModelSpec


class PatchOptions(ModelOptions):
    width: int = Field(32, ge=8, multiple_of=4, description="length of a token")
    patch: int = Field(16, ge=1, description="side of a patch in pixels; divides preprocess.size")


class Patches(nn.Module):
    def __init__(self, outputs: int, width: int, patch: int) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, width, patch, stride=patch)
        layer = nn.TransformerEncoderLayer(width, nhead=4, dim_feedforward=2 * width, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.classifier = nn.Linear(width, outputs)

    def forward(self, images):  # float32 [n, 3, size, size] -> logits [n, outputs]
        tokens = self.embed(images).flatten(2).transpose(1, 2)
        return self.classifier(self.layers(tokens).mean(dim=1))


PATCHES = ModelSpec(
    name="patches",
    title="small transformer",
    options=PatchOptions,
    build=lambda options, outputs: Patches(outputs, options.width, options.patch),
)
