"""A federation over many rounds whose hospitals, server and study are killed and started again at random.

    python -m benchmarks.federation_soak --save benchmarks/results/federation_soak.json

Needs the extra `flower`, and Linux. Three sample hospitals that do not say that they are synthetic, so that their names
are made with a secret key, over TLS on loopback; CODASCA with a tiny network, `absent: wait`.
After rounds that the seed draws, one to four processes are ended by SIGKILL at once and started again: hospitals, the
server, the study's command; one hospital is spared, to see whether a process grows that nobody restarts. Every few
seconds memory and open files of all are looked at, and the rounds that the study has saved, never fewer than before.
At the end the tables and the keyed names must be those of the same study in one process.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from benchmarks.federation_loopback import ROOT, RUN, SERVER, Loopback, loopback
from chestfed.core.bundled import bundled
from chestfed.core.checkpoint import load_checkpoint
from chestfed.core.errors import ChestfedError
from chestfed.core.pseudonyms import VARIABLE, make_key
from chestfed.federation.settings import HOSPITAL_FILE
from tests.federation.straight_line import unmarked
from tests.training.tiny_studies import SMALL

HOSPITALS = ("chexpert", "padchest", "vindr")
SPARED = "padchest"
VICTIMS = ("chexpert", "vindr", SERVER, RUN)
#: What memory may grow by over the second half, in MiB, and open files: caches of libraries fill up in the first.
GROWTH, HANDLES = 32.0, 4


def pipeline_of(home: Path, rounds: int) -> Path:
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


def words_of(out: str) -> list[str]:
    """Options that both studies have."""
    settings = [one for one in SMALL if "stage_steps" not in one]
    return ["--out", out, "--no-tracking", *(part for one in settings for part in ("--set", one))]


def saved_rounds(home: Path) -> int:
    """Rounds that the study has on disk."""
    for file in home.glob(f"runs/*/k{len(HOSPITALS)}/state.safetensors"):
        with contextlib.suppress(ChestfedError):
            return len(load_checkpoint(file)[1]["history"])
    return 0


class Soak:
    """The kills that are to come, and what was seen."""

    def __init__(self, federation: Loopback, rounds: int, kills: int, seed: int) -> None:
        draw, self._plan = np.random.default_rng(seed), list[tuple[int, list[str], float]]()
        sizes = list[int]()
        while sum(sizes) < kills:
            sizes.append(int(draw.integers(1, len(VICTIMS) + 1)))
        for number, size in zip(np.sort(draw.choice(rounds - 4, len(sizes), replace=False)), sizes, strict=True):
            names = [str(name) for name in draw.permutation(VICTIMS)[:size]]
            self._plan.append((int(number) + 2, names, float(draw.uniform(0, 4))))
        self._federation, self._home = federation, federation.home
        self.looks: list[dict[str, Any]] = []
        self.kills: list[dict[str, Any]] = []
        self.most, self.lost, self._began, self._looked = 0, 0, time.monotonic(), 0.0

    def step(self) -> None:
        """Look, and kill if it is time."""
        saved, now = saved_rounds(self._home), time.monotonic() - self._began
        self.lost += max(0, self.most - saved)
        self.most = max(self.most, saved)
        if self._plan and saved >= self._plan[0][0]:
            _, names, delay = self._plan.pop(0)
            time.sleep(delay)
            if self._federation.ended(RUN) is None:
                for act in (self._federation.kill, self._federation.start):
                    for name in names:
                        act(name)
                self.kills += [{"second": round(now), "after_round": saved, "killed": name} for name in names]
                print(f"{now:6.0f} s, round {saved}: kill {len(self.kills)}, {', '.join(names)}", flush=True)
        if now - self._looked >= 15:
            self._looked = now
            names = (SERVER, RUN, *HOSPITALS)
            self.looks.append({"second": round(now), "round": saved, **{n: self._federation.look(n) for n in names}})


def growth(looks: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """Medians of the third and of the last quarter of the looks at a process, and whether they are alike."""
    seen = [one[name] for one in looks if one.get(name)]
    half = seen[len(seen) // 2 :]
    early, late = half[: len(half) // 2], half[len(half) // 2 :]
    told: dict[str, Any] = {}
    for key, most in (("mib", GROWTH), ("files", HANDLES)):
        before, after = (float(np.median([one[key] for one in part])) for part in (early, late))
        told |= {key: [before, after], f"{key}_flat": after - before <= most}
    return told


def tables(home: Path, out: str) -> bytes:
    """What must be equal."""
    (folder,) = (home / out).glob("*/study.json")
    parts = ("table.csv", f"k{len(HOSPITALS)}/rounds.jsonl", "hospitals.csv")
    names = pd.read_parquet(folder.parent / f"k{len(HOSPITALS)}" / "predictions.parquet")[["image", "patient"]]
    found = "".join((folder.parent / part).read_text() for part in parts)
    return f"{folder.parent.name}{found}{names.to_csv()}".encode()


def soak(home: Path, rounds: int, kills: int, seed: int, hours: float) -> dict[str, Any]:
    """The whole of it."""
    pipeline = pipeline_of(home, rounds)
    with loopback(home, HOSPITALS, make_real) as federation:
        command = [sys.executable, "-m", "chestfed", "study", str(pipeline), *words_of("undisturbed")]
        environment = {**os.environ, VARIABLE: str(home / "names.key"), "PYTHONPATH": str(ROOT)}
        subprocess.run(command, cwd=home, env=environment, check=True, stdout=subprocess.DEVNULL)
        federation.study(pipeline, words_of("runs"))
        federation.start(RUN)
        watched, ends = Soak(federation, rounds, kills, seed), time.monotonic() + hours * 3600
        while federation.ended(RUN) is None and time.monotonic() < ends:
            watched.step()
            time.sleep(1)
        status = federation.ended(RUN)
        equal = status == 0 and tables(home, "runs") == tables(home, "undisturbed")
    lines = (home / "runs" / "federation.jsonl").read_text().splitlines()
    events = Counter(json.loads(line)["event"] for line in lines)
    return {
        "rounds": rounds,
        "seed": seed,
        "finished": status == 0,
        "saved_rounds": watched.most,
        "kills": Counter(one["killed"] for one in watched.kills),
        "killed_in_all": len(watched.kills),
        "saved_rounds_lost": watched.lost,
        "tables_equal": equal,
        "seconds": watched.looks[-1]["second"] if watched.looks else 0,
        "events": events,
        "growth": {name: growth(watched.looks, name) for name in (SERVER, RUN, *HOSPITALS)},
        "plan": watched.kills,
        "looks": watched.looks,
    }


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--kills", type=int, default=36)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hours", type=float, default=3.0)
    parser.add_argument("--home", type=Path, help="a folder to keep; default: one that is removed")
    parser.add_argument("--save", type=Path)
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        home = given.home or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="chestfed-soak-")))
        home.mkdir(parents=True, exist_ok=True)
        found = soak(home.absolute(), given.rounds, given.kills, given.seed, given.hours)
    if given.save is not None:
        given.save.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({key: value for key, value in found.items() if key not in ("plan", "looks")}, indent=1))
    sys.exit(not (found["finished"] and found["tables_equal"] and not found["saved_rounds_lost"]))


if __name__ == "__main__":
    main()
