"""Rounds of many hospitals at once with a message of seven million numbers, beside Flower's own FedAvg application.

    python -m benchmarks.federation                         (20 hospitals, about 20 minutes of two cores)
    python -m benchmarks.federation --hospitals 3 --rounds 6 --save FILE

Both take one step of gradient descent on two images per round, with a network of 6,973,405 numbers, over TLS on
loopback, each hospital with its own key. chestfed runs `federation server`, `federation hospital` for each, and
`federation run` (FedAvg, which sends the mean gradient beside the update: twice the bytes up). Flower runs
`flower-superlink`, a `flower-supernode` for each, which starts a process for each message, and `flwr run`.

A round's seconds are the median from one beginning to the next, without the first. Memory is the largest sum of the
proportional set sizes (PSS, shared pages divided among those who share them) of a hospital's or the server's processes,
looked at every two seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from benchmarks.__main__ import machine
from benchmarks.federation_parts.wide import SIDE, WIDTH
from chestfed.core.bundled import bundled
from chestfed.leaves.federation.server.founding import add, create, join
from chestfed.leaves.federation.settings import HOSPITAL_FILE

RESULTS = Path(__file__).parent / "results" / "federation.json"
APP = Path(__file__).parent / "federation_parts" / "flower_app"
ROOT = Path(__file__).parents[1]
SITES = ("chexpert", "chestxray8", "padchest", "mimic_cxr", "vindr")
TOOLS = Path(sys.executable).parent


class Processes:
    """Started processes by name, and the largest memory of each with its children, in MiB."""

    def __init__(self, home: Path) -> None:
        self.home, self.peaks, self.most = home, dict[str, float](), 0.0
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *words: object, **environment: str) -> None:
        """Start a program; what it prints goes to `NAME.log`."""
        threads = {"OMP_NUM_THREADS": "1", "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
        about = {**os.environ, **threads, "PYTHONPATH": str(ROOT), **environment}
        with (self.home / f"{name}.log").open("ab") as log:
            command = [str(word) for word in words]
            streams: dict[str, Any] = {"cwd": self.home, "env": about, "stdout": log, "stderr": log}
            # in a session of its own, with which Linux divides the processor among them and from what else runs
            self._running[name] = subprocess.Popen(command, start_new_session=True, **streams)

    def look(self) -> None:
        """Take in the memory that each has now."""
        now = self.look_at(self._running)
        self.most = max(self.most, sum(now))
        for name, held in zip(self._running, now, strict=True):
            self.peaks[name] = max(self.peaks.get(name, 0.0), held)

    def look_at(self, names: Iterable[str]) -> list[float]:
        """The memory that each of these has now, in MiB."""
        return [sum(map(_proportional, _family(self._running[name].pid))) / 1024 for name in names]

    def wait(self, name: str, seconds: float) -> None:
        """Until a process ends, which must be without an error."""
        ends = time.monotonic() + seconds
        while self._running[name].poll() is None:
            if time.monotonic() > ends:
                raise TimeoutError(f"{name}: {self.read(name)[-2000:]}")
            self.look()
            time.sleep(2)
        if self._running[name].returncode:
            raise RuntimeError(f"{name}: {self.read(name)[-2000:]}")

    def wait_for(self, name: str, text: str, seconds: float = 900) -> None:
        """Until a process has printed a text."""
        ends = time.monotonic() + seconds
        while text not in self.read(name):
            if time.monotonic() > ends:
                raise TimeoutError(f"{name} does not say {text!r}: {self.read(name)[-2000:]}")
            time.sleep(1)

    def failed(self, name: str) -> bool:
        """Whether a process has ended with an error."""
        return bool(self._running[name].poll())

    def read(self, name: str) -> str:
        """What a process has printed."""
        return (self.home / f"{name}.log").read_text(errors="replace")

    def close(self) -> None:
        """End all."""
        for process in self._running.values():
            process.terminate()
        for process in self._running.values():
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


def main(arguments: list[str] | None = None) -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hospitals", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--save", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    numbers = SIDE**2 * WIDTH + WIDTH + WIDTH * 5 + 5
    about = {"hospitals": options.hospitals, "rounds": options.rounds, "numbers": numbers}
    found: dict[str, Any] = {"command": "python -m benchmarks.federation", **about, "machine": machine()}
    found["machine"]["versions"]["flwr"] = metadata.version("flwr")
    for name, measure in PARTS.items():
        if options.only in (None, name):
            with tempfile.TemporaryDirectory() as folder, _processes(Path(folder)) as processes:
                found[name] = measure(processes, options.hospitals, options.rounds)
                print(json.dumps({name: found[name]}, indent=1), flush=True)
    options.save.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def measure_chestfed(processes: Processes, count: int, rounds: int) -> dict[str, Any]:
    """A study of chestfed over its own processes."""
    home, names = processes.home, [f"h{number:02}" for number in range(count)]
    subprocess.run([sys.executable, "-m", "chestfed", "samples", "--size", "tiny"], cwd=home, check=True)
    folder, address = home / "federation", f"localhost:{_free_port()}"
    create(folder, "wide", address)
    for number, name in enumerate(names):
        public, _ = join(home / name, name, address, folder / "authority.crt")
        add(folder, name, public)
        site = bundled("site_configs") / "synthetic" / f"{SITES[number % len(SITES)]}.yaml"
        (home / name / "site.yaml").write_text(f"extends: {site}\nsite: {name}\n")
        settings = yaml.safe_load((home / name / HOSPITAL_FILE).read_text())
        settings |= {"data_root": str(home / "synthetic_hospitals"), "threads": 1, "policy": {"approval": "none"}}
        settings["plugins"] = [f"{WIDE}:WIDE"]
        (home / name / HOSPITAL_FILE).write_text(yaml.safe_dump(settings))
    pipeline = {
        "extends": str(bundled("pipelines") / "source_addition_samples.yaml"),
        "title": "Wide",
        "sites": [{"config": f"{name}.yaml"} for name in names],
        "k": [count],
        "alternatives": None,
        "model": {"name": f"{WIDE}:WIDE"},
        "preprocess": {"size": SIDE},
        "pretrain": {"epochs": 0},
        "methods": [{"algorithm": "fedavg"}],
        "selected": ["fedavg"],
        "federated": {"window": 1, "batch_size": 2, "stages": 1, "stage_steps": rounds},
        "evaluation": {"every": 1000, "hospitals": "none", "resamples": 20},
    }
    (home / "wide.yaml").write_text(yaml.safe_dump(pipeline))
    command = (sys.executable, "-m", "chestfed", "federation")
    processes.start("server", *command, "server", folder)
    for number, name in enumerate(names):
        processes.start(name, *command, "hospital", home / name)
        if number >= AT_A_TIME:
            processes.wait_for("server", f"{names[number - AT_A_TIME]}: online")
    for name in names:
        processes.wait_for("server", f"{name}: online")
    idle = processes.look_at(names)
    processes.start("run", *command, "run", home / "wide.yaml", "--federation", folder, "--no-tracking")
    processes.wait("run", 7200)
    log = [json.loads(line) for line in (home / names[0] / "state" / "hospital.log").read_text().splitlines()]
    times = [datetime.fromisoformat(line["time"]).timestamp() for line in log if line.get("record") == "Work"]
    received, sent = (
        sum(line[way] for line in log if line.get("record") == "Work") / len(times) for way in ("received", "sent")
    )
    return _describe(processes, names, times, ("server", "run"), idle, (received, sent))


def measure_flower(processes: Processes, count: int, rounds: int) -> dict[str, Any]:
    """Flower's FedAvg over its own processes."""
    home, names = processes.home, [f"h{number:02}" for number in range(count)]
    port = _free_port()
    create(home / "keys", "wide", f"localhost:{port}")
    authority, certificate = home / "keys" / "authority.crt", home / "keys" / "server.crt"
    key = home / "keys" / "private" / "server.key"
    (home / "flower").mkdir()
    connection = f'address = "localhost:{port}"\nroot-certificates = "{authority}"\n'
    (home / "flower" / "config.toml").write_text(f'[superlink]\ndefault = "wide"\n\n[superlink.wide]\n{connection}')
    tls = ("--ssl-ca-certfile", authority, "--ssl-certfile", certificate, "--ssl-keyfile", key)
    bare = "--disable-runtime-dependency-installation"
    place = {"FLWR_HOME": str(home / "flower"), "PATH": f"{TOOLS}{os.pathsep}{os.environ['PATH']}"}
    link = (TOOLS / "flower-superlink", *tls, "--port", port, "--enable-supernode-auth", bare)
    processes.start("server", *link, **place)
    _wait_for_port(port)
    for name in names:
        public, _ = join(home / name, name, f"localhost:{port}", authority)
        words = (TOOLS / "flwr", "supernode", "register", public, "wide")
        subprocess.run([str(word) for word in words], cwd=home, env={**os.environ, **place}, check=True)
        node = ("--superlink", f"localhost:{port}", "--root-certificates", authority, "--port", _free_port())
        node = (*node, "--auth-supernode-private-key", home / name / "node.key")
        processes.start(name, TOOLS / "flower-supernode", *node, **place)
    for name in names:
        processes.wait_for(name, "SuperNode ID")
    idle = processes.look_at(names)
    settings = f"rounds={rounds - 1} hospitals={count}"  # the end of the last is timed too
    processes.start("run", TOOLS / "flwr", "run", APP, "wide", "--stream", "--run-config", settings, **place)
    ends = time.monotonic() + 7200
    while "ROUND end" not in processes.read("server") + processes.read("run"):
        if time.monotonic() > ends or processes.failed("run"):
            raise RuntimeError((processes.read("server") + processes.read("run"))[-4000:])
        processes.look()
        time.sleep(2)
    lines = (processes.read("server") + processes.read("run")).splitlines()
    marks = {line.split("ROUND ")[1].split()[0]: float(line.split()[-1]) for line in lines if line.startswith("ROUND ")}
    ways = next(line.split()[1:] for line in lines if line.startswith("BYTES "))
    return _describe(processes, names, sorted(marks.values()), ("server",), idle, tuple(map(float, ways)))


