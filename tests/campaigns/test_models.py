"""Model files that are damaged, foreign or hostile, given to `chestfed evaluate`: nothing runs, nothing is endless."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import zipfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from chestfed.core.bundled import bundled
from tests.campaigns.children import Campaign, run, sample_cases

SITE = str(bundled("site_configs") / "synthetic" / "chexpert.yaml")
_KINDS = ("safetensors", "pt", "onnx")
NAMES = (
    "whole.safetensors",
    *(f"bit{n}.safetensors" for n in range(10)),
    *(f"hostile.{end}" for end in ("pt", "pth", "ckpt")),
    *(f"{how}.{end}" for how in ("empty", "text") for end in _KINDS),
    *(f"cut{n}.safetensors" for n in (1, 2, 3)),
    *(f"{what}.safetensors" for what in ("header", "long_header", "features", "size", "network", "function")),
    *("shape.safetensors", "diseases.safetensors", "dict.pt", "module.pt", "none.pt", "bomb.pt", "script.pt"),
    "noise.onnx",
)


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
        "whole.safetensors": whole,
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


@pytest.fixture(scope="module")
def files(campaign: Campaign) -> dict[str, bytes]:
    """Content by name; with the undamaged model."""
    return _files(campaign.sound)


@pytest.mark.slow
@pytest.mark.parametrize("name", sample_cases(NAMES, 6))
def test_a_hostile_model_is_refused(campaign: Campaign, files: dict[str, bytes], name: str) -> None:
    assert set(files) == set(NAMES)
    file = campaign.home / name
    file.write_bytes(files[name])
    words = ("--site", SITE, "--data", "synthetic_hospitals", "--split", "valid", "--out", "evaluated")
    result = run(("evaluate", name, *words), campaign.home, limit=60)
    file.unlink()
    result.check(0 if name == "whole.safetensors" else 1)
    assert not (campaign.home / "executed").exists()


def _flip(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :]
