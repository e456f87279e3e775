"""A benchmark: a question with a fixed test split, which every installation names alike.

A test image is named by a hash of its content (`image_names` with the published key): who has the image can make the
name, and it says nothing to others. A secret key would give other names at each installation, and the name of a file is
often the patient's number. The digest of a split is over these names, the labels, and which images are of one patient.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Literal

import numpy as np
import pandas as pd
from pydantic import Field

from chestfed.core.bundled import pipeline_file
from chestfed.core.config import StrictModel, load_config
from chestfed.core.diseases import DiseaseName, nearest_hint
from chestfed.core.errors import ChestfedError, ConfigError, nearest
from chestfed.core.provenance import Origin
from chestfed.core.pseudonyms import PUBLISHED, SiteKey
from chestfed.data.films.registry import find_release

FOLDER: Final = Path(__file__).parent / "benchmarks"
Progress = Callable[[str, int, int], None]  #: site or `drawing`, done, total


class Target(StrictModel):
    """The test images of a hospital."""

    images: int = Field(gt=0)
    patients: int = Field(gt=0)
    digest: str = Field("", pattern=r"^([0-9a-f]{64})?$", description="of the split; empty where images have no rows")


class Benchmark(StrictModel):
    """Content of a benchmark's YAML."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,39}$")
    published: str = Field(pattern=r"^\d{4}-\d\d-\d\d$", description="the day that its test images were fixed")
    title: str
    question: str
    pipeline: str = Field(description="a bundled pipeline, or a file from the folder of this YAML on")
    settings: list[str] = Field([], description="KEY=VALUE, as --set gives them, that determine the test split")
    k: list[int] = Field(min_length=2, description="K that a submission scores: the reference, at last the ranked one")
    diseases: list[DiseaseName] = Field(min_length=1)
    disclosure: Literal["scores", "aucs"] = Field("scores", description="aucs: no row per image, not verifiable")
    releases: list[str] = Field([], description="open releases that the images are from; none: they are synthetic")
    targets: dict[str, Target] = Field(description="site -> its test images")

    @property
    def verifiable(self) -> bool:
        """Whether a submission has a score for each image."""
        return self.disclosure == "scores"

    @property
    def digests(self) -> dict[str, str]:
        """Site -> digest of its split."""
        return {name: target.digest for name, target in self.targets.items()}


@dataclass(frozen=True, eq=False)
class Split:
    """Test images at a hospital: `image`, `patient` (a running number), `label_...` per row, in the table's order."""

    frame: pd.DataFrame
    sources: np.ndarray  #: digests of the images' content, from which a key makes names
    origin: Origin
    phantoms: bool = False  #: whether the files are those of bundled phantoms: names by the published key

    def translate_names(self, key: SiteKey) -> dict[str, str]:
        """The name that a key gives an image -> the one that it has in a benchmark."""
        from chestfed.studies.training.data.clients import image_names

        return dict(zip(image_names(self.sources, key), self.frame["image"], strict=True))


def load_benchmark(name: str | Path) -> tuple[Benchmark, Path]:
    """A bundled benchmark by its name, or that of a YAML file, and the file.

    Raises `ConfigError` if there is none, or a key of it is wrong.
    """
    beside = FOLDER / f"{name}.yaml"
    file = beside if beside.is_file() else Path(name)
    if not file.is_file():
        known = sorted(path.stem for path in FOLDER.glob("*.yaml"))
        near = nearest(str(name), known)
        text = f"{name}: no such benchmark{nearest_hint([str(name)], known)}; there are {', '.join(known)}"
        raise ConfigError(text, kind="unknown benchmark", name=str(name), suggestion=near)
    return load_config(file, Benchmark), file


