"""Write the hospitals to disk: in parallel, reproducible to the byte, each one whole or not at all."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from filelock import FileLock

from chestfed.errors import ChestfedError
from chestfed.samples.film import draw_film
from chestfed.samples.hospitals import HOSPITALS, SIZES, Hospital, draw_films
from chestfed.samples.label_files import WRITERS
from chestfed.samples.layouts import PATHS, write_picture
from chestfed.samples.patients import Film

#: Raised when the same seed gives other hospitals than before.
SAMPLES_VERSION: Final = 1

_MARKER: Final = "SYNTHETIC.txt"
_TEXT: Final = """\
SYNTHETIC. These pictures are phantoms drawn by chestfed, in the layout of a real data set.
They show no patient, and nothing that is computed from them says anything about patients.
"""


@dataclass(frozen=True)
class HospitalSummary:
    """What was written for one hospital: images by split and view."""

    folder: Path
    images: int
    splits: dict[str, int]
    lateral: int

    def __str__(self) -> str:
        parts = ", ".join(f"{count} {split}" for split, count in self.splits.items())
        lateral = f", of them {self.lateral} lateral" if self.lateral else ""
        return f"{self.folder}: {self.images} images ({parts}{lateral})"


def is_complete(folder: Path, *, seed: int = 1, size: str = "default") -> bool:
    """Whether the folder holds all hospitals of this seed and size."""
    return all(_stamp_of(folder / hospital.folder) == _stamp(seed, size) for hospital in HOSPITALS)


def write_hospitals(
    folder: Path,
    *,
    seed: int = 1,
    size: str = "default",
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[HospitalSummary]:
    """Write the five hospitals below `folder`; those that are there already are left alone.

    Parameters
    ----------
    size
        A key of `SIZES`.
    workers
        Processes that draw; default: one per core. The bytes do not depend on it.
    progress
        Called as `progress(done, total)`.

    Raises
    ------
    ChestfedError
        If the folder holds hospitals of another seed or size, or something else under their names.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".samples.lock"):
        for hospital in HOSPITALS:
            root = folder / hospital.folder
            if root.exists() and _stamp_of(root) != _stamp(seed, size):
                raise ChestfedError(
                    f"{root} holds something else than the synthetic hospital of seed {seed}, size {size}. "
                    "Choose another folder, or remove this one."
                )
        films = {hospital.name: draw_films(hospital, seed, size) for hospital in HOSPITALS}
        todo = [hospital for hospital in HOSPITALS if not (folder / hospital.folder).exists()]
        total = sum(len(films[hospital.name]) for hospital in todo)
        done = 0
        with _pool(workers or os.cpu_count() or 1) as run:
            for hospital in todo:
                part = folder / f".{hospital.folder}.part"
                shutil.rmtree(part, ignore_errors=True)
                for _ in run([(part, hospital, film, seed) for film in films[hospital.name]]):
                    done += 1
                    if progress is not None:
                        progress(done, total)
                WRITERS[hospital.name](part, films[hospital.name], hospital, seed)
                (part / _MARKER).write_text(_TEXT, encoding="utf-8")
                (part / "synthetic.json").write_text(json.dumps(_stamp(seed, size)) + "\n", encoding="utf-8")
                part.rename(folder / hospital.folder)
    return [_summary(folder / hospital.folder, films[hospital.name]) for hospital in HOSPITALS]


_Job = tuple[Path, Hospital, Film, int]


class _pool:
    """Runs jobs one by one, or in spawned processes; results in order."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._executor: ProcessPoolExecutor | None = None

    def __enter__(self) -> Callable[[list[_Job]], Iterator[None]]:
        return self._run

    def __exit__(self, *_: object) -> None:
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)

    def _run(self, jobs: list[_Job]) -> Iterator[None]:
        if self._workers == 1:
            yield from map(_write_film, jobs)
            return
        if self._executor is None:
            context = multiprocessing.get_context("spawn")
            self._executor = ProcessPoolExecutor(self._workers, mp_context=context, initializer=_one_thread)
        yield from self._executor.map(_write_film, jobs, chunksize=16)


def _one_thread() -> None:
    """The processes share the cores already."""
    import cv2

    cv2.setNumThreads(1)


def _write_film(job: _Job) -> None:
    part, hospital, film, seed = job
    path = part / PATHS[hospital.name](film)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_picture(hospital.name, path, draw_film(film, hospital.device, seed, hospital.name), film, seed)


def _stamp(seed: int, size: str) -> dict[str, object]:
    if size not in SIZES:
        raise ChestfedError(f"unknown size '{size}'; choose one of {', '.join(SIZES)}")
    return {"synthetic": True, "version": SAMPLES_VERSION, "seed": seed, "size": size}


def _stamp_of(root: Path) -> dict[str, object] | None:
    try:
        return json.loads((root / "synthetic.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _summary(root: Path, films: list[Film]) -> HospitalSummary:
    splits = Counter(film.split for film in films)
    return HospitalSummary(root, len(films), dict(splits), sum(film.view == "lateral" for film in films))
