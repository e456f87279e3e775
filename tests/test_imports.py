"""The import contract: rooms import downward only, no file is in a circle, and light commands import nothing heavy."""

from __future__ import annotations

import ast
import functools
import os
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import chestfed
from tests.data.sites import own_tables
from tests.data.sites.own_tables import save_rows, wide

ROOT = Path(chestfed.__file__).parent

#: Room of the package -> the rooms it may import, besides itself, `core` and `_version`.
ALLOWED: dict[str, set[str]] = {
    "_version": set(),
    "core": set(),
    "data": set(),
    "learning": set(),
    "results": set(),
    "studies": {"data", "learning", "results"},
    "reports": {"data", "learning", "results", "studies"},
    "leaves": {"data", "learning", "results", "studies", "reports", "app", "plugins"},
    "testing": {"data", "learning", "studies"},
}
#: The command line, the public face and `python -m chestfed` stand above every room.
ABOVE = {"app", "plugins", "statistics", "__main__", "__init__"}

HEAVY = ["torch", "monai", "mlflow", "pandas", "numpy", "sklearn", "cv2", "pydicom", "matplotlib"]


def module_name(file: Path) -> str:
    parts = file.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def parse(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


@functools.cache
def import_graph() -> dict[str, set[str]]:
    """Module -> the modules of the package that it imports, wherever in the file, but not for types alone."""
    modules = {module_name(file): file for file in ROOT.rglob("*.py")}
    graph: dict[str, set[str]] = {}
    for name, file in modules.items():
        graph[name] = set()
        tree = parse(file)
        typing_only = {
            id(inner)
            for node in ast.walk(tree)
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
            for inner in ast.walk(node)
        }
        for node in ast.walk(tree):
            if id(node) in typing_only:
                continue
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "chestfed":
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    graph[name].add(inner if inner in modules else node.module)
            elif isinstance(node, ast.Import):
                graph[name] |= {alias.name for alias in node.names if alias.name.split(".")[0] == "chestfed"}
    return graph


def room(module: str) -> str:
    return module.split(".")[1] if "." in module else "__init__"


def test_packages_import_downward_only() -> None:
    graph = import_graph()
    upward = [
        f"{module} imports {imported}"
        for module, names in sorted(graph.items())
        for imported in sorted(names)
        if room(module) not in ABOVE and room(imported) not in {room(module), "core", "_version"}
        if room(imported) not in ALLOWED[room(module)]
    ]
    assert upward == []
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"circle: {' -> '.join(error.args[1])}")


def test_few_arrows_between_rooms() -> None:
    arrows = {(room(module), room(name)) for module, names in import_graph().items() for name in names}
    assert len([pair for pair in arrows if pair[0] != pair[1]]) <= 45


@pytest.mark.parametrize("leaf", ["compositional", "decentralized", "score_pool"])
def test_method_leaves_use_plugins_alone(leaf: str) -> None:
    """They prove the interface that authors of plug-ins have."""
    own = f"chestfed.leaves.{leaf}"
    imported = {name for module, names in import_graph().items() if module.startswith(own) for name in names}
    assert {name for name in imported if not name.startswith(own)} == {"chestfed.plugins"}


def test_functions_have_at_most_sixty_lines() -> None:
    long = [
        f"{file.relative_to(ROOT)}: {node.name}"
        for file in ROOT.rglob("*.py")
        for node in ast.walk(parse(file))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if (node.end_lineno or 0) - node.lineno >= 60
    ]
    assert long == []


def test_help_imports_nothing_heavy() -> None:
    program = f"import sys, chestfed.app.cli; print([name for name in {HEAVY} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.slow
def test_study_imports_late() -> None:
    later = [
        "mlflow",
        "sklearn",
        "matplotlib",
        "albumentations",
        "flwr",
        "openpyxl",
        "submitit",
        "chestfed.reports.pages.page",
    ]
    with_a_network = ["monai", "scipy.optimize", "scipy.sparse"]
    program = (
        "import sys, chestfed.app.studies, chestfed.studies.jobs\n"
        f"print([name for name in {later + with_a_network} if name in sys.modules])\n"
        "from chestfed.learning.models import build_model, network_options\n"
        "build_model(network_options('small'), 5, 1)\n"
        f"print([name for name in {later} if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["[]", "[]"]


@pytest.mark.slow
def test_site_check_imports_no_torch(tmp_path: Path) -> None:
    for number in range(3):
        image = np.random.default_rng(number).integers(0, 255, (40, 40), dtype=np.uint8)
        (tmp_path / "site").mkdir(exist_ok=True)
        Image.fromarray(image).save(tmp_path / f"site/{number}.png")
    save_rows(tmp_path / "site/labels.csv", [wide(number) for number in range(3)])
    own_tables.config(tmp_path, {})
    program = (
        "import sys; from chestfed.app.cli import main\n"
        "try: main()\n"
        "finally: print([name for name in ('torch', 'monai', 'mlflow') if name in sys.modules])"
    )
    command = [sys.executable, "-c", program, "site", "check", "site.yaml", "--data", "."]
    environment = {**os.environ, "PYTHONPATH": str(ROOT.parent)}
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    assert "readable 3" in result.stdout, result.stderr
    assert result.stdout.splitlines()[-1] == "[]", result.stderr