def digest_split(frame: pd.DataFrame, diseases: Sequence[str]) -> str:
    """SHA-256 of a split, whatever the order of its rows and the names of its patients.

    One line per row, sorted: the image's name, its labels (0, 1 or -), and of its patient the first image's name.
    """
    first = frame.groupby("patient")["image"].transform("min")
    columns = [frame[f"label_{disease}"].map({0: "0", 1: "1"}).fillna("-") for disease in diseases]
    lines = sorted(" ".join(row) for row in zip(frame["image"], *columns, first, strict=True))
    return hashlib.sha256("\n".join([" ".join(diseases), *lines]).encode()).hexdigest()


def check_split(benchmark: Benchmark, hospital: str, frame: pd.DataFrame) -> None:
    """Refuse test images, labels or patients that are not those of the benchmark.

    Raises `ChestfedError` of the kinds `other number of images` and `other split`.
    """
    target, fields = benchmark.targets[hospital], {"benchmark": benchmark.name, "hospital": hospital}
    advice = f"Test on what {benchmark.pipeline} tests on: its sites' YAMLs and the seed of its split unchanged"
    if len(frame) != target.images:
        text = f"{len(frame)} test images at {hospital}, where {benchmark.name} has {target.images}. {advice}"
        raise ChestfedError(text, kind="other number of images", **fields, images=len(frame), expected=target.images)
    if (digest := digest_split(frame, benchmark.diseases)) != target.digest:
        text = f"the test images at {hospital}, their labels or patients are not those of {benchmark.name}: the digest"
        text += f" is {digest}, not {target.digest or 'known'}. {advice}, and the images as they were released"
        raise ChestfedError(text, kind="other split", **fields, digest=digest)


def load_splits(
    benchmark: Benchmark, file: Path, data: Path | None, cache: Path, progress: Progress
) -> dict[str, Split]:
    """The test images of each target, from the files of the pipeline's sites; synthetic ones are drawn if missing.

    Raises `ChestfedError` as `check_split`, and of the kind `not an open release`: scores of an image may leave only
    where anybody can have it. `ConfigError` if pipeline or data are not there; `SiteError` for unreadable images.
    """
    from chestfed.data.images.cache import fill_cache
    from chestfed.leaves.samples.writing import write_hospitals
    from chestfed.studies.experiment.loading import load_pipeline
    from chestfed.studies.training.data.clients import image_names
    from chestfed.studies.training.data.sites import OWN_TEST, TEST, open_sites, resolve_data_root

    beside = file.parent / benchmark.pipeline
    path = beside if beside.is_file() else pipeline_file(benchmark.pipeline)
    pipeline = load_pipeline(path, benchmark.settings).resolve()
    root, samples, splits = resolve_data_root(pipeline, data), pipeline.samples, {}
    if samples is not None:
        write_hospitals(root, seed=samples.seed, size=samples.size, progress=partial(progress, "drawing"))
    open_releases = tuple(f"site_configs/{find_release(name).site}" for name in benchmark.releases)
    for site in open_sites(pipeline, path, root):
        if site.name not in benchmark.targets:
            continue
        if not site.table.phantoms and not site.entry.config.endswith(open_releases):
            text = f"{site.name}: not of an open release, so no score of an image may leave: set disclosure: aucs"
            raise ChestfedError(text, kind="not an open release", benchmark=benchmark.name, hospital=site.name)
        table = site.select(TEST if len(site.find(TEST)) else OWN_TEST)
        images = fill_cache(table, cache, pipeline.preprocess, progress=partial(progress, site.name))
        frame = pd.DataFrame(table.labels(), columns=[f"label_{disease}" for disease in table.diseases])
        frame.insert(0, "image", image_names(images.sources, PUBLISHED))
        frame.insert(1, "patient", pd.factorize(table.frame["patient"])[0])
        check_split(benchmark, site.name, frame)
        splits[site.name] = Split(frame, images.sources, table.origin, table.phantoms)
    if missing := sorted({*benchmark.targets} - {*splits}):
        raise ConfigError(f"{file}: targets: {missing[0]} is not a site of {benchmark.pipeline}", kind="unknown target")
    return splits
