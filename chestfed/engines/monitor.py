"""The server's look at a few auxiliary images of each class: the ratios of the Ratio Loss."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from chestfed.models import FlatModule
from chestfed.objectives.ratio_loss import class_ratios


class ClassMonitor:
    """Estimates how scarce each class is for a model, from the gradients at the classifier's weights.

    Parameters
    ----------
    images, labels
        Auxiliary images `[n, 3, h, w]` and their labels `[n, J]` in {0, 1, NaN}, on the network's device.
    """

    def __init__(self, network: FlatModule, images: Tensor, labels: Tensor, *, autocast: bool = False) -> None:
        self._network = network
        self._images, self._labels = images, labels
        self._autocast = autocast
        self._classifier = [part for part in network.module.modules() if isinstance(part, nn.Linear)][-1]

    def __call__(self, primal: Tensor, buffers: Tensor) -> Tensor:
        """The ratios `[2J]` of the network with these parameters and running statistics."""
        self._network.bind(primal)
        self._network.load_buffers(buffers)
        self._network.module.eval()
        seen: list[Tensor] = []
        hook = self._classifier.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].flatten(1)))
        try:
            with (
                torch.no_grad(),
                torch.autocast(self._images.device.type, torch.bfloat16, enabled=self._autocast),
            ):
                logits = self._network.module(self._images)
        finally:
            hook.remove()
        return class_ratios(logits.float(), seen[0].float(), self._labels).to(primal.dtype)
