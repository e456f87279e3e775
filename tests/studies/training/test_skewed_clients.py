"""Collections whose clients differ by a known amount, collections of one's own, and Python data sets as clients."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from chestfed.core.bundled import bundled
from chestfed.core.errors import ConfigError
from chestfed.data.collections.memory import register_samples
from chestfed.studies.experiment.loading import load_pipeline
from chestfed.studies.training.data.class_counts import draw_class_counts
from chestfed.studies.training.data.experiment import Experiment
from tests.command_line import call
from tests.studies.training.tiny_studies import read_collection

DIGITS = bundled("pipelines") / "digits_ih.yaml"
RNG = np.random.default_rng(0)


def read(*settings: str, data: Path | None = None) -> Experiment:
    return read_collection(load_pipeline(DIGITS, [f"collection.{setting}" for setting in settings]).resolve(), data)


def count_classes(experiment: Experiment) -> np.ndarray:
    """Images `[clients, classes]`."""
    return np.array([client.classes for client in experiment.clients])


def test_dirichlet_skews_the_classes() -> None:
    few, many = (count_classes(read(f"partition={{dirichlet: {alpha}}}")) for alpha in (0.2, 100))
    assert few.sum(axis=0).tolist() == many.sum(axis=0).tolist()

    def largest(counts: np.ndarray) -> float:
        return float((counts.max(axis=1) / counts.sum(axis=1)).mean())

    assert largest(few) > 1.3 * largest(many)


def test_shards_and_quantities_are_dealt() -> None:
    shards = count_classes(read("partition={shards: 1}"))
    assert ((shards > 0).sum(axis=1) <= 4).all()
    sizes = count_classes(read("partition={quantity: 0.3}")).sum(axis=1)
    assert sizes.max() > 3 * sizes.min()


def test_a_skew_has_one_key() -> None:
    for value in ("{}", "{dirichlet: 1, shards: 2}", "{dirichlet: 0}"):
        with pytest.raises(ConfigError):
            read(f"partition={value}")


def test_label_noise_flips_its_share() -> None:
    clean, noisy = read(), read("label_noise=[0, 0.5, 0, 0, 1]")
    flips = [float((a.labels != b.labels).mean()) for a, b in zip(clean.clients, noisy.clients, strict=True)]
    assert flips == pytest.approx([0, 0.5, 0, 0, 1], abs=0.01)
    np.testing.assert_array_equal(clean.test.labels, noisy.test.labels)
    with pytest.raises(ConfigError):
        read("label_noise=[0.1, 0.2]")


def test_feature_noise_grows_with_the_client() -> None:
    clean, noisy = read(), read("feature_noise=0.05")
    spreads = []
    for a, b in zip(clean.clients, noisy.clients, strict=True):
        rows = range(20)
        before, after = (client.images.read(rows).astype(float) for client in (a, b))
        spreads.append((after - before).std())
        np.testing.assert_array_equal(after, b.images.read(rows))  # the same at every reading
    assert spreads == sorted(spreads)
    assert spreads[0] > 5
    np.testing.assert_array_equal(clean.test.images.read(range(5)), noisy.test.images.read(range(5)))


def test_skewed_patients_stay_together(tmp_path: Path) -> None:
    y, patients = np.tile([0, 1, 0, 0], 100), np.repeat(np.arange(200), 2)
    np.savez(tmp_path / "skin.npz", x=RNG.integers(0, 256, (400, 8, 8), np.uint8), y=y, patient=patients)
    common = ("name=skin", "clients=3", "imratio=null", "test_fraction=0.2")
    for skew in ("{dirichlet: 1}", "{shards: 2}", "{quantity: 1}", "random"):
        data = read(*common, f"partition={skew}", data=tmp_path)
        rows = [client.images._rows for client in data.clients]  # type: ignore[attr-defined]
        assert sum(len(set(patients[part])) for part in rows) == len(set(patients[np.concatenate(rows)]))


def test_labels_of_several_tasks_are_read(tmp_path: Path) -> None:
    y = RNG.integers(0, 2, (60, 3)).astype(np.float32)
    y[::7, 1] = np.nan
    np.savez(tmp_path / "multi.npz", x=RNG.integers(0, 256, (60, 8, 8), np.uint8), y=y)
    common = ("name=multi", "clients=2", "imratio=null", "partition=random")
    data = read(*common, "tasks=[a, b, c]", data=tmp_path)
    held = np.concatenate([*(client.labels for client in data.clients), data.test.labels])
    assert np.isnan(held[:, 1]).sum() == len(y[::7])
    assert np.nansum(held) == np.nansum(y)
    for settings in ((*common, "tasks=[a, b]"), (*common[:2], "partition=random", "tasks=[a, b, c]")):
        with pytest.raises(ConfigError):
            read(*settings, data=tmp_path)


def test_a_collection_of_ones_own_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stripes.py").write_text(
        "import numpy as np\n"
        "from chestfed.plugins import ArrayPixels, Collection, CollectionSpec, Part\n"
        "def read(folder, download):\n"
        "    rng = np.random.default_rng(0)\n"
        "    y = np.arange(80) % 4\n"
        "    x = (rng.integers(0, 99, (80, 8, 8)) + 30 * y[:, None, None]).astype(np.uint8)\n"
        "    return Collection('stripes', 4, Part(ArrayPixels(x), y), None)\n"
        "STRIPES = CollectionSpec('stripes', 'Stripes', read, has_files=False)\n"
    )
    keys = ("name=stripes:STRIPES", "clients=2", "imratio=null", "partition={dirichlet: 0.5}")
    words = [part for key in keys for part in ("--set", f"collection.{key}")]
    done = call("study", "digits_ih", "--methods", "codasca", "--dry-run", *words, folder=tmp_path)
    assert done.code == 0, done.err
    assert "stripes-2" in done.out
    assert "Who has what" in done.out
    wrong = call("study", "digits_ih", "--dry-run", "--set", "collection.name=stripes:read", folder=tmp_path)
    assert wrong.code == 1


def test_who_has_what_is_drawn() -> None:
    text = draw_class_counts({"a": (4, 0), "b": (4, 8)}).splitlines()
    assert [line.split("|")[1] for line in text[1:]] == ["▄ ", "▄█"]
    assert draw_class_counts({"a": ()}) == ""


def make_samples(count: int, tasks: int = 1) -> list[tuple[object, object]]:
    labels = RNG.integers(0, 2, (count, tasks))
    return [(RNG.random((3, 12, 10), np.float32), label if tasks > 1 else int(label[0])) for label in labels]


def test_samples_become_a_collection() -> None:
    clients, test = [make_samples(9), make_samples(5)], make_samples(7)
    name, tasks, side = register_samples(clients, test)
    assert (tasks, side) == (1, 32)
    assert register_samples(clients, test)[0] == name
    keys = (f"name={name}", "clients=2", "partition=client", "imratio=null")
    data = read(*keys)
    assert [len(client.labels) for client in data.clients] == [9, 5]
    image = np.asarray(clients[0][3][0]).transpose(1, 2, 0)
    pixels = data.clients[0].images._pixels.read(3)  # type: ignore[attr-defined]
    np.testing.assert_array_equal(pixels, np.rint(image * 255).astype(np.uint8))
    assert data.test.labels[:, 0].tolist() == [label for _, label in test]


@pytest.mark.parametrize(
    "bad",
    [
        [],
        [3],
        [(np.zeros((4, 4)) - 1.0, 0)],
        [(np.zeros((4, 4, 2), np.uint8), 0)],
        [(np.zeros((4, 4), np.int64), 0)],
        [(np.zeros((4, 4), np.uint8), 2)],
        [(np.zeros((4, 4), np.uint8), 0), (np.zeros((5, 4), np.uint8), 1)],
        [(np.zeros((4, 4), np.uint8), 0), (np.zeros((4, 4), np.uint8), [0, 1])],
    ],
)
def test_unfit_samples_are_refused(bad: list[object]) -> None:
    good = [(np.zeros((4, 4), np.uint8), 1)]
    for clients, test in (([bad], good), ([good], bad), ([], good)):
        with pytest.raises(ConfigError):
            register_samples(clients, test)
