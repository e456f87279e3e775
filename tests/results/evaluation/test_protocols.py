"""Images and studies as units, against pandas."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from chestfed.results.evaluation.protocols import PROTOCOLS, list_views, units


def images(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores, labels with gaps, and the studies of 60 images in no order."""
    rng = np.random.default_rng(seed)
    labels = rng.choice([0.0, 1.0, np.nan], size=(60, 3))
    return rng.random((60, 3)).astype(np.float32), labels.astype(np.float32), rng.integers(0, 25, 60)


@pytest.mark.parametrize(("protocol", "how"), [("study-max", "max"), ("study-mean", "mean")])
def test_study_has_largest_or_mean_score(protocol: str, how: str) -> None:
    scores, labels, studies = images()
    result = units(protocol, scores, labels, studies)  # type: ignore[arg-type]
    by_study = pd.DataFrame(scores.astype(float)).groupby(studies, sort=False)
    np.testing.assert_allclose(result.scores, by_study.agg(how).to_numpy(), rtol=1e-6)
    np.testing.assert_array_equal(result.labels, pd.DataFrame(labels).groupby(studies, sort=False).max().to_numpy())
    assert studies[result.first].tolist() == list(dict.fromkeys(studies.tolist()))
    np.testing.assert_array_equal(studies[result.first][result.of_row], studies)


def test_a_study_without_a_label_is_missing() -> None:
    labels = np.array([[np.nan], [np.nan], [0.0]])
    result = units("study-max", np.array([[0.1], [0.2], [0.3]]), labels, np.array(["a", "a", "b"]))
    assert np.isnan(result.labels[0, 0])
    assert result.labels[1, 0] == 0


def test_image_protocol_changes_no_image() -> None:
    scores, labels, studies = images()
    result = units("frontal-image", scores, labels, studies)
    assert result.scores is scores
    assert result.labels is labels


def test_only_frontal_image_drops_views() -> None:
    assert {name: list_views(name) for name in PROTOCOLS if list_views(name)} == {
        "frontal-image": ("pa", "ap", "frontal")
    }
