"""What happens to the cache on a bad day, and how quickly a large one opens.

    python benchmarks/cache_campaign.py --save benchmarks/results/cache_campaign.json

Drawn films as PNG (`--films`), a trouble in each case: how many good images are lost in the run with the trouble and in
the next one, and how many films are decoded that need not be. Then an index of a million drawn entries (`--rows`) over
as many empty files: seconds and peak memory of opening it, in a process of its own.
"""

from __future__ import annotations

import argparse
import errno
import json
import multiprocessing
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from PIL import Image

from chestfed.images import cache, file_store
from chestfed.images.cache import fill_cache
from chestfed.images.database import FILES, Row, unpack_keys
from chestfed.images.file_store import SiteStore
from chestfed.images.levels import Stored
from chestfed.images.preprocess import Preprocess

PREPROCESS = Preprocess()
_PLAIN = Stored()
OTHER_USER = 65534


class Table(NamedTuple):
    """What the cache needs of a site."""

    name: str
    root: Path
    synthetic: bool
    frame: pd.DataFrame

    def stored(self) -> list[Stored]:
        """Nothing is inverted."""
        return [_PLAIN] * len(self.frame)


def main() -> None:
    """Measure and print, and save if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--films", type=int, default=96)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--save", type=Path)
    parser.add_argument("--only", help="measure this case alone, in this process")
    options = parser.parse_args()
    if options.only is not None:
        print(json.dumps(_case(options.only, options.films) if options.only in CASES else _large(options.rows)))
        return
    results = []
    for name in [*CASES, "large"]:  # a process for each: one of them kills its own, one changes its user
        command = [sys.executable, "-c", "from cache_campaign import main; main()", "--only", name]
        command += ["--films", str(options.films), "--rows", str(options.rows)]
        told = subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=Path(__file__).parent)
        results.append(json.loads(told.stdout.splitlines()[-1]))
        print(json.dumps(results[-1]), flush=True)
    if options.save is not None:
        machine = {"cores": os.cpu_count(), "python": platform.python_version(), "load": round(os.getloadavg()[0], 1)}
        options.save.write_text(json.dumps({"machine": machine, "results": results}, indent=1) + "\n", encoding="utf-8")


def _films(folder: Path, count: int) -> Table:
    root = folder / "films"
    root.mkdir()
    levels = np.random.default_rng(1).integers(0, 256, (count, 64, 64), dtype=np.uint8)
    names = [f"{number}.png" for number in range(count)]
    for name, gray in zip(names, levels, strict=True):
        Image.fromarray(gray).resize((352, 352)).save(root / name)
    frame = pd.DataFrame({"image": names, "row": range(2, count + 2), "inverted": False})
    return Table("site", root, True, frame)


def _fill(table: Table, folder: Path, error: Exception | None = None, times: int = 10**9) -> tuple[int, int]:
    """Images lost, and films decoded; every tenth film fails so often."""
    seen: list[str] = []
    original = cache.prepared

    def decoding(path: Path, *how: Any) -> np.ndarray:
        seen.append(path.name)
        if error is not None and int(path.stem) % 10 == 3 and seen.count(path.name) <= times:
            raise error
        return original(path, *how)

    cache.prepared = decoding
    try:
        images = fill_cache(table, folder / "cache", PREPROCESS, workers=1, skip_unreadable=True)
    finally:
        cache.prepared = original
    images.read(np.flatnonzero(images.records >= 0))
    return len(images.quarantined), len(seen)


def _failing(error: Exception, times: int, table: Table, folder: Path) -> tuple[int, int, int]:
    """An error in a first run; what the second needs beyond the films that the first lost is needless."""
    lost, _ = _fill(table, folder, error, times)
    later, decoded = _fill(table, folder)
    return lost, later, decoded - lost


def _lethal(path: Path, stored: Stored) -> Any:
    if int(path.stem) % 40 == 3 and (path.parent / "kill").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    return cache._prepare_one(PREPROCESS, path, stored)


def _killed(table: Table, folder: Path) -> tuple[int, int, int]:
    """Decoding processes are killed, as by a lack of memory."""
    (table.root / "kill").touch()
    original, kind = cache.pixels, cache.pixels(PREPROCESS)
    cache.pixels = lambda _: kind._replace(work=_lethal)
    images = fill_cache(table, folder / "cache", PREPROCESS, workers=2, skip_unreadable=True)
    cache.pixels = original
    later, decoded = _fill(table, folder)
    return len(images.quarantined), later, decoded - len(images.quarantined)


def _changed(change: Callable[[Table], Table], table: Table, folder: Path) -> tuple[int, int, int]:
    lost, _ = _fill(table, folder)
    later, decoded = _fill(change(table), folder)
    return lost, later, decoded


def _moved(table: Table) -> Table:
    return table._replace(root=table.root.rename(table.root.with_name("moved")))


def _copied(table: Table) -> Table:
    place = shutil.copytree(table.root, table.root.with_name("copy"), copy_function=shutil.copyfile)
    return table._replace(root=Path(place))


def _touched(table: Table) -> Table:
    for file in table.root.iterdir():
        os.utime(file, (1, 1))
    return table


def _renamed(table: Table) -> Table:
    names = ["renamed " + name for name in table.frame["image"]]
    for old, new in zip(table.frame["image"], names, strict=True):
        (table.root / old).rename(table.root / new)
    return table._replace(frame=table.frame.assign(image=names))


def _read_only(table: Table) -> Table:
    """Nothing below can be written by anybody but root; the rest is done as another user."""
    for path in (table.root.parent, *table.root.parent.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(OTHER_USER)
        os.setuid(OTHER_USER)
    return table


CASES: dict[str, Callable[[Table, Path], tuple[int, int, int]]] = {
    "I/O error, once per film": partial(_failing, OSError(errno.EIO, "Input/output error"), 1),
    "I/O error during a whole run": partial(_failing, OSError(errno.EIO, "Input/output error"), 10**9),
    "no memory during a whole run": partial(_failing, OSError(errno.ENOMEM, "Cannot allocate memory"), 10**9),
    "access denied during a whole run": partial(_failing, PermissionError(errno.EACCES, "Permission denied"), 10**9),
    "decoders killed": _killed,
    "films copied without times": partial(_changed, _copied),
    "films touched": partial(_changed, _touched),
    "films renamed": partial(_changed, _renamed),
    "folder moved": partial(_changed, _moved),
    "read-only, as another user": partial(_changed, _read_only),
}


def _case(name: str, films: int) -> dict[str, Any]:
    file_store._PAUSES = (0.0, 0.0)
    folder = Path(tempfile.mkdtemp())
    lost, later, needless = CASES[name](_films(folder, films), folder)
    return {"case": name, "films": films, "lost_in_the_run": lost, "lost_later": later, "needless_decodes": needless}


def _large(rows: int) -> dict[str, Any]:
    """A complete cache of so many films, and a second start that opens it."""
    with tempfile.TemporaryDirectory() as place:
        folder, root = Path(place), Path(place, "films")
        for number in range(0, rows, 1000):
            (root / f"p{number // 1000}").mkdir(parents=True)
        names = [f"p{number // 1000}/patient{number}_view1_frontal.jpg" for number in range(rows)]
        for image in names:
            os.close(os.open(root / image, os.O_CREAT))
        frame = pd.DataFrame({"image": names, "row": range(2, rows + 2), "inverted": False})
        table = Table("site", root, True, frame)
        store, kind = SiteStore(folder / "cache", table), cache.pixels(PREPROCESS)
        keys, stamps, _ = store._look_up_names()
        contents = np.frombuffer(np.random.default_rng(1).bytes(16 * rows), "V16")
        rows_of = list(zip(*(unpack_keys(array) for array in (keys, stamps, contents)), strict=True))
        store.database.add({FILES: [Row(name, (stamp, content)) for name, stamp, content in rows_of]})
        store.database.add({kind.name: [Row(row[2], (row[2], row[2], None), b"") for row in rows_of]})
        frame.to_parquet(folder / "frame.parquet")
        del frame, table, rows_of, names, contents, keys, stamps
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            return {"case": f"opening {rows:,} films", **pool.apply(_opened, (place, rows))}


def _opened(place: str, rows: int) -> dict[str, Any]:
    frame = pd.read_parquet(Path(place, "frame.parquet"))
    before = _peak()
    started, used = time.perf_counter(), time.process_time()
    images = fill_cache(Table("site", Path(place, "films"), True, frame), Path(place, "cache"), PREPROCESS)
    seconds, used = time.perf_counter() - started, time.process_time() - used
    assert (images.records >= 0).all()
    assert len(images.records) == rows
    return {"seconds": round(seconds, 1), "cpu_seconds": round(used, 1), "MiB_of_all": _peak(), "MiB_before": before}


def _peak() -> int:
    """MiB; of this program alone: what `getrusage` tells begins with the parent's."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024


if __name__ == "__main__":
    main()
