"""The written hospitals go through the readers and the decoder of real data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from chestfed.core.bundled import bundled
from chestfed.data.images.decode import decode
from chestfed.data.sites import load_site_config, open_site

NAMES = ("chexpert", "chestxray8", "padchest", "mimic_cxr", "vindr")


@pytest.mark.parametrize("name", NAMES)
def test_every_image_decodes_with_air_dark(tiny_hospitals: Path, name: str) -> None:
    table = open_site(load_site_config(bundled("site_configs") / "synthetic" / f"{name}.yaml"), tiny_hospitals)
    assert table.synthetic
    unnamed = name == "mimic_cxr"  # an image without ViewPosition
    assert (table.frame["split"] == "train").sum() == 24 - unnamed
    darker = []
    for image, stored in zip(table.frame["image"], table.stored(), strict=True):
        gray = decode(table.root / image, stored)
        height, width = gray.shape
        # Beside the neck there is air, amid the lower edge the abdomen.
        air, abdomen = gray[: height // 12, : width // 8], gray[-height // 6 :, 2 * width // 5 : 3 * width // 5]
        darker.append(np.median(air) < np.median(abdomen) - 30)
    assert np.mean(darker) > 0.97


@pytest.mark.parametrize("name", NAMES[1:])
def test_every_hospital_has_test_patients(tiny_hospitals: Path, name: str) -> None:
    table = open_site(load_site_config(bundled("site_configs") / "synthetic" / f"{name}.yaml"), tiny_hospitals)
    train, test = (table.select(split=split) for split in ("train", "test"))
    assert len(test.frame) >= 20
    assert not set(train.frame["patient"]) & set(test.frame["patient"])
    labels = [disease for disease in table.diseases if (train.frame[disease] == 1).any()]
    assert all((test.frame[disease] == 1).sum() >= 2 for disease in labels)
