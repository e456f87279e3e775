"""Studies killed at random moments, and MLflow's store killed while it is made."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

from benchmarks.faults.cases import Campaign, Case, Result, told
from benchmarks.faults.children import STUDY, Child, Ended, run, start, wait
from chestfed.core.bundled import bundled

_OF_K = ("result.json", "rounds.jsonl", "predictions.parquet", "model.safetensors")
#: What must come out the same to the bit.
SAME = (
    *("table.csv", "significance.csv", "hospitals.csv"),
    *(f"k{k}/{name}" for k in (1, 2) for name in _OF_K),
)
#: Kills of one study before it is left to end.
_CHAINED = 4
SITE = str(bundled("site_configs") / "synthetic" / "chexpert.yaml")


def of_studies(campaign: Campaign) -> Iterator[Case]:
    """Kill studies with MLflow, several times each, then let them end.

    The first kill of each falls into the making of MLflow's store, the others anywhere.
    """
    whole = run((*STUDY, "--out", "timed"), campaign.home).seconds
    shutil.rmtree(campaign.home / "timed")
    for first in range(0, campaign.kills, _CHAINED):
        count = min(_CHAINED, campaign.kills - first)
        name = f"study {first // _CHAINED + 1}, {count} kills"
        yield Case(name, partial(_killed_study, campaign, name, count, whole))


def _killed_study(campaign: Campaign, name: str, count: int, whole: float) -> Result:
    chance, out, found = random.Random(name), campaign.home / "killed", []
    start_study = partial(start, (*STUDY, "--out", out.name), campaign.home)
    _kill_within_making(start_study, out, chance)
    kills = tries = 1
    while kills < count:
        tries += 1
        if tries > 5 * count:
            return Result(f"{kills} kills in {tries} starts")
        ended = wait(start_study(), kill_after=chance.uniform(0, whole))
        kills += ended.code == -9
        if ended.code != -9:  # it was done before: another one is begun
            found += _faults_of(ended, out, campaign.sound)
            shutil.rmtree(out)
    found += _faults_of(run((*STUDY, "--out", out.name), campaign.home, limit=300), out, campaign.sound)
    shutil.rmtree(out)
    return Result("; ".join(found), {"kills": kills, "of them within the making of MLflow's store": 1})


def _kill_within_making(starting: Callable[[], Child], out: Path, chance: random.Random) -> None:
    """Kill a process that makes MLflow's store in a folder while it does, whenever that is."""
    for most in (1.0, 0.5, 0.25, *[0.1] * 20):
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        part = out / ".mlflow.db.part"
        wait(starting(), kill_after=chance.uniform(0, most), counted_from=part.exists)
        if part.exists():
            return
    raise RuntimeError("MLflow's store is made faster than it can be interrupted")


def _faults_of(ended: Ended, out: Path, sound: Path) -> list[str]:
    """What is wrong with a study that was not killed any more."""
    found = [told(ended, (0,)), *differences(out, sound), _unrecorded(out)]
    return [one for one in found if one]


def of_stores(campaign: Campaign) -> Iterator[Case]:
    """Kill processes while they make MLflow's store; the next one must end with a store that works."""
    for number in range(1, campaign.stores + 1):
        yield Case(f"store {number}", partial(_killed_store, campaign, number))


def make_store(out: Path) -> None:
    """MLflow's store in a folder, with a run."""
    from chestfed.tracking.store import Store, local_store

    Store(local_store(out), out / "artifacts").start_run("x", {})


def _killed_store(campaign: Campaign, number: int) -> Result:
    out = campaign.home / f"store-{number}"

    def make() -> None:
        make_store(out)
        raise SystemExit(0)

    making = partial(start, (), campaign.home, make)
    _kill_within_making(making, out, random.Random(number))
    ended = wait(making())
    shutil.rmtree(out)
    why = "a store is set aside" if "set aside" in ended.text else told(ended, (0,))
    return Result(why, {"kills": 1})


def together(campaign: Campaign) -> Iterator[Case]:
    """Commands at the same time in one new output folder with one new cache: each ends well, or in one message."""
    study = {
        "the same study twice": ((), ()),
        "two studies": ((), ("--seed", "2")),
        "two studies of one pipeline's algorithms": (("--algorithm", "coda_plus"), ("--algorithm", "fedavg")),
    }
    for name, each in study.items():
        yield Case(name, partial(_together, campaign, [(*STUDY, *more) for more in each]))
    check = ("site", "check", SITE, "--data", "synthetic_hospitals")
    yield Case("two checks of a site", partial(_together, campaign, [check, check]))
    yield Case("a study while MLflow's page is served", partial(_under_ui, campaign))


def _together(campaign: Campaign, commands: list[tuple[str, ...]]) -> Result:
    studies = [words[0] == "study" for words in commands]
    places = ("--out", "together", "--cache", "new-cache")
    children = [
        start((*words, *(places if study else ())), campaign.home)
        for words, study in zip(commands, studies, strict=True)
    ]
    ended = [wait(child) for child in children]
    found = [told(one) or ("tracking stopped" if "tracking stopped" in one.text else "") for one in ended]
    found += [] if any(one.code == 0 for one in ended) else ["none was done"]
    if len({*commands}) == 1 and all(studies):
        found += differences(campaign.home / "together", campaign.sound)
    for name in ("together", "new-cache"):
        shutil.rmtree(campaign.home / name, ignore_errors=True)
    return Result("; ".join(one for one in found if one))


def _under_ui(campaign: Campaign) -> Result:
    out = campaign.home / "together"
    run((*STUDY, "--out", out.name), campaign.home)
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        port = place.getsockname()[1]
    page = start(("ui", "--out", out.name, "--port", str(port)), campaign.home)
    for _ in range(1200):
        with socket.socket() as visitor:
            if visitor.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.1)
    second = run((*STUDY, "--out", out.name, "--seed", "2"), campaign.home)
    os.kill(page.number, signal.SIGTERM)
    served = wait(page)
    found = [told(second, (0,)), _unrecorded(out, studies=2)]
    found += ["" if served.code == 143 and "Traceback" not in served.text else f"ui: exit {served.code}"]
    shutil.rmtree(out)
    return Result("; ".join(one for one in found if one))


def differences(out: Path, sound: Path) -> list[str]:
    """Files of a study that are not as in the study that was not disturbed."""
    (its,), found = sound.glob("synthetic-source_addition*"), list(out.glob("synthetic-source_addition*"))
    if len(found) != 1:
        return [f"{len(found)} run folders"]
    (ours,) = found
    return [
        name for name in SAME if not (ours / name).exists() or (ours / name).read_bytes() != (its / name).read_bytes()
    ]


def _unrecorded(out: Path, studies: int = 1) -> str:
    """Empty if MLflow has each study and its two K, once and finished; else what it has."""
    with closing(sqlite3.connect(out / "mlflow.db")) as store:
        try:
            found = sorted(status for (status,) in store.execute("SELECT status FROM runs"))
        except sqlite3.OperationalError as error:
            return f"MLflow: {error}"
    return "" if found == ["FINISHED"] * 3 * studies else f"MLflow has runs that are {', '.join(found)}"
