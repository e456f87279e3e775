"""Disks that are full, read-only or gone, and folders of somebody else: one message, and nothing is lost."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from benchmarks.faults.cases import Campaign, Case, Result, told
from benchmarks.faults.children import STUDY, Ended, run
from benchmarks.faults.kills import SITE, differences

_NOBODY = 65534
_TRACKED: dict[str, tuple[str, ...]] = {"with MLflow": (), "without MLflow": ("--no-tracking",)}
_DONE = ("--out", "finished", "--no-tracking")


def cases(campaign: Campaign) -> Iterator[Case]:
    """Where a study can be started again without the fault, it must end as the sound one."""
    for size in (0, 100, 1_000, 4_096, 10_000, 20_000, 40_000, 60_000, 80_000, 100_000):
        for name, tracked in _TRACKED.items():
            yield Case(f"no file above {size:,} bytes, {name}", partial(_limited, campaign, size, tracked))
    yield from _places(campaign)
    for after in (0.5, 1.0, 2.0, 4.0):
        yield Case(f"the output folder vanishes after {after} s", partial(_vanishing, campaign, after))
    if os.geteuid() != 0:
        return
    yield from _small_disks(campaign)
    yield from _of_somebody_else(campaign)


def _limited(campaign: Campaign, size: int, tracked: tuple[str, ...]) -> Result:
    words = (*STUDY, "--out", "full", *tracked)
    return _then_whole(run(words, campaign.home, partial(_no_file_above, size)), campaign, words)


def _vanishing(campaign: Campaign, after: float) -> Result:
    words = (*STUDY, "--out", "vanishing", "--no-tracking")
    timer = threading.Timer(after, lambda: shutil.rmtree(campaign.home / "vanishing", ignore_errors=True))
    timer.start()
    ended = run(words, campaign.home)
    timer.join()
    return _then_whole(ended, campaign, words)


def _places(campaign: Campaign) -> Iterator[Case]:
    (campaign.home / "file").write_text("x")
    for name, words in {
        "--out is a file": ("--out", "file"),
        "--out is below a file": ("--out", "file/below"),
        "--out is a device": ("--out", "/dev/null"),
        "--out is in /proc": ("--out", "/proc/x"),
        "--cache is a file": ("--cache", "file", "--out", "o"),
        "--cache is below a file": ("--cache", "file/below", "--out", "o"),
        "the name of --out is too long": ("--out", "x" * 300),
    }.items():
        yield Case(name, partial(_refused, campaign, (*STUDY, *words, "--no-tracking")))


def _refused(campaign: Campaign, words: tuple[str, ...]) -> Result:
    return Result(told(run(words, campaign.home), (1,)))


# ---- disks of a size, which need root --------------------------------------------------------------------------------


@contextmanager
def _disk(place: Path, options: str) -> Iterator[None]:
    """A disk in memory."""
    place.mkdir()
    subprocess.run(("mount", "-t", "tmpfs", "-o", options, "tmpfs", place), check=True)
    try:
        yield
    finally:
        subprocess.run(("umount", "--lazy", place), check=True)
        place.rmdir()


def _small_disks(campaign: Campaign) -> Iterator[Case]:
    """Really full: of blocks or of entries, from the beginning or later, for a study and for every other command."""
    out, cache = ("--out", "small"), ("--cache", "small", "--out", "beside")
    for size in ("64k", "256k", "512k", "1m", "2m"):
        for name, tracked in _TRACKED.items():
            more = partial(_on_small_disk, campaign, f"size={size}", (*STUDY, *out, *tracked))
            yield Case(f"results on a disk of {size}, {name}", more)
    for count in (3, 10, 20, 30):
        more = partial(_on_small_disk, campaign, f"nr_inodes={count}", (*STUDY, *out))
        yield Case(f"results on a disk of {count} entries", more)
    for options in ("size=64k", "size=256k", "nr_inodes=4"):
        more = partial(_on_small_disk, campaign, options, (*STUDY, *cache, "--no-tracking"))
        yield Case(f"the cache on a disk of {options}", more)
    for begun in ("k1", "k2"):
        name = f"somebody else fills the disk in {begun}"
        yield Case(name, partial(_on_small_disk, campaign, "size=64m", (*STUDY, *out, "--no-tracking"), begun))
    (study,) = (path.relative_to(campaign.home) for path in campaign.sound.glob("synthetic-source_addition*"))
    model, data = str(study / "k2" / "model.safetensors"), ("--data", "synthetic_hospitals")
    for name, words in {
        "evaluate": ("evaluate", model, "--site", SITE, *data, "--split", "valid", *out),
        "report": ("report", str(study), "--out", "small/report.html"),
        "compare": ("compare", str(study / "k1"), str(study / "k2"), *out),
        "site card": ("site", "card", SITE, *data, "--out", "small/card.html"),
        "samples": ("samples", *out, "--size", "tiny"),
    }.items():
        for options in ("size=4k", "ro"):
            yield Case(f"{name} on a disk of {options}", partial(_elsewhere, campaign, options, words))


def _on_small_disk(campaign: Campaign, options: str, words: tuple[str, ...], begun: str = "") -> Result:
    """A study on a disk that is too small or is filled once a folder is there; then there is room."""
    small = campaign.home / "small"
    with _disk(small, options):
        filler = threading.Thread(target=_fill, args=(small, begun), daemon=True)
        if begun:
            filler.start()
        ended = run(words, campaign.home)
        if begun:
            filler.join(60)
            (small / "filled").unlink(missing_ok=True)
        subprocess.run(("mount", "-o", "remount,size=1g,nr_inodes=100000", small), check=True)
        return _then_whole(ended, campaign, words)


def _fill(disk: Path, begun: str) -> None:
    for _ in range(6000):
        if any(disk.glob(f"*/{begun}")):
            break
        time.sleep(0.01)
    with suppress(OSError), (disk / "filled").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def _elsewhere(campaign: Campaign, options: str, words: tuple[str, ...]) -> Result:
    small = campaign.home / "small"
    with _disk(small, options):
        ended = run(words, campaign.home)
        left = sorted(path.name for path in small.rglob("*") if path.name.endswith(".part"))
    unnamed = "" if "small" in ended.text else f"does not name the place: {ended.text[-300:]}"
    return Result(told(ended, (1,)) or unnamed or (f"left {left}" if left else ""))


# ---- folders of others, which need root ------------------------------------------------------------------------------


def _of_somebody_else(campaign: Campaign) -> Iterator[Case]:
    """Run as a user who may read everything and write only where it is said."""
    for name, (words, writable) in {
        "a finished study, all read-only": (("--out", "finished", "--no-tracking"), ""),
        "a finished study with MLflow, all read-only": (("--out", "finished"), ""),
        "a new output folder that cannot be made": (("--out", "new"), ""),
        "a new cache that cannot be made": (("--out", "mine", "--cache", "new", "--no-tracking"), "mine"),
        "a complete cache, read-only": (("--out", "mine", "--no-tracking"), "mine"),
        "one K read-only": (("--out", "part", "--no-tracking"), "part"),
    }.items():
        yield Case(name, partial(_as_somebody_else, campaign, (*STUDY, *words), writable))


def _as_somebody_else(campaign: Campaign, words: tuple[str, ...], writable: str) -> Result:
    home = campaign.home
    for name in ("finished", "part"):
        shutil.copytree(campaign.sound, home / name)
    (home / "mine").mkdir()
    for path in (home, *home.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    for path in (home / writable, *(home / writable).rglob("*")) if writable else ():
        os.chown(path, _NOBODY, _NOBODY)
    if writable == "part":
        (k2,) = (home / "part").glob("*/k2")
        os.chown(k2, 0, 0)
        (k2 / "result.json").unlink()
    ended = run(words, home, partial(os.setuid, _NOBODY))
    for name in ("finished", "part", "mine"):
        shutil.rmtree(home / name)
    return Result(told(ended))


# ---- common to all ---------------------------------------------------------------------------------------------------


def _then_whole(ended: Ended, campaign: Campaign, words: tuple[str, ...]) -> Result:
    """Started again without the fault, the study must come to the sound one's files."""
    out = campaign.home / words[words.index("--out") + 1]
    again = run(words, campaign.home, limit=300)
    found = [told(ended), told(again, (0,)) or ", ".join(differences(out, campaign.sound))]
    for path in out.iterdir() if out.is_dir() else ():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    if not os.path.ismount(out):
        shutil.rmtree(out, ignore_errors=True)
    return Result("; ".join(one for one in found if one))


def _no_file_above(size: int) -> None:
    """As a full disk: writing beyond so many bytes of a file fails."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
