"""Settings and pipeline files that nobody means, in a dry run: each must run, or be refused in one message."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.faults.cases import Campaign, Case, Result, told
from benchmarks.faults.children import SMALL, run
from chestfed.core.bundled import bundled

_DIGITS, _HUGE = "9" * 5000, "1000000000000"
_SETTINGS = (
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


def _files(home: Path) -> Iterator[tuple[str, Path]]:
    base = f"extends: {bundled('pipelines') / 'source_addition_samples.yaml'}\n"
    texts = {
        "empty": b"",
        "no mapping": b"[1, 2]\n",
        "NUL bytes": b"\0" * 100,
        "latin-1": "title: ü\n".encode("latin-1"),
        "UTF-16": base.encode("utf-16"),
        "200,000 brackets": b"title: " + b"[" * 200_000,
        "150,000 aliases": (base + "title: &a x\nk: [" + "*a," * 60_000 + "]\n").encode(),
        "billion laughs": "".join(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9) or 1}]\n" for n in range(1, 9)).encode(),
        "python tag": base.encode() + b"title: !!python/object/apply:os.system [touch executed]\n",
        "itself": b"extends: itself.yaml\n",
        "extends a device": b"extends: /dev/zero\n",
        "duplicate key": base.encode() + b"title: a\ntitle: b\n",
        "merge key": base.encode() + b"<<: {seed: 1}\n",
        "10 MB": base.encode() + b"# comment\n" * 1_000_000,
    }
    for name, content in texts.items():
        file = home / f"{'itself' if name == 'itself' else 'pipeline'}.yaml"
        file.write_bytes(content)
        yield name, file
    os.mkfifo(home / "pipe.yaml")
    yield from (("a pipe", home / "pipe.yaml"), ("a folder", home), ("a device", Path("/dev/zero")))


def cases(campaign: Campaign) -> Iterator[Case]:
    """One case per setting and file."""
    small = tuple(word for setting in SMALL for word in ("--set", setting))
    for setting in _SETTINGS:
        yield Case(setting[:60], partial(_dry_run, campaign, (*small, "--set", setting)))
    for name, file in _files(campaign.home):
        yield Case(f"file: {name}", partial(_dry_run, campaign, (str(file),)))


def _dry_run(campaign: Campaign, words: tuple[str, ...]) -> Result:
    ended = run(("study", *words, "--dry-run"), campaign.home, limit=60)
    return Result("it was executed" if (campaign.home / "executed").exists() else told(ended))
