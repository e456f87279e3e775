"""Strings planted in headers, file names, tables and paths, and looked for in all that is written, printed and sent."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.faults.cases import Campaign, Case, Result

_ROOT = Path(__file__).parents[2]
_TESTS = "tests/privacy/test_canaries.py"


def cases(campaign: Campaign) -> Iterator[Case]:
    """The tests of `tests/privacy`, each a case: they are the search, and one plants strings that it must find."""
    text = (_ROOT / _TESTS).read_text(encoding="utf-8")
    for name in re.findall(r"^def (test_\w+)", text, re.MULTILINE):
        yield Case(name.removeprefix("test_").replace("_", " "), partial(pass_test, f"{_TESTS}::{name}"))


def pass_test(test: str) -> Result:
    """Whether a test, `FILE::NAME`, passes."""
    words = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test)
    ended = subprocess.run(words, cwd=_ROOT, capture_output=True, text=True)
    return Result("" if ended.returncode == 0 and "1 passed" in ended.stdout else ended.stdout[-500:])
