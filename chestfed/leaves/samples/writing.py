"""Write the hospitals to disk: in parallel, reproducible to the byte, each one whole or not at all."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from filelock import FileLock

from chestfed.core.disk import writing_to
from chestfed.core.errors import ChestfedError
from chestfed.core.processes.workers import parallel_map
from chestfed.data.sites.phantoms import write_marker
from chestfed.leaves.samples.drawing.phantom import draw_film
from chestfed.leaves.samples.hospitals import HOSPITALS, SIZES, Hospital, draw_hospital_images, list_hospitals
from chestfed.leaves.samples.label_files import WRITERS
from chestfed.leaves.samples.layouts import PATHS, write_picture
from chestfed.leaves.samples.patients import Film

#: Raised when the same seed gives other hospitals than before.
SAMPLES_VERSION: Final = 8

STAMP: Final = "synthetic.json"
MARKER_TEXT: Final = """\
SYNTHETIC. These pictures are phantoms drawn by chestfed, in the layout of a real data set.
They show no patient, and nothing that is computed from them says anything about patients.
"""


@dataclass(frozen=True)
class HospitalSummary:
    """Images written for one hospital, by split and view."""

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
    return all(_read_stamp(folder / hospital.folder) == _make_stamp(seed, size) for hospital in HOSPITALS)


def write_hospitals(
    folder: str | Path,
    *,
    seed: int = 1,
    size: str = "default",
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[HospitalSummary]:
    """Write the five hospitals below `folder`; existing ones are left alone.

    Raises `ChestfedError` if the folder holds hospitals of another seed or size, or something else under their names,
    or is full.

    `size` is a key of `SIZES`; `workers` are the processes that draw, by default one per core. The bytes do not depend
    on them.
    """
    folder, stamp = Path(folder), _make_stamp(seed, size)
    with writing_to(folder):
        folder.mkdir(parents=True, exist_ok=True)
    hospitals = list_hospitals(size)
    films = {hospital.name: draw_hospital_images(hospital, seed, SIZES[size]) for hospital in hospitals}
    with writing_to(folder), FileLock(folder / ".samples.lock"):
        what = _describe(seed, size)
        todo = [hospital for hospital in hospitals if not is_written(folder / hospital.folder, stamp, what)]
        total = sum(len(films[hospital.name]) for hospital in todo)
        with closing(_write_all(folder, todo, films, seed, stamp, workers)) as written:
            for done, _ in enumerate(written, start=1):
                if progress is not None:
                    progress(done, total)
    return [_summarize(folder / hospital.folder, films[hospital.name]) for hospital in hospitals]


def _describe(seed: int, size: str) -> str:
    return f"the synthetic hospital of seed {seed}, size {size}, version {SAMPLES_VERSION}"


def write_labels(folder: Path, data_root: Path, *, seed: int = 1, size: str = "default") -> None:
    """Write the label files of the five hospitals below an empty folder, for a plan: no image is drawn.

    Raises `ChestfedError` if `data_root`, where the hospitals will be, holds something else under their names.
    """
    for hospital in HOSPITALS:
        is_written(data_root / hospital.folder, _make_stamp(seed, size), _describe(seed, size))
        root = folder / hospital.folder
        root.mkdir(parents=True)
        WRITERS[hospital.name](root, draw_hospital_images(hospital, seed, SIZES[size]), hospital, seed)
        write_marker(root, MARKER_TEXT)


def time_drawing(data_root: Path, *, seed: int = 1, size: str = "default") -> tuple[float, float]:
    """Processor seconds in which one core draws the hospitals that are not below `data_root`; mean bytes of an image.

    Of each hospital one image is drawn into a temporary folder, after one that is not counted: it loads what is loaded
    once. Both are 0 if all hospitals are there.
    """
    seconds, sizes = 0.0, Counter[int]()
    with TemporaryDirectory(prefix="chestfed-") as place:
        for hospital in list_hospitals(size):
            if (data_root / hospital.folder).exists():
                continue
            films, part = draw_hospital_images(hospital, seed, SIZES[size]), Path(place, hospital.folder)
            first, second = films[0], films[len(films) // 2]
            _write_film((part, hospital, first, seed))
            before = time.process_time()
            _write_film((part, hospital, second, seed))
            seconds += (time.process_time() - before) * len(films)
            sizes[(part / PATHS[hospital.name](second)).stat().st_size] += len(films)
    return seconds, sum(size * count for size, count in sizes.items()) / max(1, sizes.total())


def _write_all(
    folder: Path,
    hospitals: list[Hospital],
    films: dict[str, list[Film]],
    seed: int,
    stamp: dict[str, object],
    workers: int | None,
) -> Generator[None]:
    """Fill the hospitals' folders; yields once per picture."""
    with ExitStack() as unfinished:
        parts = {
            hospital.name: unfinished.enter_context(create_part_folder(folder / hospital.folder))
            for hospital in hospitals
        }
        jobs = [(parts[hospital.name], hospital, film, seed) for hospital in hospitals for film in films[hospital.name]]
        with closing(parallel_map(_write_film, jobs, workers, chunk=16, what="drawing the hospitals")) as drawn:
            for hospital in hospitals:
                yield from islice(drawn, len(films[hospital.name]))
                WRITERS[hospital.name](parts[hospital.name], films[hospital.name], hospital, seed)
                finish(parts[hospital.name], folder / hospital.folder, stamp)


