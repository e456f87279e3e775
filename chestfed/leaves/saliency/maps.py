"""Grad-CAM and occlusion maps of one output, by MONAI, and how much of them random weights show too.

R. R. Selvaraju et al.: Grad-CAM. ICCV 2017. M. D. Zeiler, R. Fergus: Visualizing and understanding convolutional
networks. ECCV 2014. The check: J. Adebayo et al.: Sanity checks for saliency maps. NeurIPS 2018. A map that is alike
for a network whose weights were drawn at random shows the image, not what was learned.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

from chestfed.core.errors import ConfigError
from chestfed.core.randomness import numpy_stream

#: Rows and columns that a layer's map needs to show a place.
_LEAST_CELLS: Final = 4
#: An occluded square has this share of the image's side, and squares overlap by half.
_OCCLUDED: Final = 8


def find_layer(network: nn.Module, images: Tensor) -> str:
    """Name of the last layer whose output `[n, c, h, w]` has at least 4 x 4 cells, else the last with 2 x 2.

    Raises `ConfigError` if there is none, as in a network without convolutions.
    """
    shapes: dict[str, torch.Size] = {}

    def note(name: str) -> Callable[[nn.Module, object, object], None]:
        def keep(module: nn.Module, given: object, output: object) -> None:
            if isinstance(output, Tensor) and output.ndim == 4:
                shapes.pop(name, None)
                shapes[name] = output.shape

        return keep

    hooks = [module.register_forward_hook(note(name)) for name, module in network.named_modules() if name]
    try:
        with torch.no_grad():
            network(images)
    finally:
        for hook in hooks:
            hook.remove()
    for least in (_LEAST_CELLS, 2):
        if names := [name for name, shape in shapes.items() if min(shape[2:]) >= least]:
            return names[-1]
    text = "saliency: no layer of this network has a map of the image, as convolutions have"
    raise ConfigError(text, kind="no map")


def grad_cam(network: nn.Module, image: Tensor, output: int) -> np.ndarray:
    """Grad-CAM of one output for an image `[1, c, h, w]`: float32 `[h, w]`, from 0 up."""
    from monai.visualize import GradCAM

    copied = copy.deepcopy(network).eval()
    for module in copied.modules():
        if hasattr(module, "inplace"):
            module.inplace = False  # type: ignore[assignment]  # it would change what the hook keeps
    with torch.enable_grad(), _quiet():
        camera = GradCAM(copied, find_layer(copied, image), postprocessing=lambda values: values)
        found = camera(image.clone().requires_grad_(), class_idx=output)
    return found[0, 0].detach().cpu().numpy().astype(np.float32)


def occlude(network: nn.Module, image: Tensor, output: int) -> np.ndarray:
    """Fall of one output when a square around each place is covered: float32 `[h, w]`, in logits."""
    from monai.visualize import OcclusionSensitivity

    side = max(2, image.shape[-1] // _OCCLUDED)
    with torch.no_grad(), _quiet():
        whole = float(network(image)[0, output])
        occlusion = OcclusionSensitivity(
            network, mask_size=side, n_batch=32, verbose=False, mode="mean_img", overlap=0.5, activate=False
        )
        covered, _ = occlusion(image)
    return (whole - covered[0, output]).cpu().numpy().astype(np.float32)


METHODS: Final[dict[str, Callable[[nn.Module, Tensor, int], np.ndarray]]] = {
    "Grad-CAM": grad_cam,
    "occlusion": occlude,
}


def randomize(network: nn.Module, seed: int) -> nn.Module:
    """A copy with all weights drawn at random, with the mean and spread of each tensor; batch norms use the image's own
    statistics, for those that were learned do not fit.
    """
    drawn, rng = copy.deepcopy(network).eval(), numpy_stream(seed, "saliency", "random weights")
    with torch.no_grad():
        for parameter in drawn.parameters():
            values = parameter.detach().cpu().numpy()
            parameter.copy_(torch.from_numpy(rng.normal(values.mean(), values.std(), values.shape)))
    for module in drawn.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.track_running_stats, module.running_mean, module.running_var = False, None, None
    return drawn


def compare_maps(first: np.ndarray, second: np.ndarray) -> float | None:
    """Spearman's rank correlation of two maps `[h, w]` by their sizes; None if one of them is flat."""
    from scipy.stats import rankdata

    ranks = [rankdata(np.abs(part).ravel()) for part in (first, second)]
    if any(np.ptp(np.abs(part)) == 0 for part in (first, second)):
        return None
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


@contextmanager
def _quiet() -> Iterator[None]:
    """Without PyTorch's warnings on MONAI's code."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield
