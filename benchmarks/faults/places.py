"""Results in the wrong place, and names of images after damage of the cache: what no check of single files sees."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.faults.cases import Campaign, Case, Result, told
from benchmarks.faults.children import SMALL, STUDY, run
from benchmarks.faults.corruption import flip_bit
from benchmarks.faults.kills import differences
from chestfed.core.bundled import bundled
from chestfed.core.errors import ChestfedError
from chestfed.experiment.loading import load_pipeline
from chestfed.training.clients import load_images
from chestfed.training.pretrain import STATE
from chestfed.training.study_tables import open_sites, study_tables

_PIPELINE = bundled("pipelines") / "source_addition_samples.yaml"
_HOSPITAL = "hospitals/chestxray8"


def _replace(folder: Path, source: Path) -> None:
    shutil.rmtree(folder)
    shutil.copytree(source, folder)


def _exchange(first: Path, second: Path) -> None:
    aside = first.rename(first.with_name("aside"))
    second.rename(first)
    aside.rename(second)


#: What is done to a run folder, with that of another seed beside it.
_CHANGES: dict[str, Callable[[Path, Path], object]] = {
    "k1 copied to k2": lambda study, _: _replace(study / "k2", study / "k1"),
    "k2 copied to k1": lambda study, _: _replace(study / "k1", study / "k2"),
    "k1 and k2 exchanged": lambda study, _: _exchange(study / "k1", study / "k2"),
    "k1 of another seed": lambda study, other: _replace(study / "k1", other / "k1"),
    "k2 of another seed": lambda study, other: _replace(study / "k2", other / "k2"),
    "hospital of another K": lambda study, _: _replace(study / "k2" / _HOSPITAL, study / "k1" / _HOSPITAL),
    "hospital of another seed": lambda study, other: _replace(study / "k2" / _HOSPITAL, other / "k2" / _HOSPITAL),
}


def folders(campaign: Campaign) -> Iterator[Case]:
    """Folders copied, exchanged or of another seed: `report` refuses, the study makes the same tables and says so."""
    for name in _CHANGES:
        yield Case(name, partial(_move, campaign, name))
    yield Case("states of another seed", partial(_resume_foreign, campaign))
    yield Case("run folder renamed", partial(_rename, campaign))
    yield Case("run folder of another seed", partial(_replace_run, campaign))


def _study_in(out: Path) -> Path:
    (folder,) = out.glob("synthetic-source_addition*")
    return folder


def _other(campaign: Campaign) -> Path:
    """The run folder of the same study with another seed."""
    if not (campaign.home / "foreign").exists():
        run((*STUDY, "--out", "foreign", "--no-tracking", "--seed", "7"), campaign.home, limit=300)
    return _study_in(campaign.home / "foreign")


def _copy(campaign: Campaign) -> Path:
    shutil.rmtree(campaign.home / "moved", ignore_errors=True)
    return _study_in(Path(shutil.copytree(campaign.sound, campaign.home / "moved")))


def _move(campaign: Campaign, name: str) -> Result:
    study = _copy(campaign)
    _CHANGES[name](study, _other(campaign))
    report = run(("report", str(study)), campaign.home)
    accepted = report.code == 0 and "hospital" not in name  # its table is stored in the run folder, and is right
    why = ["the report took it"] if accepted else [told(report)]
    return Result("; ".join(filter(None, [*why, *_rerun(campaign, "made again")])))


def _rerun(campaign: Campaign, words: str) -> list[str]:
    """Run the study in the changed folder: what is not as it should be."""
    ended = run((*STUDY, "--out", "moved", "--no-tracking"), campaign.home, limit=300)
    silent = "" if words in ended.text else "silent"
    return [one for one in (told(ended, (0,)), silent, *differences(campaign.home / "moved", campaign.sound)) if one]


def _resume_foreign(campaign: Campaign) -> Result:
    study, other = _copy(campaign), _other(campaign)
    for k in ("k1", "k2"):
        shutil.copy(other / k / STATE, study / k / STATE)
        (study / k / "result.json").unlink()
    (source,), (target,) = (folder.parent.glob("synthetic-pretrained-*") for folder in (other, study))
    shutil.copy(source / STATE, target / STATE)
    return Result("; ".join(_rerun(campaign, "trained again")))


def _rename(campaign: Campaign) -> Result:
    study = _copy(campaign)
    return Result(told(run(("report", str(study.rename(study.with_name("mine")))), campaign.home), (0,)))


def _replace_run(campaign: Campaign) -> Result:
    study = _copy(campaign)
    _replace(study, _other(campaign))
    return Result(told(run((*STUDY, "--out", "moved", "--no-tracking"), campaign.home), (1,)))


def names(campaign: Campaign) -> Iterator[Case]:
    """Bits of the cache: the images that a study gets, and their names, are the same, or it is refused."""
    cache = campaign.home / "cache"
    for file in sorted(path for path in cache.rglob("*") if path.suffix == ".sqlite"):
        place = str(file.relative_to(cache))
        yield Case(f"{place}, {campaign.flips} bits", partial(_flip, campaign, place))
    yield Case("a study after a flipped source", partial(_study_after_flip, campaign))


def _flip(campaign: Campaign, place: str) -> Result:
    before, chance = _read(campaign, campaign.home / "cache"), random.Random(place)
    silent = refused = 0
    for _ in range(campaign.flips):
        copy = _copy_cache(campaign)
        (copy / place).write_bytes(flip_bit((copy / place).read_bytes(), chance))
        try:
            silent += _read(campaign, copy) != before
        except ChestfedError:
            refused += 1
    return Result(f"{silent} silent" if silent else "", {"bits": campaign.flips, "refused": refused})


def _copy_cache(campaign: Campaign) -> Path:
    copy = campaign.home / "damaged-cache"
    shutil.rmtree(copy, ignore_errors=True)
    return Path(shutil.copytree(campaign.home / "cache", copy))


def _read(campaign: Campaign, cache: Path) -> list[Any]:
    """Names and pixels of all images of a study."""
    pipeline = load_pipeline(_PIPELINE, list(SMALL))
    tables = study_tables(pipeline, open_sites(pipeline, _PIPELINE, campaign.home / "synthetic_hospitals"))
    (data,) = load_images([tables], pipeline, cache)
    tests = [data.test, *data.hospitals.values()]
    pixels = [test.images.read(list(range(len(test.image_names)))).tobytes() for test in tests]
    pixels += [client.images.read(list(range(len(client.repeats)))).tobytes() for client in data.clients]
    return [[test.image_names for test in tests], pixels, data.digests, data.shared]


def _study_after_flip(campaign: Campaign) -> Result:
    """A whole study with a cache in which a bit of each image's source has changed."""
    copy, found = _copy_cache(campaign), []
    for file in copy.rglob("images.sqlite"):
        with closing(sqlite3.connect(file)) as index, index:
            kinds = [kind for (kind,) in index.execute("SELECT name FROM kinds") if kind.startswith("pixels-")]
            for kind in kinds:
                for key, source in index.execute(f'SELECT key, c1 FROM "{kind}"').fetchall():
                    changed = flip_bit(source, random.Random(key))
                    index.execute(f'UPDATE "{kind}" SET c1 = ? WHERE key = ?', (changed, key))
    pruned = run(("cache", "prune", str(_copy_aside(copy))), campaign.home)
    found += [told(pruned, (0,))]
    ended = run((*STUDY, "--out", "moved-names", "--cache", copy.name, "--no-tracking"), campaign.home, limit=300)
    found += [told(ended, (0,)), *differences(campaign.home / "moved-names", campaign.sound)]
    shutil.rmtree(campaign.home / "moved-names", ignore_errors=True)
    return Result("; ".join(one for one in found if one))


def _copy_aside(cache: Path) -> Path:
    aside = cache.with_name("verified-cache")
    shutil.rmtree(aside, ignore_errors=True)
    return Path(shutil.copytree(cache, aside))
