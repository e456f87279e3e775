"""A network that is in memory, scored at a hospital: any module, such as `torchvision.models.densenet121()`."""

from pathlib import Path

import torch
from torch import nn

import chestfed
from chestfed.leaves.samples.writing import write_hospitals

HOSPITALS = Path("hospitals")


def make_network(outputs: int) -> nn.Module:
    """Made like torchvision's: features, and a classifier on their mean."""
    torch.manual_seed(1)
    features = nn.Sequential(nn.Conv2d(3, 8, 7, stride=4), nn.BatchNorm2d(8), nn.ReLU())
    return nn.Sequential(features, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, outputs))


def main() -> None:
    if not HOSPITALS.exists():
        write_hospitals(HOSPITALS, size="tiny")
    site = chestfed.load_site("site_configs/synthetic/chexpert.yaml", data=HOSPITALS)
    network = make_network(outputs=3)
    result = chestfed.evaluate(network, site, diseases=["cardiomegaly", "edema", "-"], size=64, resamples=200)
    print(result.summary.metrics.query("metric == 'auc'")[["disease", "value", "low", "high"]])


if __name__ == "__main__":
    main()
