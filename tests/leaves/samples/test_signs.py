"""Each sign is where a reader looks for it, and grows with its severity."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from chestfed.core.diseases import DISEASES
from chestfed.leaves.samples.drawing.anatomy import LEFT, RIGHT, Body, Chest, build_chest, draw_body, heart
from chestfed.leaves.samples.drawing.phantom import draw_chest
from chestfed.leaves.samples.drawing.signs import (
    consolidate,
    enlarge_heart,
    flood_interstitium,
    lose_volume,
    pour_effusion,
)
from chestfed.leaves.samples.frame import Frame
from chestfed.leaves.samples.patients import Film, Patient

FRAME = Frame(256, 312, 7.0, (156.0, 128.0))


@pytest.fixture
def body() -> Body:
    return draw_body(np.random.default_rng(5), female=False, age=60)


def lost_air(body: Body, sign: Callable[[Chest], None]) -> np.ndarray:
    """Air in cm that a sign takes, float32 `[height, width]`."""
    chest = build_chest(body, FRAME)
    before = chest.air.copy()
    sign(chest)
    return before - chest.air


def center(picture: np.ndarray) -> tuple[float, float]:
    x, y = FRAME.xy
    return float((picture * x).sum() / picture.sum()), float((picture * y).sum() / picture.sum())


def test_the_ratio_grows_with_cardiomegaly(body: Body) -> None:
    measured = []
    for severity in (0.0, 0.3, 0.6, 1.0):
        larger = enlarge_heart(body, severity) if severity else body
        columns = np.flatnonzero((heart(larger, FRAME) > 0).any(axis=0))
        measured.append((columns[-1] - columns[0]) / FRAME.scale / (2 * body.half_width))
    assert measured[0] == pytest.approx(body.heart_ratio, abs=0.02)
    assert np.all(np.diff(measured) > 0.03)
    assert measured[-1] > 0.6


def test_cardiomegaly_widens_to_the_left(body: Body) -> None:
    x, _ = FRAME.xy
    grown = heart(enlarge_heart(body, 0.8), FRAME) - heart(body, FRAME)
    assert grown[x > 0].sum() > 1.3 * grown[x < 0].sum()


def test_edema_is_around_both_hila(body: Body) -> None:
    x, y = FRAME.xy
    mild, severe = (
        lost_air(body, lambda chest, s=s: flood_interstitium(chest, s, np.random.default_rng(0))) for s in (0.2, 0.9)
    )
    assert severe.sum() > 1.8 * mild.sum()
    assert 0.6 < severe[x < 0].sum() / severe[x > 0].sum() < 2.2
    near = (np.abs(np.abs(x) - 5) < 1.5) & (np.abs(y) < 3)
    far = (np.abs(np.abs(x) - 5) < 1.5) & (y < -9)
    assert severe[near].mean() > 2 * severe[far].mean()


def test_consolidation_is_in_one_lung(body: Body) -> None:
    for side in (RIGHT, LEFT):
        taken = lost_air(body, lambda chest, s=side: consolidate(chest, 0.8, s, np.random.default_rng(1)))
        assert center(taken)[0] * side > 3
        x, _ = FRAME.xy
        assert taken[x * side < 0].sum() < 0.01 * taken.sum()
        assert (taken > 0.25 * taken.max()).sum() / FRAME.scale**2 < 120  # square centimetres


def test_atelectasis_raises_the_diaphragm(body: Body) -> None:
    for side, place in ((RIGHT, 0), (LEFT, 1)):
        smaller = lose_volume(body, 0.7, side)
        assert smaller.dome[place] < body.dome[place] - 1.5
        assert smaller.dome[1 - place] == body.dome[1 - place]
        assert (smaller.shift - body.shift) * side > 0.5
        fields = [build_chest(person, FRAME).lung(side).sum() for person in (body, smaller)]
        assert fields[1] < 0.95 * fields[0]


def test_effusion_rises_from_the_angle(body: Body) -> None:
    levels, amounts = [], []
    for severity in (0.2, 0.5, 0.9):
        taken = lost_air(body, lambda c, s=severity: pour_effusion(c, s, LEFT, 0.0, np.random.default_rng(2)))
        x, y = FRAME.xy
        assert taken[x < 0].sum() < 0.01 * taken.sum()
        levels.append(float(y[:, 0][np.flatnonzero(taken.sum(axis=1) > 1.0)[0]]))
        amounts.append(float(taken.sum()))
    assert levels[0] > body.dome[1] - 3
    assert np.all(np.diff(levels) < -1)
    assert np.all(np.diff(amounts) > 0)


def test_effusions_climb_towards_the_wall(body: Body) -> None:
    taken = lost_air(body, lambda chest: pour_effusion(chest, 0.6, LEFT, 0.0, np.random.default_rng(3)))
    x, y = FRAME.xy

    def surface(distance: float) -> float:
        column = int(np.argmin(np.abs(x[0] - distance)))
        return float(y[np.flatnonzero(taken[:, column] > 0.3)[0], 0])

    assert surface(0.9 * body.half_width) < surface(0.45 * body.half_width) - 0.5


@pytest.mark.parametrize("disease", DISEASES)
def test_every_disease_changes_the_picture(disease: str, body: Body) -> None:
    def drawn(severity: float) -> np.ndarray:
        severities = dict.fromkeys(DISEASES, 0.0) | {disease: severity}
        film = Film(Patient(1, False, 60), 1, 1, "pa", "train", severities, {})
        return draw_chest(film, body, FRAME, np.random.default_rng(4)).attenuation()

    healthy = drawn(0.0)
    mild, severe = (np.abs(drawn(severity) - healthy).mean() for severity in (0.2, 0.9))
    assert 0 < mild < severe
