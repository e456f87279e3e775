"""Coverage-guided fuzzing, with atheris, of what reads the files and messages of others: it reads or refuses.

Each target runs in a process of its own, from the samples of `tests/fuzzed`, when atheris is installed (it is not part
of the lock): `pytest -m campaign -k fuzz`. An input that ends in anything but a `ChestfedError` is kept in the folder
that the test names, and belongs into `tests/fuzzed` once it is fixed: test_fuzz.py reads all of it again.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

SAMPLES = Path(__file__).parents[1] / "fuzzed"
#: The slowest input and the memory that a target may take.
SECONDS, MEGABYTES = 60, 4096


def _yaml(home: Path) -> Callable[[bytes], object]:
    """A site's YAML and a pipeline's."""
    from chestfed.data.sites import load_site_config
    from chestfed.studies.experiment.loading import load_pipeline

    def read(content: bytes) -> None:
        (home / "x.yaml").write_bytes(content)
        (load_site_config if content[:1] == b"s" else load_pipeline)(home / "x.yaml")

    return read


def _labels(home: Path) -> Callable[[bytes], object]:
    """A hospital's table, as text or workbook."""
    import yaml

    from chestfed.data.sites import load_site_config, open_site

    columns = {"image": "File", "patient": "Patient", "view": "View", "age": "Age"}
    common = {
        "title": "Fuzzed",
        "reader": "table",
        "root": ".",
        "views": "all",
        "diseases": ["edema"],
        "blank": "missing",
    }
    site = {**common, "site": "fuzzed", "uncertain": "missing", "label_files": {"table": ["labels.*"]}}
    site |= {"labels": {"edema": ["Edema"]}, "table": {"columns": columns}, "one_class": "all"}
    (home / "site.yaml").write_text(yaml.safe_dump(site))
    config = load_site_config(home / "site.yaml")

    def read(content: bytes) -> None:
        for old in home.glob("labels.*"):
            old.unlink()
        ending = "xlsx" if content[:2] == b"PK" else "csv"
        (home / f"labels.{ending}").write_bytes(content)
        open_site(config, home)

    return read


def _picture(home: Path) -> Callable[[bytes], object]:
    """A picture of any format, DICOM before all."""
    from chestfed.data.images.decode import decode

    def read(content: bytes) -> None:
        (home / "picture").write_bytes(content)
        decode(home / "picture")

    return read


def _results(home: Path) -> Callable[[bytes], object]:
    """The files of a run folder; the first byte says which."""
    from chestfed.core.checkpoint import load_checkpoint
    from chestfed.results.tables import files, frames

    readers: dict[bytes, Callable[[Path], object]] = {
        b"P": files.read_predictions,  # parquet begins with it
        b"{": frames.read_row,
        b"l": files.read_rounds,
    }

    def read(content: bytes) -> None:
        name = "result.json" if content[:1] == b"{" else "file"
        (home / name).write_bytes(content)
        readers.get(content[:1], load_checkpoint)(home if name == "result.json" else home / name)

    return read


def _message(home: Path) -> Callable[[bytes], object]:
    """A header of a message between server and hospital; its numbers are those of the first one sent."""
    import numpy as np
    import torch

    from chestfed.learning.algorithms.codasca import Codasca
    from chestfed.learning.engines.messages.requests import Work
    from chestfed.learning.engines.messages.shapes import Shapes
    from chestfed.learning.engines.messages.wire import Packed, peek, unpack

    shapes = Shapes(Codasca(2, 0.1, 0.1), 6, 2, 3)
    arrays = {"float32": np.zeros(16 + 3 + 6, np.float32), "int64": np.zeros(2, np.int64)}

    def read(content: bytes) -> None:
        packed = Packed(content, arrays)
        name, plain = peek(content, "a hospital")
        unpack(packed, shapes.request(name, plain, "a hospital"), "a hospital")
        unpack(packed, shapes.reply(Work(0, None, torch.zeros(3))), "a hospital")

    return read


TARGETS = {"yaml": _yaml, "labels": _labels, "picture": _picture, "results": _results, "message": _message}


def read_once(target: str, content: bytes, home: Path) -> None:
    """Give a target one input.

    Raises
    ------
    Exception
        Anything but what says that the input is refused.
    """
    refusing(TARGETS[target](home))(content)


def refusing(read: Callable[[bytes], object]) -> Callable[[bytes], None]:
    from chestfed.core.errors import ChestfedError

    def call(content: bytes) -> None:
        with suppress(ChestfedError):
            read(content)

    return call


def _fuzz(target: str, words: list[str]) -> None:
    """Become libFuzzer; does not return."""
    import atheris

    with atheris.instrument_imports(include=["chestfed", "pydicom", "yaml"]), tempfile.TemporaryDirectory() as home:
        read = refusing(TARGETS[target](Path(home)))
        for sample in sorted((SAMPLES / target).iterdir()):  # imports what is needed, which takes seconds
            read(sample.read_bytes())
        atheris.Setup([sys.argv[0], *words], read)
        atheris.Fuzz()


def fuzz(target: str, seconds: int, folder: Path) -> None:
    """Fuzz a target in a process of its own; raises CalledProcessError if an input fails."""
    folder.mkdir(parents=True, exist_ok=True)
    bounds = (f"-max_total_time={seconds}", f"-timeout={SECONDS}", f"-rss_limit_mb={MEGABYTES}")
    words = [str(folder), str(SAMPLES / target), *bounds, f"-artifact_prefix={folder}/failed-"]
    code = f"from tests.campaigns import fuzz; fuzz._fuzz({target!r}, {words!r})"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])
