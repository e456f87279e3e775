"""Random changes to modules, and the share of them that the modules' tests notice.

    python -m tests.mutation                                        (all of TARGETS, 20 changes of each file)
    python -m tests.mutation chestfed/sites/partition.py --count 50

A change is one operator, number, condition or truth value of the source. It is made in memory: a fork imports the
changed module and runs the tests. Survivors are printed with their line; some of them change nothing that matters.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.abc
import importlib.util
import os
import random
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

import pytest

#: File or folder -> its tests.
TARGETS = {
    "chestfed/evaluation": "tests/evaluation",
    "chestfed/results": "tests/results",
    "chestfed/sites/partition.py": "tests/sites/test_partition.py",
    "chestfed/training/data/overlap.py": "tests/training/test_overlap.py",
}
#: Imported once, for all forks; nothing of chestfed.
LIBRARIES = ("numpy", "pandas", "scipy.stats", "sklearn.metrics", "torch", "pydantic", "PIL.Image", "cv2", "mlflow")
EXCHANGED: dict[type[ast.AST], type[ast.AST]] = {
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq},
    **{ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.And: ast.Or, ast.Or: ast.And},
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult},
}


def list_changes(tree: ast.AST) -> Iterator[tuple[int, ast.AST, str, ast.AST | int | float | bool]]:
    """Line, node, its field and the field's new value."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and type(node.ops[0]) in EXCHANGED:
            yield node.lineno, node, "ops", EXCHANGED[type(node.ops[0])]()
        elif isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in EXCHANGED:
            yield node.lineno, node, "op", EXCHANGED[type(node.op)]()
        elif isinstance(node, ast.If | ast.IfExp | ast.While):
            yield node.test.lineno, node, "test", ast.UnaryOp(ast.Not(), node.test)
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
            yield node.lineno, node, "value", not node.value if isinstance(node.value, bool) else node.value + 1


def change_source(source: str, number: int) -> tuple[ast.Module, int, str]:
    """The tree with one change, its line, and what it was made of."""
    tree = ast.parse(source)
    line, node, field, value = list(list_changes(tree))[number]
    before = ast.unparse(node)
    setattr(node, field, [value, *node.ops[1:]] if isinstance(node, ast.Compare) else value)
    return ast.fix_missing_locations(tree), line, f"{before} -> {ast.unparse(node)}".replace("\n", " ")[:100]


class Finder(importlib.abc.MetaPathFinder):
    """Imports a module from a changed tree."""

    def __init__(self, file: Path, tree: ast.Module) -> None:
        self._file, self._tree = file, tree
        self._name = ".".join(file.with_suffix("").parts).removesuffix(".__init__")

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Of the changed module; None for others."""
        if fullname != self._name:
            return None
        code = compile(self._tree, self._file, "exec")

        class Loader(SourceFileLoader):
            def get_code(self, fullname: str) -> CodeType:
                return code

        return importlib.util.spec_from_file_location(fullname, self._file, loader=Loader(fullname, str(self._file)))


def pass_tests(tests: str, finder: Finder | None, limit: float) -> bool:
    """Whether the tests pass in a fork, within so many seconds."""
    child = os.fork()
    if child == 0:
        os.setsid()
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, 1)
        os.dup2(sink, 2)
        if finder is not None:
            sys.meta_path.insert(0, finder)
        os._exit(int(pytest.main(["-x", "-q", "-n", "0", "-m", "not slow", "-p", "no:cacheprovider", tests])))
    ends = time.monotonic() + limit
    while time.monotonic() < ends:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.05)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def main() -> None:
    """Print survivors, and the score of each file and of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", default=list(TARGETS), help="files or folders of TARGETS")
    parser.add_argument("--count", type=int, default=20, help="changes of each file")
    parser.add_argument("--seed", type=int, default=int(time.strftime("%j")), help="default: the day of the year")
    options = parser.parse_args()
    for name in LIBRARIES:
        importlib.import_module(name)
    noticed = total = 0
    for path in options.paths:
        tests = next(tests for target, tests in TARGETS.items() if path.startswith(target))
        began = time.monotonic()
        assert pass_tests(tests, None, 3600), f"{tests} fail without a change"
        limit = 10 + 5 * (time.monotonic() - began)
        for file in sorted(Path(path).rglob("*.py")) if Path(path).is_dir() else [Path(path)]:
            source, chance = file.read_text(encoding="utf-8"), random.Random(f"{options.seed} {file}")
            numbers = range(len(list(list_changes(ast.parse(source)))))
            caught, chosen = 0, chance.sample(numbers, min(options.count, len(numbers)))
            for number in chosen:
                tree, line, text = change_source(source, number)
                if pass_tests(tests, Finder(file, tree), limit):
                    print(f"{file}:{line}: survives: {text}", flush=True)
                else:
                    caught += 1
            noticed, total = noticed + caught, total + len(chosen)
            print(f"{file}: {caught} of {len(chosen)} noticed", flush=True)
    print(f"score: {noticed} of {total}, {noticed / max(total, 1):.0%} (seed {options.seed})")


if __name__ == "__main__":
    main()
