"""Bytes of a federation's round on the wire, beside those of its arrays.

    python -m benchmarks.federation_bytes --save benchmarks/results/federation_bytes.json

Needs the extra `flower`. Two sample hospitals over TLS on loopback, CODASCA with DenseNet121. A relay between hospitals
and server counts what passes in each direction: TLS, HTTP and Flower's envelopes included, TCP's own headers not. A
study is run with few rounds and with more; the difference is that of the rounds alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.federation_loopback import RUN, Loopback, loopback
from chestfed.algorithms.codasca import Codasca
from chestfed.core.bundled import bundled
from chestfed.engines.requests import Work
from chestfed.engines.shapes import Shapes
from chestfed.engines.wire import size_of
from chestfed.models import FlatModule, build_model, network_options
from tests.training.tiny_studies import SMALL

HOSPITALS = ("chexpert", "vindr")
FEW, MANY, DISEASES = 2, 6, 5


class Relay:
    """Passes connections on to a port of this machine; `up` and `down` are the bytes to it and from it."""

    def __init__(self, port: int) -> None:
        self.up = self.down = self.port = 0
        self._to, self._ready = port, threading.Event()
        threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True).start()
        self._ready.wait()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await server.serve_forever()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inward, outward = await asyncio.open_connection("127.0.0.1", self._to)
        except OSError:  # the server is not there yet
            writer.close()
            return
        await asyncio.gather(self._pass(reader, outward, "up"), self._pass(inward, writer, "down"))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: str) -> None:
        try:
            while data := await reader.read(1 << 18):
                setattr(self, way, getattr(self, way) + len(data))
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()


def relayed(federation: Loopback, relays: list[Relay]) -> None:
    """Let the hospitals reach the server through a relay, which is appended; before they are started."""
    for name in HOSPITALS:
        file = federation.folder / "hospitals" / name / "hospital.yaml"
        text = file.read_text(encoding="utf-8")
        port = re.search(r"^server: localhost:(\d+)$", text, flags=re.MULTILINE)
        assert port is not None
        if not relays:
            relays.append(Relay(int(port[1])))
        file.write_text(text.replace(port[0], f"server: localhost:{relays[0].port}"), encoding="utf-8")


def passed(home: Path, rounds: int) -> tuple[int, int, float]:
    """Bytes up and down, and seconds, of a whole study of so many rounds."""
    sites = "\n".join(f"  - config: {bundled('site_configs') / 'synthetic' / f'{name}.yaml'}" for name in HOSPITALS)
    base, file = bundled("pipelines") / "source_addition_samples.yaml", home / f"{rounds}.yaml"
    text = f"extends: {base}\ntitle: Bytes\nsites:\n{sites}\nk: [{len(HOSPITALS)}]\nmodel: {{name: densenet121}}\n"
    file.write_text(text + f"federated: {{stages: 1, stage_steps: {2 * rounds}}}\nevaluation: {{every: 50}}\n")
    settings = [one for one in SMALL if not one.startswith(("model", "federated.stage"))]
    words = ["--out", "runs", "--no-tracking", *(part for one in settings for part in ("--set", one))]
    began = time.monotonic()
    relays: list[Relay] = []
    with loopback(home, HOSPITALS, lambda federation: relayed(federation, relays)) as federation:
        federation.study(file, words)
        federation.start(RUN)
        while (status := federation.ended(RUN)) is None:
            time.sleep(0.5)
        if status:
            raise SystemExit((home / f"{RUN}.log").read_text()[-4000:])
        return relays[0].up, relays[0].down, time.monotonic() - began


def arrays() -> tuple[int, int]:
    """Bytes up and down of the arrays of a round, of all hospitals."""
    network = FlatModule(build_model(network_options("densenet121"), DISEASES, 0), torch.device("cpu"))
    shapes = Shapes(Codasca(1, 0.1, 0.1), network.size + 2 * DISEASES, DISEASES, network.buffers().numel())
    asked = shapes.request("Work", {"after": 0}, "")
    assert isinstance(asked, Work)
    return len(HOSPITALS) * size_of(shapes.reply(asked)), len(HOSPITALS) * size_of(asked)


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", type=Path)
    save = parser.parse_args().save
    found = []
    for rounds in (FEW, MANY):
        with tempfile.TemporaryDirectory(prefix="chestfed-bytes-") as home:
            subprocess.run([sys.executable, "-m", "chestfed", "samples", "--size", "tiny"], cwd=home, check=True)
            found.append(passed(Path(home), rounds))
    told: dict[str, Any] = {"command": "python -m benchmarks.federation_bytes", "hospitals": len(HOSPITALS)}
    for way, counted, few, many in zip(("up", "down"), arrays(), *found, strict=False):
        wire = (many - few) / (MANY - FEW)
        told[way] = {"arrays": counted, "on the wire": round(wire), "more by": f"{100 * (wire / counted - 1):.2f}%"}
    told["seconds a round"] = round((found[1][2] - found[0][2]) / (MANY - FEW), 1)
    print(json.dumps(told, indent=1))
    if save is not None:
        save.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