PARTS = {"chestfed": measure_chestfed, "Flower's FedAvg": measure_flower}
WIDE = "benchmarks.federation_parts.wide"
#: Hospitals of chestfed that start at a time.
AT_A_TIME = 6


def _describe(
    processes: Processes,
    names: list[str],
    times: list[float],
    server: tuple[str, ...],
    idle: list[float],
    ways: tuple[float, ...],
) -> dict[str, Any]:
    """Seconds of a round, in all and per hospital, memory in MiB, and the payload of a round, down and up."""
    seconds = statistics.median(after - before for before, after in pairwise(times[1:]))
    held = [processes.peaks[name] for name in names]
    return {
        "seconds per round": round(seconds, 2),
        "seconds per round and hospital": round(seconds / len(names), 2),
        "MB per round and hospital, down and up": [round(bytes_ / 1e6, 1) for bytes_ in ways],
        "MiB of an idle hospital, median": round(statistics.median(idle)),
        "MiB of a hospital, median and largest": [round(statistics.median(held)), round(max(held))],
        "MiB of the server": round(sum(processes.peaks[name] for name in server)),
        "MiB of all at once": round(processes.most),
        "load after": round(os.getloadavg()[0], 1),
    }


@contextmanager
def _processes(home: Path) -> Iterator[Processes]:
    processes = Processes(home)
    try:
        yield processes
    finally:
        processes.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for_port(port: int) -> None:
    for _ in range(600):
        try:
            socket.create_connection(("localhost", port), timeout=5).close()
            return
        except OSError:
            time.sleep(0.5)
    raise TimeoutError(f"nothing listens at {port}")


def _family(process: int) -> Iterator[int]:
    """A process and all that it has started, on Linux."""
    yield process
    try:
        for file in Path("/proc", str(process), "task").glob("*/children"):
            for child in file.read_text().split():
                yield from _family(int(child))
    except OSError:  # it ends just now
        return


def _proportional(process: int) -> int:
    """The proportional set size of a process, in KiB."""
    try:
        lines = Path("/proc", str(process), "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


if __name__ == "__main__":
    main()
