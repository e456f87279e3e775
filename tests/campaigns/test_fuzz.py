"""Samples for fuzzing the readers of foreign files, with inputs that once failed: each is read or refused."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from tests.campaigns import fuzz


@pytest.mark.parametrize("target", fuzz.TARGETS)
def test_every_sample_is_read_or_refused(target: str, tmp_path: Path) -> None:
    samples = sorted((fuzz.SAMPLES / target).iterdir())
    assert len(samples) >= 3
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sample in samples:
            content = sample.read_bytes()
            for cut in (content, content[: len(content) // 2], content[:-1] + b"\xff"):
                fuzz.read_once(target, cut, tmp_path)
    with pytest.raises(ZeroDivisionError):
        fuzz.refusing(lambda content: 1 // 0)(b"")


@pytest.mark.campaign
@pytest.mark.parametrize("target", fuzz.TARGETS)
def test_fuzzed_input_is_read_or_refused(target: str, tmp_path: Path) -> None:
    pytest.importorskip("atheris")
    fuzz.fuzz(target, 120, tmp_path / target)
