"""One study by every engine: the results are equal, bit by bit.

The five tiny sample hospitals, K=5, two stages, float32 on the CPU, one thread.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from safetensors.torch import load_file

from chestfed.core.bundled import bundled
from chestfed.core.checkpoint import read_json
from tests.studies.training.tiny_studies import SMALL

pytestmark = pytest.mark.campaign
ROOT = Path(__file__).parents[2]
ALGORITHMS = ("codasca", "coda_plus", "scaffold", "local_scgdam", "pdmm")
SETTINGS = [
    *SMALL,
    "k=[5]",
    "evaluation.every=2",
    "federated.stages=2",
    "federated.stage_output=algorithm",
    "model.norm=group",
]

PIPELINE = bundled("pipelines") / "source_addition_samples.yaml"

#: Runs all algorithms in a folder with the hospitals; the second argument is the folder for the runs.
Mode = Callable[[Path, Path], None]


def launch(*start: str) -> Mode:
    """One command that compares the algorithms."""

    def mode(home: Path, out: Path) -> None:
        words = ["study", str(PIPELINE), *_words(out), "--no-tracking", "--methods", ",".join(ALGORITHMS)]
        _call([*start, "-m", "chestfed", *words], home)

    return mode


def torchrun(ranks: int) -> Mode:
    """The same command on so many processes."""
    return launch("-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--master-port", str(29600 + ranks))


def deploy(home: Path, out: Path) -> None:
    """A server and five hospitals as processes, over TLS on loopback."""
    pytest.importorskip("flwr", reason="needs chestfed[flower]")
    from chestfed.leaves.federation.server.founding import sample_sites
    from tests.leaves.federation.loopback import loopback

    with loopback(home, list(sample_sites())) as federation:
        for algorithm in ALGORITHMS:
            words = ["federation", "run", str(PIPELINE), "--federation", str(federation.folder)]
            _call(["-m", "chestfed", *words, *_words(out, algorithm), "--no-tracking"], home)


MODES: dict[str, Mode] = {"2 ranks": torchrun(2), "5 ranks": torchrun(5), "Flower, 1 + 5 processes": deploy}


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory, tiny_hospitals: Path) -> Path:
    """The runs of one process, and the hospitals beside them."""
    home = tmp_path_factory.mktemp("engines")
    (home / "synthetic_hospitals").symlink_to(tiny_hospitals)
    launch()(home, home / "in-process")
    return home / "in-process"


@pytest.mark.parametrize("mode", MODES)
def test_engines_have_equal_results(reference: Path, mode: str) -> None:
    out = reference.parent / mode.replace(",", "").replace(" ", "-")
    MODES[mode](reference.parent, out)
    for algorithm in ALGORITHMS:
        assert digest_run(out, algorithm) == digest_run(reference, algorithm), algorithm


def _words(out: Path, algorithm: str = "") -> list[str]:
    settings = [*SETTINGS, *([f"selected=[{algorithm}]"] if algorithm else [])]
    return ["--out", str(out), *(part for setting in settings for part in ("--set", setting))]


def _call(words: Sequence[str], home: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *words], cwd=home, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")


def digest_run(out: Path, algorithm: str) -> tuple[str, str, str]:
    """The run's name, and digests of its tables and model."""
    (folder,) = [
        file.parent
        for file in out.glob("*/study.json")
        if read_json(file)["configuration"]["federated"]["algorithm"]["name"] == algorithm
    ]
    tensors = load_file(folder / "k5" / "model.safetensors")
    model = hashlib.sha256(b"".join(name.encode() + tensors[name].numpy().tobytes() for name in sorted(tensors)))
    tables = hashlib.sha256((folder / "table.csv").read_bytes() + (folder / "k5" / "rounds.jsonl").read_bytes())
    run = folder.name.rpartition("-")[2]
    return run, tables.hexdigest(), model.hexdigest()
