"""A federation over many rounds whose hospitals, server and study are killed and started again at random.

Three sample hospitals that are not marked as synthetic, so that their names are made with a secret key, over TLS on
loopback; CODASCA with a tiny network, `absent: wait`. After rounds that the seed draws, one to four processes are
ended by SIGKILL at once and started again: hospitals, the server, the study's command; one hospital is spared, to see
whether its memory grows. At the end the tables and the keyed names must be those of the same study in one process.

Then the same behind a proxy: ten kills of a hospital, of the server and of the study's command, ten network faults of
each kind, one or two at once, a hospital that is admitted and started late, a renewed certificate. More than an hour:

    CHESTFED_SOAK_ROUNDS=100 python -m pytest -m campaign tests/campaigns/test_federation_soak.py -k network
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from chestfed.core.bundled import bundled
from chestfed.core.checkpoint import load_checkpoint
from chestfed.core.errors import ChestfedError
from chestfed.core.pseudonyms import VARIABLE, make_key
from chestfed.leaves.federation.settings import HOSPITAL_FILE
from tests.leaves.federation.straight_line import unmarked
from tests.studies.training.tiny_studies import SMALL

pytest.importorskip("flwr", reason="needs chestfed[flower]")
from chestfed.leaves.federation.server.founding import add, remove, renew
from tests.leaves.federation.loopback import ROOT, RUN, SERVER, Loopback, loopback
from tests.leaves.federation.proxy import FAULTS, Proxy

pytestmark = pytest.mark.campaign
ROUNDS, KILLS, SEED = 200, 31, 1
HOSPITALS = ("chexpert", "padchest", "vindr")
SPARED = "padchest"
VICTIMS = ("chexpert", "vindr", SERVER, RUN)
#: What memory may grow by over the second half, in MiB, and open files: caches of libraries fill up in the first.
GROWTH, HANDLES = 32.0, 4


def write_pipeline(home: Path, rounds: int = ROUNDS) -> Path:
    """A study of so many rounds."""
    sites = "\n".join(f"  - config: {home / 'sites' / f'{name}.yaml'}" for name in HOSPITALS)
    file = home / "soak.yaml"
    base = bundled("pipelines") / "source_addition_samples.yaml"
    text = f"extends: {base}\ntitle: Soak\ndata_root: {home / 'unmarked_hospitals'}\n"
    text += f"sites:\n{sites}\nk: [{len(HOSPITALS)}]\n"
    file.write_text(text + f"federated: {{stages: 1, stage_steps: {2 * rounds}}}\nevaluation: {{every: 50}}\n")
    return file


def make_real(federation: Loopback) -> None:
    """Site YAMLs and images that do not say synthetic, and one secret key for all, so that all name alike."""
    home = federation.home
    data = unmarked(home / "synthetic_hospitals")
    (home / "sites").mkdir(exist_ok=True)
    make_key(home / "names.key")
    for name in HOSPITALS:
        site, folder = home / "sites" / f"{name}.yaml", federation.folder / "hospitals" / name
        site.write_text(f"extends: {bundled('site_configs') / 'synthetic' / f'{name}.yaml'}\nsynthetic: false\n")
        settings = yaml.safe_load((folder / HOSPITAL_FILE).read_text()) | {"site": str(site), "data_root": str(data)}
        (folder / HOSPITAL_FILE).write_text(yaml.safe_dump(settings))
        shutil.copy(home / "names.key", folder / "names.key")


def list_options(out: str) -> list[str]:
    """Options that both studies have."""
    settings = [setting for setting in SMALL if "stage_steps" not in setting]
    return ["--out", out, "--no-tracking", *(part for setting in settings for part in ("--set", setting))]


def saved_rounds(home: Path) -> int:
    """Rounds that the study has on disk."""
    for file in home.glob(f"runs/*/k{len(HOSPITALS)}/state.safetensors"):
        with contextlib.suppress(ChestfedError):
            return len(load_checkpoint(file)[1]["history"])
    return 0


class Soak:
    """The kills that are to come, and what was seen."""

    def __init__(self, federation: Loopback) -> None:
        draw, self._plan = np.random.default_rng(SEED), list[tuple[int, list[str], float]]()
        sizes = list[int]()
        while sum(sizes) < KILLS:
            sizes.append(int(draw.integers(1, len(VICTIMS) + 1)))
        for number, size in zip(np.sort(draw.choice(ROUNDS - 4, len(sizes), replace=False)), sizes, strict=True):
            names = [str(name) for name in draw.permutation(VICTIMS)[:size]]
            self._plan.append((int(number) + 2, names, float(draw.uniform(0, 4))))
        self._federation, self._home = federation, federation.home
        self.looks: list[dict[str, Any]] = []
        self.kills: list[dict[str, Any]] = []
        self.most, self.lost_rounds, self._began, self._looked = 0, 0, time.monotonic(), 0.0

    def step(self) -> None:
        """Look, and kill if it is time."""
        saved, now = saved_rounds(self._home), time.monotonic() - self._began
        self.lost_rounds += max(0, self.most - saved)
        self.most = max(self.most, saved)
        if self._plan and saved >= self._plan[0][0]:
            _, names, delay = self._plan.pop(0)
            time.sleep(delay)
            if self._federation.ended(RUN) is None:
                for act in (self._federation.kill, self._federation.start):
                    for name in names:
                        act(name)
                self.kills += [{"second": round(now), "after_round": saved, "killed": name} for name in names]
        if now - self._looked >= 15:
            self._looked = now
            self.looks.append({name: self._federation.look(name) for name in (SERVER, SPARED)})


def measure_growth(looks: list[dict[str, Any]], name: str) -> dict[str, list[float]]:
    """Median memory (MiB) and open files of a process in the third and in the last quarter of the looks at it."""
    seen = [look[name] for look in looks if look.get(name)]
    half = seen[len(seen) // 2 :]
    parts = (half[: len(half) // 2], half[len(half) // 2 :])
    return {key: [float(np.median([look[key] for look in part])) for part in parts] for key in ("mib", "files")}


def read_tables(home: Path, out: str) -> bytes:
    """What must be equal."""
    (folder,) = (home / out).glob("*/study.json")
    parts = ("table.csv", f"k{len(HOSPITALS)}/rounds.jsonl", "hospitals.csv")
    names = pd.read_parquet(folder.parent / f"k{len(HOSPITALS)}" / "predictions.parquet")[["image", "patient"]]
    tables = "".join((folder.parent / part).read_text() for part in parts)
    return f"{folder.parent.name}{tables}{names.to_csv()}".encode()


def test_killed_processes_lose_no_round(tmp_path: Path, save_figures: Callable[[str, Any], None]) -> None:
    pipeline = write_pipeline(tmp_path)
    with loopback(tmp_path, HOSPITALS, make_real) as federation:
        command = [sys.executable, "-m", "chestfed", "study", str(pipeline), *list_options("undisturbed")]
        environment = {**os.environ, VARIABLE: str(tmp_path / "names.key"), "PYTHONPATH": str(ROOT)}
        subprocess.run(command, cwd=tmp_path, env=environment, check=True, stdout=subprocess.DEVNULL)
        federation.study(pipeline, list_options("runs"))
        federation.start(RUN)
        soak = Soak(federation)
        while federation.ended(RUN) is None:
            soak.step()
            time.sleep(1)
        assert federation.ended(RUN) == 0
    growth = {name: measure_growth(soak.looks, name) for name in (SPARED, SERVER)}
    save_figures("federation_soak", {"kills": soak.kills, "growth": growth})
    assert soak.lost_rounds == 0
    assert read_tables(tmp_path, "runs") == read_tables(tmp_path, "undisturbed")
    for process in growth.values():
        assert process["mib"][1] - process["mib"][0] <= GROWTH
        assert process["files"][1] - process["files"][0] <= HANDLES


#: Hospitals that reach the server through a proxy; the last one is admitted when the server runs already, and started
#: when the others wait for it.
BEHIND, LATE = ("chexpert", "vindr"), "vindr"
#: Who is killed, by kind of kill.
KILLED = {"kill of a hospital": HOSPITALS, "kill of the server": (SERVER,), "kill of the study": (RUN,)}
#: Faults and kills of each kind; seconds that a fault lasts; seconds in which it must have met data, and in which the
#: study must go on after it; share of the rounds in which all begin.
OFTEN, LASTING, MEETS, BACK, SHARE = 10, (2.0, 10.0), 120.0, 600.0, 0.85


class NetworkSoak:
    """Faults and kills that are to come, one or two at once, by the round after which they do, and what was done."""

    def __init__(self, federation: Loopback, proxies: dict[str, Proxy], rounds: int) -> None:
        self._federation, self._proxies, self._draw = federation, proxies, np.random.default_rng(SEED)
        kinds = [*(kind for kind in (*FAULTS, *KILLED) for _ in range(OFTEN)), "renew"]
        order, groups = self._draw.permutation(kinds).tolist(), list[list[str]]()
        while order:
            groups.append([order.pop() for _ in range(min(len(order), int(self._draw.integers(1, 3))))])
        after = np.sort(self._draw.choice(int(SHARE * rounds), len(groups), replace=False)) + 2
        self.plan = list(zip((int(number) for number in after), groups, strict=True))
        self.done: list[dict[str, Any]] = []

    def step(self) -> None:
        """Do what is due; then wait until the study has saved one more round."""
        if not self.plan or saved_rounds(self._federation.home) < self.plan[0][0]:
            return
        kinds, began = self.plan.pop(0)[1], time.monotonic()
        places = dict(zip(self._draw.permutation(BEHIND).tolist(), filter(FAULTS.__contains__, kinds), strict=False))
        met = {name: self._proxies[name].met for name in places}
        for name, kind in places.items():
            self._proxies[name].fault = kind
        time.sleep(float(self._draw.uniform(0, LASTING[0])))
        killed = [self._kill(kind) for kind in kinds if kind not in FAULTS]
        time.sleep(float(self._draw.uniform(*LASTING)))
        for name, kind in places.items():
            while self._proxies[name].met == met[name]:
                assert time.monotonic() < began + MEETS, f"nothing met the fault {kind}"
                time.sleep(1)
            self._proxies[name].fault = "pass"
        saved, ended = saved_rounds(self._federation.home), time.monotonic()
        while saved_rounds(self._federation.home) <= saved and self._federation.ended(RUN) is None:
            assert time.monotonic() < ended + BACK, f"the study does not go on after {kinds}"
            time.sleep(1)
        about = {"kinds": kinds, "at": [*places, *killed], "round": saved, "seconds": round(ended - began)}
        self.done.append({**about, "went_on_after": round(time.monotonic() - ended)})
        print(self.done[-1], flush=True)

    def _kill(self, kind: str) -> str:
        """End a process at once, and start it again; whom."""
        name = SERVER if kind == "renew" else str(self._draw.choice(KILLED[kind]))
        if kind == "renew":
            renew(self._federation.folder)
        self._federation.kill(name)
        self._federation.start(name)
        return name


def test_network_faults_lose_no_round(tmp_path: Path, save_figures: Callable[[str, Any], None]) -> None:
    rounds = int(os.environ.get("CHESTFED_SOAK_ROUNDS", str(ROUNDS)))
    pipeline, proxies = write_pipeline(tmp_path, rounds), dict[str, Proxy]()

    def prepare(federation: Loopback) -> None:
        make_real(federation)
        for name in BEHIND:
            file = federation.folder / "hospitals" / name / HOSPITAL_FILE
            settings = yaml.safe_load(file.read_text())
            proxies[name] = Proxy(int(settings["server"].rpartition(":")[2]))
            file.write_text(yaml.safe_dump(settings | {"server": f"localhost:{proxies[name].port}"}))

        remove(federation.folder, LATE)

    present = [name for name in HOSPITALS if name != LATE]
    with loopback(tmp_path, HOSPITALS, prepare, present) as federation:
        command = [sys.executable, "-m", "chestfed", "study", str(pipeline), *list_options("undisturbed")]
        environment = {**os.environ, VARIABLE: str(tmp_path / "names.key"), "PYTHONPATH": str(ROOT)}
        subprocess.run(command, cwd=tmp_path, env=environment, check=True, stdout=subprocess.DEVNULL)
        add(federation.folder, LATE, federation.folder / "hospitals" / LATE / f"{LATE}.pub")
        federation.study(pipeline, list_options("runs"))
        federation.start(RUN)
        time.sleep(60)
        assert saved_rounds(tmp_path) == 0
        federation.start(LATE)
        soak = NetworkSoak(federation, proxies, rounds)
        while federation.ended(RUN) is None:
            soak.step()
            time.sleep(1)
        assert federation.ended(RUN) == 0
    save_figures("federation_network", soak.done)
    assert not soak.plan
    counts = Counter(kind for about in soak.done for kind in about["kinds"])
    assert counts == {"renew": 1} | dict.fromkeys((*FAULTS, *KILLED), OFTEN)
    assert read_tables(tmp_path, "runs") == read_tables(tmp_path, "undisturbed")
