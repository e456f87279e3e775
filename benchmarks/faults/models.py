"""Model files that are damaged, foreign or hostile, given to `chestfed evaluate`: nothing runs, nothing is endless."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import save_file

from benchmarks.faults.cases import Campaign, Case, Result, told
from benchmarks.faults.children import run
from benchmarks.faults.kills import SITE


class _Touch:
    """A pickle that would leave a file."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch executed",)


def _files(sound: Path) -> dict[str, bytes]:
    (weights,) = sound.glob("synthetic-source_addition*/k2/model.safetensors")
    whole = weights.read_bytes()
    (length,) = struct.unpack("<Q", whole[:8])
    header = json.loads(whole[8 : 8 + length])

    def described(**changes: object) -> bytes:
        values = json.loads(header["__metadata__"]["chestfed"]) | changes
        values.pop("checksum")
        file = Path(weights.parent / "changed.safetensors")
        save_file({"a": torch.zeros(2)}, file, {"chestfed": json.dumps(values)})
        try:
            return file.read_bytes()
        finally:
            file.unlink()

    def saved(value: object) -> bytes:
        memory = io.BytesIO()
        torch.save(value, memory)
        return memory.getvalue()

    def zipped(members: dict[str, bytes]) -> bytes:
        memory = io.BytesIO()
        with zipfile.ZipFile(memory, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in members.items():
                archive.writestr(name, content)
        return memory.getvalue()

    flipped = {f"bit{n}.safetensors": _flip(whole, len(whole) * n // 10) for n in range(10)}
    model = json.loads(header["__metadata__"]["chestfed"])["model"]
    hostile = {"pt": pickle.dumps(_Touch()), "pth": saved({"state_dict": _Touch()}), "ckpt": saved(_Touch())}
    return {
        **flipped,
        **{f"hostile.{end}": content for end, content in hostile.items()},
        **{f"empty.{end}": b"" for end in ("safetensors", "pt", "onnx")},
        **{f"text.{end}": b"not a model\n" * 20 for end in ("safetensors", "pt", "onnx")},
        **{f"cut{n}.safetensors": whole[: len(whole) * n // 4] for n in (1, 2, 3)},
        "header.safetensors": struct.pack("<Q", 2**60) + whole[8:],
        "long_header.safetensors": struct.pack("<Q", 10**9) + whole[8:],
        "features.safetensors": described(model={**model, "init_features": 10**9}),
        "size.safetensors": described(preprocess={"size": 10**7}),
        "network.safetensors": described(model={"name": "os:system"}),
        "function.safetensors": described(model={"name": "timm:create_model", "options": {"model_name": "hf-hub:a/b"}}),
        "shape.safetensors": described(model=[1]),
        "diseases.safetensors": described(diseases="edema"),
        "dict.pt": saved({"a": 1}),
        "module.pt": saved(torch.nn.Linear(2, 2)),
        "none.pt": saved(None),
        "bomb.pt": zipped({"x/data.pkl": b"\0" * 50_000_000}),
        "script.pt": zipped({"x/constants.pkl": pickle.dumps(()), "x/code/x.py": b"while True: pass"}),
        "noise.onnx": bytes(range(256)) * 100,
    }


def cases(campaign: Campaign) -> Iterator[Case]:
    """One case per file; the undamaged one is scored, so that a refusal is about the file."""
    (weights,) = campaign.sound.glob("synthetic-source_addition*/k2/model.safetensors")
    yield Case("the model itself", partial(_evaluate, campaign, weights.name, weights.read_bytes(), 0))
    for name, content in _files(campaign.sound).items():
        yield Case(name, partial(_evaluate, campaign, name, content, 1))


def _evaluate(campaign: Campaign, name: str, content: bytes, code: int) -> Result:
    file = campaign.home / name
    file.write_bytes(content)
    words = ("--site", SITE, "--data", "synthetic_hospitals", "--split", "valid", "--out", "evaluated")
    ended = run(("evaluate", name, *words), campaign.home, limit=60)
    file.unlink()
    return Result("it was executed" if (campaign.home / "executed").exists() else told(ended, (code,)))


def _flip(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :]