@contextmanager
def create_part_folder(root: Path) -> Iterator[Path]:
    """A folder beside a hospital's, to be filled and then taken to `finish`; else it is removed."""
    part = root.with_name(f".{root.name}.part")
    shutil.rmtree(part, ignore_errors=True)  # left by a process that was killed
    try:
        part.mkdir()
        yield part
    finally:
        shutil.rmtree(part, ignore_errors=True)


def finish(part: Path, root: Path, stamp: Mapping[str, object]) -> None:
    """Stamp, mark and rename a folder that is whole."""
    (part / STAMP).write_bytes((json.dumps(stamp) + "\n").encode())
    write_marker(part, MARKER_TEXT)
    part.rename(root)


def _write_film(job: tuple[Path, Hospital, Film, int]) -> None:
    part, hospital, film, seed = job
    path = part / PATHS[hospital.name](film)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_picture(hospital.name, path, draw_film(film, hospital.look, seed, hospital.name), film, seed)


def _make_stamp(seed: int, size: str) -> dict[str, object]:
    if size not in SIZES:
        raise ChestfedError(f"unknown size '{size}'; choose one of {', '.join(SIZES)}", kind="unknown size")
    return {"synthetic": True, "version": SAMPLES_VERSION, "seed": seed, "size": size}


def _read_stamp(root: Path) -> dict[str, object] | None:
    try:
        return json.loads((root / STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def is_written(root: Path, stamp: Mapping[str, object], what: str) -> bool:
    """Whether the hospital of this stamp exists already; a folder of that name with other content is refused."""
    if root.exists() and (there := _read_stamp(root) or {}) != stamp:
        raise ChestfedError(
            f"{root.resolve()} is not {what}.{_advise(there, stamp)} Remove it, or choose another folder.",
            kind="another folder in its place",
            folder=root.name,
        )
    return root.exists()


def _advise(there: Mapping[str, object], stamp: Mapping[str, object]) -> str:
    """How a study uses a hospital that differs in seed or size alone; "" for what differs in more."""
    other = {key: there.get(key) for key in ("seed", "size") if there.get(key) != stamp[key]}
    if "extra" in stamp or {**stamp, **other} != there:
        return ""
    return f" A study uses it with {' '.join(f'--set samples.{key}={value}' for key, value in other.items())}."


def _summarize(root: Path, films: list[Film]) -> HospitalSummary:
    splits = Counter(film.split for film in films)
    return HospitalSummary(root, len(films), dict(splits), sum(film.view == "lateral" for film in films))
