"""One study by every engine: whether the results are equal, bit by bit.

    python -m benchmarks.engines                     # the equality table -> benchmarks/results/engines.json
    python -m benchmarks.engines --modes in-process "torchrun, 5 ranks"

The study: the five tiny sample hospitals, K=5, two stages, float32 on the CPU, one thread. Cells of modes that are not
run now stay as they are in the file, if they are of the same study (its run folder's digest). Flower's modes need the
extra `flower`, the simulation also Flower's own extra `simulation`.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from safetensors.torch import load_file

from chestfed.core.bundled import bundled
from chestfed.core.checkpoint import read_json, write_json
from tests.training.tiny_studies import SMALL

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
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

#: Runs algorithms from a folder with the hospitals; the second argument is the folder for the runs.
Mode = Callable[[Path, Path, Sequence[str]], None]


def by_command(*start: str) -> Mode:
    """One command that compares the algorithms."""

    def mode(home: Path, out: Path, algorithms: Sequence[str]) -> None:
        words = ["study", str(PIPELINE), *_words(out), "--no-tracking", "--methods", ",".join(algorithms)]
        _call([*start, "-m", "chestfed", *words], home)

    return mode


def torchrun(ranks: int) -> Mode:
    """The same command on so many processes."""
    return by_command(
        *("-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--master-port", str(29600 + ranks))
    )


def simulation(home: Path, out: Path, algorithms: Sequence[str]) -> None:
    """The hospitals are virtual nodes of Flower's simulation."""
    for algorithm in algorithms:
        _call(["-m", "benchmarks.federation_simulation", str(PIPELINE), *_words(out, algorithm)], home)


def deployment(home: Path, out: Path, algorithms: Sequence[str]) -> None:
    """A server and five hospitals as processes, over TLS on loopback."""
    from benchmarks.federation_loopback import loopback  # needs Flower
    from chestfed.federation.founding import sample_sites

    with loopback(home, list(sample_sites())) as federation:
        for algorithm in algorithms:
            words = ["federation", "run", str(PIPELINE), "--federation", str(federation.folder)]
            _call(["-m", "chestfed", *words, *_words(out, algorithm), "--no-tracking"], home)


def _words(out: Path, algorithm: str = "") -> list[str]:
    settings = [*SETTINGS, *([f"selected=[{algorithm}]"] if algorithm else [])]
    return ["--out", str(out), *(part for one in settings for part in ("--set", one))]


def _call(words: Sequence[str], home: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *words], cwd=home, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")


#: How a study is run; a mode that another engine adds is one more entry, and needs nothing else.
MODES: dict[str, Mode] = {
    "in-process": by_command(),
    "torchrun, 2 ranks": torchrun(2),
    "torchrun, 5 ranks": torchrun(5),
    "Flower, simulation": simulation,
    "Flower, 1 + 5 processes": deployment,
}


def run(mode: str, home: Path, algorithms: Sequence[str]) -> dict[str, dict[str, str]]:
    """Per algorithm the run, and digests of its tables and of its model."""
    out = home / mode.replace(",", "").replace(" ", "-")
    MODES[mode](home, out, algorithms)
    return {algorithm: digests(out, algorithm) for algorithm in algorithms}


def digests(out: Path, algorithm: str) -> dict[str, str]:
    """Of one finished run among those in a folder."""
    (folder,) = [
        file.parent
        for file in out.glob("*/study.json")
        if read_json(file)["configuration"]["federated"]["algorithm"]["name"] == algorithm
    ]
    tensors = load_file(folder / "k5" / "model.safetensors")
    model = hashlib.sha256(b"".join(name.encode() + tensors[name].numpy().tobytes() for name in sorted(tensors)))
    tables = hashlib.sha256((folder / "table.csv").read_bytes() + (folder / "k5" / "rounds.jsonl").read_bytes())
    run = folder.name.rpartition("-")[2]
    return {"run": run, "tables": tables.hexdigest()[:16], "model": model.hexdigest()[:16]}


def equality(modes: Sequence[str], algorithms: Sequence[str], file: Path) -> None:
    """Fill the table and write it after every mode."""
    with tempfile.TemporaryDirectory() as folder:
        _call(["-m", "chestfed", "samples", "--size", "tiny"], Path(folder))
        for mode in modes:
            found, table = run(mode, Path(folder), algorithms), read_json(file)
            for algorithm, cell in found.items():
                same = {other: its for other, its in table.get(algorithm, {}).items() if its["run"] == cell["run"]}
                table[algorithm] = same | {mode: cell}
                told = "equal" if cell == table[algorithm].get("in-process") else "DIFFERS"
                print(f"{algorithm:14} {mode:20} {cell['tables']} {cell['model']} {told}", flush=True)
            write_json(file, table)


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--algorithms", nargs="+", choices=ALGORITHMS, default=list(ALGORITHMS))
    chosen = parser.parse_args()
    equality(chosen.modes, chosen.algorithms, RESULTS / "engines.json")


if __name__ == "__main__":
    main()
