"""Time and memory of `chestfed site check`: 100,000 rows of labels, and images per second with 1 and 2 processes.

    python benchmarks/site_check_speed.py --films FOLDER --save benchmarks/results/site_check_speed.json

The rows are drawn: a one-hot csv of 100,000 images of 33,334 patients, once clean and once with every tenth row spoilt.
The films are all PNG, JPEG and DICOM files below FOLDER. Each case runs in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import random
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

NAMES = ("Cardiomegaly", "Edema", "Consolidation", "Atelectasis", "Effusion")
SUFFIXES = (".png", ".jpg", ".dicom", ".dcm")


def main() -> None:
    """Measure and print, and save if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--films", type=Path, help="folder of images; without it labels alone are measured")
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    results = []
    for case, spoilt in (("labels only, clean", False), ("labels only, every tenth row spoilt", True)):
        with tempfile.TemporaryDirectory() as folder:
            _write(Path(folder), options.rows, spoilt)
            results.append({"case": case, "rows": options.rows, **_alone(_labels, folder)})
        print(json.dumps(results[-1]), flush=True)
    if options.films is not None:
        films = str(options.films)
        results.append({"case": "decoding and resizing alone, 1 process", **_alone(_decode, films)})
        print(json.dumps(results[-1]), flush=True)
        for workers in (1, 2):
            with tempfile.TemporaryDirectory() as cache:
                found = _scan(films, cache, workers)
                results.append({"case": f"scan, {workers} process{'es' * (workers > 1)}", **found})
                print(json.dumps(results[-1]), flush=True)
                again = _scan(films, cache, workers)
            if workers == 1:
                results.append({"case": "scan again, nothing changed", **again})
    if options.save is not None:
        load = round(os.getloadavg()[0], 1)  # far above the cores: the clock says little
        machine = {"cores": os.cpu_count(), "python": platform.python_version(), "load": load}
        options.save.write_text(json.dumps({"machine": machine, "results": results}, indent=1) + "\n", encoding="utf-8")


def _alone(work: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, arguments)


def _peak() -> int:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def _write(folder: Path, rows: int, spoilt: bool) -> None:
    chance = random.Random(1)
    lines = ["File,MRN,Projection,Set,Sex,Age," + ",".join(NAMES)]
    for row in range(rows):
        patient = row // 3
        values = [chance.choice("00001") for _ in NAMES]
        cells = [f"{row}.png", f"P{patient}", "PA", "train" if patient % 5 else "test", chance.choice("FM"), "60"]
        if spoilt and row % 10 == 0:
            values[row // 10 % 5] = "perhaps"
        lines.append(",".join([*cells, *values]))
    (folder / "labels.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _labels(folder: str) -> dict[str, Any]:
    from chestfed.core.diseases import DISEASES
    from chestfed.inspection import check_site
    from chestfed.inspection.text import write_report
    from chestfed.sites import SiteConfig

    columns = {"image": "File", "patient": "MRN", "view": "Projection", "split": "Set", "sex": "Sex", "age": "Age"}
    config = SiteConfig.model_validate(
        {
            "site": "drawn",
            "title": "Drawn",
            "reader": "table",
            "root": ".",
            "label_files": {"table": ["labels.csv"]},
            "views": "all",
            "labels": {disease: [name] for disease, name in zip(DISEASES, NAMES, strict=True)},
            "uncertain": "missing",
            "blank": "missing",
            "table": {"columns": columns},
        }
    )
    started = time.perf_counter()
    report = check_site(config, Path(folder), images=False)
    write_report(report, Path(folder, "out"))
    seconds = time.perf_counter() - started
    return {"errors": len(report.errors), "seconds": round(seconds, 2), "peak_mib": _peak()}


def _films(folder: str) -> list[str]:
    files = (path for path in Path(folder).rglob("*") if path.suffix in SUFFIXES)
    return sorted(path.relative_to(folder).as_posix() for path in files)


def _decode(folder: str) -> dict[str, Any]:
    import cv2

    from chestfed.images.decode import decode
    from chestfed.images.preprocess import Preprocess

    cv2.setNumThreads(1)
    films, preprocess = _films(folder), Preprocess()
    preprocess.apply(decode(Path(folder, films[0])))  # imports
    started, busy = time.perf_counter(), _cpu()
    for film in films:
        preprocess.apply(decode(Path(folder, film)))
    return _speed(len(films), time.perf_counter() - started, _cpu() - busy)


def _scan(folder: str, cache: str, workers: int) -> dict[str, Any]:
    import cv2
    import pandas as pd

    from chestfed.images.levels import Stored
    from chestfed.inspection import scan_images
    from chestfed.inspection.facts import look_at
    from chestfed.sites import SiteTable

    cv2.setNumThreads(1)
    films = _films(folder)
    look_at(Path(folder, films[0]), Stored())  # imports
    frame = pd.DataFrame({"image": films, "inverted": False, "view": "frontal", "row": range(2, len(films) + 2)})
    table = SiteTable("films", "Films", Path(folder), False, (), frame)
    started, busy = time.perf_counter(), _cpu()
    scan = scan_images(table, Path(cache), workers=workers)
    assert scan.readable.all()
    return _speed(len(films), time.perf_counter() - started, _cpu() - busy)


def _cpu() -> float:
    """Seconds that this process and its ended children were computing."""
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def _speed(images: int, seconds: float, busy: float) -> dict[str, Any]:
    """Images per second on the clock, which other programs slow down; and processor time, which they hardly do."""
    return {
        "images": images,
        "seconds": round(seconds, 2),
        "per_second": round(images / seconds, 1),
        "cpu_ms_per_image": round(1000 * busy / images, 2),
    }


if __name__ == "__main__":
    main()
