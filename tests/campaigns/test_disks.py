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

import pytest

from chestfed.core.bundled import bundled
from tests.campaigns.children import STUDY, Campaign, Ended, rerun, run

pytestmark = pytest.mark.campaign
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts disks")
SITE = str(bundled("site_configs") / "synthetic" / "chexpert.yaml")
NOBODY = 65534
TRACKED: dict[str, tuple[str, ...]] = {"MLflow": (), "no MLflow": ("--no-tracking",)}
OUT, CACHE = ("--out", "small"), ("--cache", "small", "--out", "beside", "--no-tracking")


@pytest.mark.parametrize("tracked", TRACKED)
@pytest.mark.parametrize("size", [0, 100, 1_000, 4_096, 10_000, 20_000, 40_000, 60_000, 80_000, 100_000])
def test_files_that_cannot_grow(campaign: Campaign, size: int, tracked: str) -> None:
    words = (*STUDY, "--out", "full", *TRACKED[tracked])
    check_and_rerun(run(words, campaign.home, partial(_no_file_above, size)), campaign, words)


@pytest.mark.parametrize("after", [0.5, 1.0, 2.0, 4.0])
def test_an_output_folder_that_vanishes(campaign: Campaign, after: float) -> None:
    words = (*STUDY, "--out", "vanishing", "--no-tracking")
    timer = threading.Timer(after, lambda: shutil.rmtree(campaign.home / "vanishing", ignore_errors=True))
    timer.start()
    result = run(words, campaign.home)
    timer.join()
    check_and_rerun(result, campaign, words)


@pytest.mark.parametrize(
    "words",
    [
        ("--out", "file"),
        ("--out", "file/below"),
        ("--out", "/dev/null"),
        ("--out", "/proc/x"),
        ("--cache", "file", "--out", "o"),
        ("--cache", "file/below", "--out", "o"),
        ("--out", "x" * 300),
    ],
)
def test_a_place_that_cannot_be_is_refused(campaign: Campaign, words: tuple[str, ...]) -> None:
    (campaign.home / "file").write_text("x")
    run((*STUDY, *words, "--no-tracking"), campaign.home).check(1)


@contextmanager
def mount_disk(place: Path, options: str) -> Iterator[None]:
    """A disk in memory."""
    place.mkdir()
    subprocess.run(("mount", "-t", "tmpfs", "-o", options, "tmpfs", place), check=True)
    try:
        yield
    finally:
        subprocess.run(("umount", "--lazy", place), check=True)
        place.rmdir()


@needs_root
@pytest.mark.parametrize(
    ("options", "words", "begun"),
    [
        *(
            (f"size={size}", (*OUT, *more), "")
            for size in ("64k", "256k", "512k", "1m", "2m")
            for more in TRACKED.values()
        ),
        *((f"nr_inodes={count}", OUT, "") for count in (3, 10, 20, 30)),
        *((options, CACHE, "") for options in ("size=64k", "size=256k", "nr_inodes=4")),
        *(("size=64m", (*OUT, "--no-tracking"), begun) for begun in ("k1", "k2")),
    ],
)
def test_a_study_on_a_full_disk(campaign: Campaign, options: str, words: tuple[str, ...], begun: str) -> None:
    """The disk is too small, or is filled once the folder `begun` is there; then there is room."""
    small, command = campaign.home / "small", (*STUDY, *words)
    with mount_disk(small, options):
        filler = threading.Thread(target=_fill, args=(small, begun), daemon=True)
        if begun:
            filler.start()
        result = run(command, campaign.home)
        if begun:
            filler.join(60)
            (small / "filled").unlink(missing_ok=True)
        subprocess.run(("mount", "-o", "remount,size=1g,nr_inodes=100000", small), check=True)
        check_and_rerun(result, campaign, command)


def _fill(disk: Path, begun: str) -> None:
    for _ in range(6000):
        if any(disk.glob(f"*/{begun}")):
            break
        time.sleep(0.01)
    with suppress(OSError), (disk / "filled").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


@needs_root
@pytest.mark.parametrize("options", ["size=4k", "ro"])
@pytest.mark.parametrize("name", ["evaluate", "report", "compare", "card", "samples"])
def test_a_command_on_a_full_disk(campaign: Campaign, name: str, options: str) -> None:
    (study,) = (path.relative_to(campaign.home) for path in campaign.sound.glob("synthetic-source_addition*"))
    data = ("--data", "synthetic_hospitals")
    words = {
        "evaluate": ("evaluate", f"{study}/k2/model.safetensors", "--site", SITE, *data, "--split", "valid", *OUT),
        "report": ("report", str(study), "--out", "small/report.html"),
        "compare": ("compare", str(study / "k1"), str(study / "k2"), *OUT),
        "card": ("site", "card", SITE, *data, "--out", "small/card.html"),
        "samples": ("samples", *OUT, "--size", "tiny"),
    }[name]
    small = campaign.home / "small"
    with mount_disk(small, options):
        result = run(words, campaign.home)
        assert list(small.rglob("*.part")) == []
    result.check(1)
    assert "small" in result.text


@needs_root
@pytest.mark.parametrize(
    ("words", "writable"),
    [
        (("--out", "finished", "--no-tracking"), ""),
        (("--out", "finished"), ""),
        (("--out", "new"), ""),
        (("--out", "mine", "--cache", "new", "--no-tracking"), "mine"),
        (("--out", "mine", "--no-tracking"), "mine"),
        (("--out", "part", "--no-tracking"), "part"),
    ],
)
def test_folders_of_another_user(campaign: Campaign, words: tuple[str, ...], writable: str) -> None:
    """Run as a user who may read everything and write into one folder, of which one K belongs to root."""
    home = campaign.home
    for name in ("finished", "part"):
        shutil.copytree(campaign.sound, home / name)
    (home / "mine").mkdir()
    for path in (home, *home.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    for path in (home / writable, *(home / writable).rglob("*")) if writable else ():
        os.chown(path, NOBODY, NOBODY)
    if writable == "part":
        (k2,) = (home / "part").glob("*/k2")
        os.chown(k2, 0, 0)
        (k2 / "result.json").unlink()
    result = run((*STUDY, *words), home, partial(os.setuid, NOBODY))
    for name in ("finished", "part", "mine"):
        shutil.rmtree(home / name)
    result.check(0, 1, 2)


def check_and_rerun(result: Ended, campaign: Campaign, words: tuple[str, ...]) -> None:
    """One message; started again without the fault, the study has the files of the undisturbed one."""
    result.check(0, 1, 2)
    rerun(campaign, words)
    out = campaign.home / words[words.index("--out") + 1]
    for path in out.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    if not os.path.ismount(out):
        shutil.rmtree(out)


def _no_file_above(size: int) -> None:
    """As a full disk: writing beyond so many bytes of a file fails."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
