"""The site probe: hospitals that differ are named, equal ones are not, and no patient is in both halves."""

from __future__ import annotations

import numpy as np
import pytest

from chestfed.core.errors import ConfigError
from chestfed.data.checks.site_probe import SIDE, draw_rows, probe_sites, shrink
from tests.cases import assert_refused

PIXELS = SIDE * SIDE


def make_images(rng: np.random.Generator, patients: int, each: int, brighter: float) -> tuple[np.ndarray, list[str]]:
    """Images of patients with a pattern of their own, float32 `[n, PIXELS]`."""
    patterns = np.repeat(rng.normal(size=(patients, PIXELS)), each, axis=0)
    images = patterns + 0.1 * rng.normal(size=patterns.shape) + brighter
    return images.astype(np.float32), [str(number) for number in np.repeat(np.arange(patients), each)]


@pytest.mark.parametrize(("brighter", "low", "high"), [(0.5, 0.95, 1.0), (0.0, 0.3, 0.7)])
def test_hospitals_are_named_if_they_differ(brighter: float, low: float, high: float) -> None:
    """A model that had seen a patient's other image would name every hospital."""
    rng = np.random.default_rng(0)
    parts = {"a": make_images(rng, 30, 4, 0.0), "b": make_images(rng, 15, 4, brighter)}
    probe = probe_sites(
        {name: part[0] for name, part in parts.items()}, {name: part[1] for name, part in parts.items()}
    )
    assert low <= probe.accuracy <= high
    assert probe.chance == 0.5
    assert dict(probe.images) == {"a": 120, "b": 60}
    named = probe.probabilities.argmax(axis=1) == np.repeat([0, 1], [120, 60])
    assert probe.recall == {"a": named[:120].mean(), "b": named[120:].mean()}


def test_one_hospital_is_refused() -> None:
    images, patients = make_images(np.random.default_rng(0), 5, 2, 0.0)
    with assert_refused(ConfigError, "too few sites"):
        probe_sites({"a": images}, {"a": patients})
    with assert_refused(ConfigError, "too few sites"):
        probe_sites({"a": images, "b": images}, {"a": patients, "b": ["x"] * 10})


def test_small_images_are_means_of_pixels() -> None:
    gray = np.kron(np.arange(PIXELS).reshape(SIDE, SIDE) % 251, np.ones((4, 4))).astype(np.uint8)
    assert shrink(gray).reshape(SIDE, SIDE).tolist() == gray[::4, ::4].tolist()
    assert shrink(np.stack([gray] * 3, axis=2)).tolist() == shrink(gray).tolist()
    rows = draw_rows(50, 20, "a")
    assert rows.tolist() == sorted(set(rows.tolist()))
    assert len(rows) == 20
    assert rows.tolist() != draw_rows(50, 20, "b").tolist()
