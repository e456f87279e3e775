"""Saliency: maps against sums that are written out, the check by random weights, and what is written of patients."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from chestfed.core.errors import ConfigError
from chestfed.core.provenance import Origin
from chestfed.learning.models import build_model, network_options
from chestfed.leaves.saliency.maps import compare_maps, find_layer, grad_cam, occlude, randomize
from chestfed.leaves.saliency.misjudged import Example, Misjudged, _find_rows, draw_disease, judge, write
from chestfed.results.evaluation.labeled import Scored
from tests.cases import assert_refused
from tests.command_line import call
from tests.studies.scoring.test_evaluate import write_chestfed_model


class Blob(nn.Module):
    """Its first output is the mean of the upper left quarter, its second that of the whole image."""

    def __init__(self) -> None:
        super().__init__()
        self.look = nn.Conv2d(3, 2, 1, bias=False)
        self.last = nn.Identity()
        with torch.no_grad():
            self.look.weight.copy_(torch.tensor([[1.0, 0, 0], [0, 1.0, 0]])[..., None, None])

    def forward(self, images: Tensor) -> Tensor:
        found = self.last(self.look(images))
        half = images.shape[-1] // 2
        return torch.stack([found[:, 0, :half, :half].mean((1, 2)), found[:, 1].mean((1, 2))], dim=1)


def test_occlusion_is_the_fall_of_the_output() -> None:
    image = torch.zeros(1, 3, 32, 32)
    image[0, 0, 4:8, 4:8] = 8.0  # all that the first output sees
    found = occlude(Blob(), image, 0)
    assert found.shape == (32, 32)
    assert found[5, 5] > 0.05
    assert np.abs(found[20:, 20:]).max() < found[5, 5] / 3
    assert np.abs(found[24:, 24:]).max() < 0.02


def test_grad_cam_is_the_weighted_sum() -> None:
    torch.manual_seed(1)
    network, image = Blob(), torch.rand(1, 3, 16, 16)
    features = network.look(image).detach().requires_grad_()
    features[0, 1].mean().backward()
    weights = features.grad.mean((2, 3), keepdim=True)  # type: ignore[union-attr]
    expected = torch.relu((weights * features).sum(1))[0].detach().numpy()
    np.testing.assert_allclose(grad_cam(network, image, 1), expected, atol=1e-7)


def test_maps_change_with_the_weights_of_a_network() -> None:
    network = build_model(network_options("small", blocks=[1, 2], norm="batch"), 2, seed=3).eval()
    image = torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(2))
    drawn = randomize(network, 1)
    before = [parameter.clone() for parameter in network.parameters()]
    same = compare_maps(grad_cam(network, image, 0), grad_cam(network, image, 0))
    other = compare_maps(grad_cam(network, image, 0), grad_cam(drawn, image, 0))
    assert same == pytest.approx(1)
    assert other is None or other < 0.99
    assert all(torch.equal(a, b) for a, b in zip(before, network.parameters(), strict=True))
    assert not any(
        torch.equal(a, b) for a, b in zip(network.parameters(), drawn.parameters(), strict=True) if a.std() > 0
    )


def test_map_of_the_image_is_alike_for_any_weights() -> None:
    image = np.random.default_rng(1).random((8, 8))
    assert compare_maps(image, 3 * image + 1) == pytest.approx(1)
    assert compare_maps(image, np.ones((8, 8))) is None


def test_network_without_maps_is_refused() -> None:
    with assert_refused(ConfigError, "no map"):
        find_layer(nn.Sequential(nn.Flatten(), nn.Linear(48, 2)), torch.rand(1, 3, 4, 4))


def test_command_prints_the_check_and_writes_phantoms(
    tiny_hospitals: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from chestfed.app.commands.progress import Bars

    reported: list[tuple[int, int]] = []
    monkeypatch.setattr(Bars, "progressed", lambda self, name, done, total, **_: reported.append((done, total)))
    write_chestfed_model(tmp_path / "model.safetensors")
    words = ("saliency", tmp_path / "model.safetensors", "--site", "synthetic/chexpert", "--data", tiny_hospitals)
    called = call(*words, "--images", 1, "--cache", "cache", "--json", folder=tmp_path)
    assert called.code == 0, called.err
    result = json.loads(called.out)["result"]
    assert set(result["methods"]) == {"Grad-CAM", "occlusion"}
    assert result["images"] > 2
    assert reported == [(done, result["images"]) for done in range(1, result["images"] + 1)]
    assert "saliency.csv" in result["files"]
    assert any(name.endswith(".png") for name in result["files"])
    for method in result["methods"].values():
        assert method["likeness"] is None or -1 <= method["likeness"] <= 1


def test_images_of_patients_need_pictures(
    tiny_hospitals: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from chestfed.data.sites import open_site

    write_chestfed_model(tmp_path / "model.safetensors")
    monkeypatch.setattr("chestfed.data.sites.open_site", lambda *given: replace(open_site(*given), phantoms=False))
    words = ("saliency", tmp_path / "model.safetensors", "--site", "synthetic/chexpert", "--data", tiny_hospitals)
    called = call(*words, "--images", 1, "--cache", "cache", "--out", "out", folder=tmp_path)
    assert called.code == 0, called.err
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["saliency.csv"]
    text = (tmp_path / "out" / "saliency.csv").read_text()
    assert "patient" not in text


def test_unreadable_images_are_skipped(tiny_hospitals: Path, tmp_path: Path) -> None:
    from chestfed.core.bundled import bundled
    from chestfed.data.sites import load_site_config, open_site

    shutil.copytree(tiny_hospitals, tmp_path / "hospitals")
    table = open_site(load_site_config(bundled("site_configs") / "synthetic" / "chexpert.yaml"), tmp_path / "hospitals")
    scored = table.select(split="valid", views=("pa", "ap", "frontal"))
    (table.root / scored.frame["image"].iloc[0]).write_bytes(b"")
    write_chestfed_model(tmp_path / "model.safetensors")
    words = ("saliency", tmp_path / "model.safetensors", "--site", "synthetic/chexpert", "--data", "hospitals")
    words += ("--images", 1, "--cache", "cache", "--json")
    refused = call(*words, folder=tmp_path)
    assert (refused.code, "--skip-unreadable" in refused.err) == (1, True)
    assert all("--skip-unreadable" in call(name, "--help").out for name in ("saliency", "evaluate"))
    called = call(*words, "--skip-unreadable", folder=tmp_path)
    assert called.code == 0, called.err
    assert json.loads(called.out)["result"]["unreadable"] == 1


def test_absent_group_is_named_with_its_reason() -> None:
    labels = np.array([[1, 1], [1, 1], [0, 1], [0, 1]], np.float32)
    scores = np.array([[0.9, 0.1], [0.8, 0.1], [0.2, 0.1], [0.1, 0.1]], np.float32)
    patients = np.array(["a", "b", "c", "d"])
    rows = _find_rows(Scored(scores, labels, patients, ("edema", "consolidation")), 3)
    assert rows.wrong == []
    assert [disease for disease, _ in rows.absent] == ["edema", "edema", "consolidation"]
    assert "false alarm" in rows.absent[1][1]
    assert "no negative" in rows.absent[2][1]


def test_figure_names_absent_groups(tmp_path: Path) -> None:
    maps = dict.fromkeys(("Grad-CAM", "occlusion"), np.eye(8))
    absent = [("edema", "no image is a false alarm"), ("consolidation", "no threshold")]
    misjudged, origin = Misjudged([Example("edema", "missed", np.eye(8), maps, maps)], absent, 0), Origin.REAL
    assert draw_disease(misjudged, "edema", origin).get_supxlabel() == "no image is a false alarm"
    assert draw_disease(misjudged, "consolidation", origin).get_supxlabel() == "no threshold"
    names = write(misjudged, tmp_path, origin, pictures=True)
    assert names == ["saliency.csv", "edema.png", "consolidation.png"]
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(names)


@pytest.mark.parametrize(
    ("images", "alike", "words"),
    [(9, 1, "too few"), (10, 0, "as they should"), (10, 1, "1 of 10"), (10, 9, "not what was learned")],
)
def test_verdict_counts_alike_maps(images: int, alike: int, words: str) -> None:
    values = np.random.default_rng(1).random((8, 8))
    other = values.ravel()[np.random.default_rng(2).permutation(64)].reshape(8, 8)
    assert abs(compare_maps(values, other) or 0) < 0.3
    examples = []
    for number in range(images):
        random = dict.fromkeys(("Grad-CAM", "occlusion"), values if number < alike else other)
        examples.append(Example("edema", "missed", values, dict.fromkeys(random, values), random))
    _, verdict = judge(examples)["Grad-CAM"]
    assert words in verdict
    assert f"{alike} of {images} maps" in verdict


def test_error_leaves_no_folder(tiny_hospitals: Path, tmp_path: Path) -> None:
    write_chestfed_model(tmp_path / "model.safetensors")
    (tmp_path / "broken.pth").write_bytes(b"no model")
    (tmp_path / "mine").mkdir()
    for command in ("saliency", "evaluate"):
        words = ("--site", "synthetic/chexpert", "--data", tiny_hospitals, "--cache", "broken.pth/cache")
        for model, out in (
            ("broken.pth", "new/deep"),
            ("model.safetensors", "new/deep"),
            ("model.safetensors", "mine"),
        ):
            called = call(command, model, *words, "--out", out, folder=tmp_path)
            assert called.code == 1, called.err
            assert sorted(path.name for path in tmp_path.iterdir()) == ["broken.pth", "mine", "model.safetensors"]
