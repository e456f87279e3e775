"""Many studies in one process: memory and open files must not grow."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from tests.campaigns.children import Campaign, start, wait
from tests.studies.training.tiny_studies import SETTINGS

pytestmark = pytest.mark.campaign
STUDIES = 30
#: What memory may grow by over the second half, in MiB, and open files: caches of libraries fill up in the first.
GROWTH, HANDLES = 32.0, 2


def test_studies_in_one_process_do_not_grow(campaign: Campaign, save_figures: Callable[[str, Any], None]) -> None:
    file = campaign.home / "soak.jsonl"
    wait(start((), campaign.home, partial(run_studies, file)), limit=3600).check(0)
    looks = [json.loads(line) for line in file.read_text().splitlines()]
    save_figures("soak", looks)
    half = looks[STUDIES // 2 :]
    early, late = (
        {key: np.median([look[key] for look in part]) for key in half[0]}
        for part in (half[: len(half) // 2], half[len(half) // 2 :])
    )
    assert late["mib"] - early["mib"] <= GROWTH
    assert late["files"] - early["files"] <= HANDLES


def run_studies(file: Path) -> None:
    """In a child: studies one after the other, and what the process holds after each."""
    import chestfed

    process = psutil.Process()
    for seed in range(1, STUDIES + 1):
        chestfed.run(seed=seed, overrides=SETTINGS, out="soak", cache="soak-cache", tracking=True, quiet=True)
        look = {"mib": round(process.memory_info().rss / 2**20, 1), "files": process.num_fds()}
        with file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(look) + "\n")
    raise SystemExit(0)
