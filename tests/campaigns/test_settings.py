"""Nonsensical settings and pipeline files, in a dry run: each must run, or be refused in one message."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from chestfed.core.bundled import bundled
from tests.campaigns.children import Campaign, run, sample_cases
from tests.studies.training.tiny_studies import SETTINGS as SMALL

_DIGITS, _HUGE = "9" * 5000, "1000000000000"
SETTINGS = (
    *(f"seed={value}" for value in (_DIGITS, "!!int xx", "!!timestamp xx", "-1", "1.5", "null", "[1]", "''", "0x10")),
    *(
        f"title={value}"
        for value in ("{a: 1, a: 2}", "[", "!!python/object:os.system x", "*a", "&a [*a]", "<<: {a: 1}")
    ),
    *(f"k={value}" for value in ("[]", "[0]", "[2,1]", "[1,1]", "[9]", "x", "[.inf]", "[[1]]", f"[{_HUGE}]")),
    *(f"pretrain.lr={value}" for value in (".inf", "-.inf", ".nan", "0", "-1", "1e400", "x")),
    *(
        f"{key}={_HUGE}"
        for key in ("pretrain.batch_size", "pretrain.epochs", "federated.batch_size", "federated.window")
    ),
    *(
        f"{key}={_HUGE}"
        for key in ("federated.stages", "federated.stage_steps", "evaluation.resamples", "runtime.threads")
    ),
    *(
        f"{key}={_HUGE}"
        for key in ("evaluation.batch_size", "evaluation.every", "runtime.loader_workers", "preprocess.size")
    ),
    *(f"{key}={_HUGE}" for key in ("model.growth_rate", "model.init_features", "model.bottleneck", "sites.0.clients")),
    *("pretrain.batch_size=65536", "model.growth_rate=512", "model.blocks=[256,256,256,256,256,256,256,256]"),
    *(f"runtime.device={value}" for value in ("banana", "cuda:99", "meta", "''", "3", "cpu; rm -rf /")),
    *("federated.local_lr=.inf", "federated.window=0", "methods.*.algorithm=nothing", "methods.*.algorithm={name: []}"),
    *("methods.*.algorithm=os:system", "model=os.path:join", "model={name: timm:create_model}", "model.blocks=[]"),
    *(
        "model.blocks=[0]",
        "model.initial_weights=/dev/zero",
        "model.initial_weights=/etc/passwd",
        "data_root=/dev/null",
    ),
    *("data_root=$NOWHERE", "sites=[]", "sites.0.config=/etc/passwd", "sites.0.config=..", "sites.99.config=x"),
    *("sites.0.config=/dev/zero", "diseases=[]", "diseases=[x]", "diseases=[edema,edema]", "evaluation.protocol=x"),
    *("evaluation.split=x", "a.b.c=1", "=1", "k", "federated=1", "methods.*.algorithm.prox=.nan", "extends=x.yaml"),
)


_BASE = f"extends: {bundled('pipelines') / 'source_addition_samples.yaml'}\n"
FILES = {
    "empty": b"",
    "no mapping": b"[1, 2]\n",
    "NUL bytes": b"\0" * 100,
    "latin-1": "title: ü\n".encode("latin-1"),
    "UTF-16": _BASE.encode("utf-16"),
    "200,000 brackets": b"title: " + b"[" * 200_000,
    "150,000 aliases": (_BASE + "title: &a x\nk: [" + "*a," * 60_000 + "]\n").encode(),
    "billion laughs": "".join(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9) or 1}]\n" for n in range(1, 9)).encode(),
    "python tag": _BASE.encode() + b"title: !!python/object/apply:os.system [touch executed]\n",
    "itself": b"extends: itself.yaml\n",
    "extends a device": b"extends: /dev/zero\n",
    "duplicate key": _BASE.encode() + b"title: a\ntitle: b\n",
    "merge key": _BASE.encode() + b"<<: {seed: 1}\n",
    "10 MB": _BASE.encode() + b"# comment\n" * 1_000_000,
}


@pytest.mark.slow
@pytest.mark.parametrize("setting", sample_cases(SETTINGS, 15, lambda setting: setting[:60]))
def test_a_setting_runs_or_is_refused(campaign: Campaign, setting: str) -> None:
    small = (word for each in SMALL for word in ("--set", each))
    dry_run(campaign, (*small, "--set", setting))


@pytest.mark.slow
@pytest.mark.parametrize("name", sample_cases([*FILES, "a pipe", "a folder", "a device"], 5))
def test_a_file_runs_or_is_refused(campaign: Campaign, name: str) -> None:
    places = {"a pipe": campaign.home / "pipe.yaml", "a folder": campaign.home, "a device": Path("/dev/zero")}
    file = places.get(name, campaign.home / f"{'itself' if name == 'itself' else 'pipeline'}.yaml")
    if name in FILES:
        file.write_bytes(FILES[name])
    if name == "a pipe":
        os.mkfifo(file)
    dry_run(campaign, (str(file),))


def dry_run(campaign: Campaign, words: tuple[str, ...]) -> None:
    run(("study", *words, "--dry-run"), campaign.home, limit=60).check(0, 1, 2)
    assert not (campaign.home / "executed").exists()
