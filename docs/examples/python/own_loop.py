"""A training loop of your own on the images of a hospital."""

from pathlib import Path

import torch
from torch.utils.data import DataLoader

import chestfed
from chestfed.learning.models import build_model, network_options
from chestfed.leaves.samples.writing import write_hospitals

HOSPITALS = Path("hospitals")


def main() -> None:
    if not HOSPITALS.exists():
        write_hospitals(HOSPITALS, size="tiny")
    site = chestfed.load_site("site_configs/synthetic/chexpert.yaml", data=HOSPITALS)
    images = site.dataset("train", size=64, augment=True)
    network = build_model(network_options("small"), outputs=len(site.diseases), seed=1)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    loss_of = torch.nn.BCEWithLogitsLoss(reduction="none")
    network.train()
    for _ in range(2):
        for x, y in DataLoader(images, batch_size=16, shuffle=True, collate_fn=stack):
            known = ~y.isnan()
            loss = loss_of(network(x), y.nan_to_num())[known].mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    result = chestfed.evaluate(network, site, diseases=site.diseases, size=64, resamples=200)
    print(result.auc)


def stack(rows: list) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.stack([row[0] for row in rows]), torch.stack([row[1] for row in rows])


if __name__ == "__main__":
    main()
