"""Each leaf can be removed: without its folder the rest imports, lists its parts and runs a study as before."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

import chestfed
from chestfed.core.leaves import Leaf, list_leaves

ROOT: Final = Path(chestfed.__file__).parent.parent

#: Imports everything, then prints the commands, the parts of all catalogues and the table of a study of two rounds.
PROGRAM: Final = """
import importlib, json, pkgutil, sys
from pathlib import Path

import chestfed
assert Path(chestfed.__file__).is_relative_to(Path.cwd()), chestfed.__file__
missing = []
for info in pkgutil.walk_packages(chestfed.__path__, "chestfed."):
    if info.name == "chestfed.__main__":
        continue
    try:
        importlib.import_module(info.name)
    except ModuleNotFoundError as error:
        if str(error.name).startswith("chestfed"):
            raise
        missing.append(error.name)

import typer
from chestfed.app.cli import app
from chestfed.core.plugins import Catalogue

def words(group, before=""):
    for name, command in sorted(group.commands.items()):
        if hasattr(command, "commands"):
            yield from words(command, f"{before}{name} ")
        else:
            yield f"{before}{name}"

catalogues = {}
for name, module in list(sys.modules.items()):
    if name.startswith("chestfed"):
        for value in vars(module).values():
            if isinstance(value, Catalogue):
                catalogues[value.kind] = sorted(value.built_in)
pipeline = {
    "title": "digits",
    "collection": {"name": "digits", "clients": 2, "test_fraction": 0.3},
    "preprocess": {"size": 32},
    "augment": {"enabled": False},
    "model": {"name": "small", "init_features": 4, "growth_rate": 4, "blocks": [1], "norm": "group"},
    "pretrain": {"epochs": 0},
    "methods": [{"algorithm": "fedavg", "objective": "cross_entropy"}],
    "federated": {"stages": 1, "stage_steps": 4, "window": 2, "local_lr": 0.1, "batch_size": 8},
    "k": [2],
}
study = chestfed.run(pipeline, out="runs", quiet=True)
table = study.table().to_json()
print(json.dumps({"commands": list(words(typer.main.get_command(app))), "catalogues": catalogues, "table": table}))
"""


def describe(tree: Path, program: str = PROGRAM) -> dict[str, Any]:
    """The last line that a program prints of the suite in this folder; by default what it has and computes."""
    command, environment = [sys.executable, "-c", program], {**os.environ, "PYTHONPATH": str(tree)}
    result = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False, env=environment)
    assert result.returncode == 0, result.stderr[-3000:]
    described: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return described


def copy_tree(folder: Path) -> Path:
    """A copy of everything that runs."""
    for name in ("chestfed", "pipelines", "site_configs"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return describe(copy_tree(tmp_path_factory.mktemp("whole")))


def in_the_house() -> dict[str, Leaf]:
    """The leaves that are folders here, not installed distributions."""
    return {name: leaf for name, leaf in list_leaves().items() if (ROOT / "chestfed" / "leaves" / name).is_dir()}


@pytest.mark.slow
@pytest.mark.parametrize("name", in_the_house())
def test_only_what_a_leaf_offers_is_gone(name: str, whole: dict[str, Any], tmp_path: Path) -> None:
    tree, leaf = copy_tree(tmp_path), in_the_house()[name]
    shutil.rmtree(tree / "chestfed" / "leaves" / name)
    rest = describe(tree)
    assert set(whole["commands"]) - set(rest["commands"]) == set(leaf.commands)
    gone = {kind: set(parts) - set(rest["catalogues"].get(kind, ())) for kind, parts in whole["catalogues"].items()}
    assert {kind for kind, parts in gone.items() if parts} == {kind for kind in leaf.parts if gone.get(kind)}
    assert bool(leaf.parts) == any(gone.values())
    assert rest["table"] == whole["table"]
