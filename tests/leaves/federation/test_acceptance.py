"""A whole study over TLS in which everything happens once; its table is that of the hospitals that took part.

Five tiny sample hospitals and a server as processes of this machine. `vindr` comes late, `padchest` leaves for good,
`mimic_cxr` gets a new key, and five times a process is ended by SIGKILL, at different places. In process the same
study has the four hospitals that took part, so its K are smaller by the one that left.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from chestfed.core.bundled import bundled
from chestfed.core.checkpoint import load_checkpoint
from chestfed.core.errors import ChestfedError
from tests.studies.training.tiny_studies import SMALL

pytest.importorskip("flwr", reason="needs chestfed[flower]")
from chestfed.leaves.federation.server.founding import add, rekey
from chestfed.leaves.federation.server.progress import stop_study
from tests.leaves.federation.loopback import ROOT, RUN, SERVER, Loopback, loopback

pytestmark = pytest.mark.campaign
TARGET, LOST, REKEYED, LATE = "chexpert", "padchest", "mimic_cxr", "vindr"
HOSPITALS = (TARGET, "chestxray8", LOST, REKEYED, LATE)
#: K of the study, which is formed of the first K hospitals -> K of the study of those that took part.
ALONE = {2: 2, 4: 3, 5: 4}
SETTINGS = [
    *(setting for setting in SMALL if not setting.startswith(("federated.stage_steps", "pretrain.epochs"))),
    "federated.stages=1",
    "federated.stage_steps=16",
    "pretrain.epochs=4",
    "evaluation.every=4",
]
#: Seconds for one of the events below; a hospital that was killed in mid-answer comes back within three minutes.
LONGEST = 900.0


def write_pipeline(home: Path, name: str, hospitals: Sequence[str], ks: Sequence[int]) -> list[str]:
    """A pipeline of these hospitals; the words of a command that runs it."""
    sites = "\n".join(f"  - config: {bundled('site_configs') / 'synthetic' / f'{site}.yaml'}" for site in hospitals)
    base = bundled("pipelines") / "source_addition_samples.yaml"
    text = f"extends: {base}\ntitle: Acceptance\ndata_root: {home / 'synthetic_hospitals'}\nsites:\n{sites}\n"
    file = home / f"{name}.yaml"
    file.write_text(f"{text}k: {list(ks)}\n")
    options = [part for setting in SETTINGS for part in ("--set", setting)]
    return [str(file), "--out", name, "--no-tracking", *options]


class Story:
    """What happens to the study, in this order."""

    def __init__(self, federation: Loopback, words: list[str]) -> None:
        self._federation, self._home, self._words = federation, federation.home, words
        self.events: list[dict[str, Any]] = []
        self._began = time.monotonic()

    def run(self, *further: str) -> None:
        """Start the command, or resume what it left."""
        self._federation.study(Path(self._words[0]), [*self._words[1:], *further])
        self._federation.start(RUN)

    def wait(self, event: str, comes: Callable[[], object]) -> None:
        """Until something has come; the command must not end before."""
        ends = time.monotonic() + LONGEST
        while not comes():
            assert self._federation.ended(RUN) is None, f"the command ended before: {event}"
            assert time.monotonic() < ends, f"did not come: {event}"
            time.sleep(0.2)
        self.note(event)

    def note(self, event: str) -> None:
        self.events.append({"second": round(time.monotonic() - self._began), "event": event})

    def kill(self, name: str, *, restart: bool = True) -> None:
        self._federation.kill(name)
        self.note(f"{name} is killed")
        if restart and name != RUN:
            self._federation.start(name)

    def has_rounds(self, k: int, rounds: int) -> bool:
        """Whether the study has saved so many rounds of K."""
        for file in self._home.glob(f"hospitals/*/k{k}/state.safetensors"):
            with contextlib.suppress(ChestfedError):
                return len(load_checkpoint(file)[1]["history"]) >= rounds
        return False

    def waits_for(self, name: str) -> bool:
        """Whether the running study waits for a hospital."""
        with contextlib.suppress(OSError, ValueError):
            return name in json.loads((self._federation.folder / "running.json").read_text())["waits_for"]
        return False

    def has_logged(self, name: str, text: str) -> bool:
        return text in (self._home / f"{name}.log").read_text()


def play(federation: Loopback, words: list[str]) -> Story:
    """The whole story, to the end of the study."""
    story = Story(federation, words)
    story.run("--without", LATE)
    story.wait("stage 1 is under way", lambda: story.has_logged(TARGET, "stage 1: step"))
    story.kill(TARGET)
    story.wait("K=2 has 2 rounds", lambda: story.has_rounds(2, 2))
    story.kill("chestxray8")
    public, _ = rekey(federation.folder / "hospitals" / REKEYED)
    add(federation.folder, REKEYED, public, replace=True)
    federation.kill(REKEYED)
    federation.start(REKEYED)
    story.note(f"{REKEYED} has a new key")
    story.wait("K=2 has 4 rounds", lambda: story.has_rounds(2, 4))
    story.kill(SERVER)
    story.wait("K=2 has 6 rounds", lambda: story.has_rounds(2, 6))
    federation.kill(LOST)
    story.note(f"{LOST} is gone for good")
    story.wait(f"the study waits for {LOST}", lambda: story.waits_for(LOST))
    stop_study(federation.folder)
    while federation.ended(RUN) is None:
        time.sleep(0.2)
    federation.start(LATE)
    story.run("--without", LOST, "--rejoin", LATE)
    story.wait("K=4 has 3 rounds", lambda: story.has_rounds(4, 3))
    story.kill(RUN)
    story.run()
    story.wait("K=5 has 3 rounds", lambda: story.has_rounds(5, 3))
    story.kill(LATE)
    while federation.ended(RUN) is None:
        time.sleep(0.2)
    story.note("the study ended")
    return story


def test_table_is_of_those_who_took_part(tmp_path: Path, save_figures: Callable[[str, Any], None]) -> None:
    took_part = [name for name in HOSPITALS if name != LOST]
    words = write_pipeline(tmp_path, "hospitals", HOSPITALS, list(ALONE))
    with loopback(tmp_path, HOSPITALS, present=[name for name in HOSPITALS if name != LATE]) as federation:
        story = play(federation, words)
        assert federation.ended(RUN) == 0, (tmp_path / "run.log").read_text()[-2000:]
    alone = write_pipeline(tmp_path, "alone", took_part, list(ALONE.values()))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-m", "chestfed", "study", *alone], cwd=tmp_path, env=environment, check=True)
    save_figures("federation_acceptance", story.events)
    compare_runs(tmp_path)


def compare_runs(home: Path) -> None:
    """The study over hospitals has the table, byte for byte, and the models of the one in process."""
    (over,), (single,) = ((home / out).glob("*/table.csv") for out in ("hospitals", "alone"))
    assert rename_ks(single.read_text()) == over.read_text()
    for k, k_alone in ALONE.items():
        files = over.parent / f"k{k}" / "model.safetensors", single.parent / f"k{k_alone}" / "model.safetensors"
        ours, theirs = ({name: tensor.tobytes() for name, tensor in load_file(file).items()} for file in files)
        assert ours == theirs


def rename_ks(table: str) -> str:
    """The table of those that took part, with the K of all five in its columns `model` and `k`."""
    names = {str(alone): str(k) for k, alone in ALONE.items()}

    def rename(line: str) -> str:
        data, _, algorithm, window, k, rest = line.split(",", 5)
        return ",".join((data, f"K={names[k]}", algorithm, window, names[k], rest)) if k in names else line

    return "\n".join(map(rename, table.split("\n")[:-1])) + "\n"
