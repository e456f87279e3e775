"""Hospitals that do not say that they are synthetic: their names are made with a secret key, and survive a restart."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pandas as pd

from benchmarks.faults.canaries import pass_test
from benchmarks.faults.cases import Campaign, Case, Result, told
from benchmarks.faults.children import SMALL, run, start, wait
from chestfed.core.bundled import bundled
from chestfed.core.pseudonyms import VARIABLE, make_key
from tests.federation.straight_line import unmarked

_SITES = ("chexpert", "padchest")
_RESTARTED = "tests/federation/test_study.py::test_restart_with_the_secret_key_kept"
_NAMES = ["image", "patient"]


def cases(campaign: Campaign) -> Iterator[Case]:
    """A study killed and started again, and a hospital of a federation started again, each with its key kept."""
    yield Case("a study, 2 kills", partial(_killed_study, campaign))
    yield Case("a hospital of a federation, restarted", partial(pass_test, _RESTARTED))


def _killed_study(campaign: Campaign) -> Result:
    home, chance = campaign.home / "real", random.Random("real key")
    words, key = _prepare(home, campaign.home / "synthetic_hospitals"), home / "key"
    choose_key = partial(os.environ.__setitem__, VARIABLE, str(key))
    undisturbed = run((*words, "--out", "calm"), home, choose_key, limit=300)
    kills = 0
    for _ in range(2):
        child = start((*words, "--out", "killed"), home, choose_key)
        kills += wait(child, kill_after=chance.uniform(0, undisturbed.seconds / 3)).code == -9
    ended = run((*words, "--out", "killed"), home, choose_key, limit=300)
    found = [told(undisturbed, (0,)), told(ended, (0,))]
    if not any(found):
        calm, killed, published = map(_predictions, (home / "calm", home / "killed", campaign.sound))
        found += [] if calm.equals(killed) else ["predictions or names are others after the restart"]
        found += [f"a {name} is named by the published key" for name in _NAMES if {*calm[name]} & {*published[name]}]
    shutil.rmtree(home)
    return Result("; ".join(one for one in found if one), {"kills": kills})


def _prepare(home: Path, data: Path) -> tuple[str, ...]:
    """Write sites, images, a key and a pipeline that do not say synthetic; the command that runs the study."""
    home.mkdir()
    make_key(home / "key")
    for name in _SITES:
        base = bundled("site_configs") / "synthetic" / f"{name}.yaml"
        (home / f"{name}.yaml").write_text(f"extends: {base}\nsynthetic: false\n")
    sites = "".join(f"  - config: {name}.yaml\n" for name in _SITES)
    base = bundled("pipelines") / "source_addition_samples.yaml"
    (home / "study.yaml").write_text(f"extends: {base}\ndata_root: {unmarked(data)}\nsites:\n{sites}")
    settings = (word for setting in SMALL for word in ("--set", setting))
    return ("study", "study.yaml", *settings, "--no-tracking")


def _predictions(out: Path) -> pd.DataFrame:
    (file,) = out.glob("*/k2/predictions.parquet")
    return pd.read_parquet(file)
