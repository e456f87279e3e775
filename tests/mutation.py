"""Random changes to modules, and the share of them that the modules' tests notice.

    python -m tests.mutation                                     (all of TARGETS, for at most 20 minutes)
    python -m tests.mutation chestfed/data/sites/partition.py --minutes 5 --seed 3

A change is one operator, number, condition or truth value in the body of a function. The tests are collected and run
once, with coverage. For each change, in an order drawn by the seed, a fork exchanges the function's code and runs the
tests that execute the changed line, fastest first, until one fails. Survivors are printed with their line; some of them
change nothing that matters. A study that a session fixture has trained is not trained again.
"""

from __future__ import annotations

import argparse
import ast
import gc
import os
import random
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest
from _pytest.runner import runtestprotocol
from coverage import Coverage

from tests.results.tables import finished_runs

#: File or folder -> its tests.
TARGETS = {
    "chestfed/results/evaluation": "tests/results/evaluation",
    "chestfed/results/tables": "tests/results/tables",
    "chestfed/data/sites/partition.py": "tests/data/sites/test_partition.py",
    "chestfed/studies/training/data/overlap.py": "tests/studies/training/test_overlap.py",
}
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


def list_functions(tree: ast.Module | ast.ClassDef) -> Iterator[ast.FunctionDef]:
    """Functions and methods of a module, without those inside them."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node
        elif isinstance(node, ast.ClassDef):
            yield from list_functions(node)


@dataclass(frozen=True)
class Change:
    """One change of a file: the number of its function, and of the change in the function's body."""

    file: Path
    function: int
    number: int

    def apply(self) -> tuple[CodeType, int, str]:
        """The function's changed code, the changed line, and what was changed."""
        tree = ast.parse(self.file.read_text(encoding="utf-8"))
        function = list(list_functions(tree))[self.function]
        line, node, field, value = list(list_changes(ast.Module(function.body, [])))[self.number]
        before = ast.unparse(node)
        setattr(node, field, [value, *node.ops[1:]] if isinstance(node, ast.Compare) else value)
        text = f"{before} -> {ast.unparse(node)}".replace("\n", " ")[:100]
        module = compile(ast.fix_missing_locations(tree), self.file.resolve(), "exec", dont_inherit=True)
        first = min(part.lineno for part in (function, *function.decorator_list))
        codes = {(code.co_name, code.co_firstlineno): code for code in _list_codes(module)}
        return codes[function.name, first], line, text


def _list_codes(code: CodeType) -> Iterator[CodeType]:
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield part
            yield from _list_codes(part)


def draw_changes(paths: Sequence[str], seed: int) -> list[Change]:
    """All changes of files and folders, in random order."""
    changes = []
    for path in map(Path, paths):
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            functions = list_functions(ast.parse(file.read_text(encoding="utf-8")))
            for function, node in enumerate(functions):
                count = len(list(list_changes(ast.Module(node.body, []))))
                changes += [Change(file, function, number) for number in range(count)]
    random.Random(seed).shuffle(changes)
    return changes


class Mutation:
    """A plugin of pytest that runs the tests for each change in place of once."""

    def __init__(self, changes: Sequence[Change], minutes: float) -> None:
        self._changes, self._ends = changes, time.monotonic() + 60 * minutes
        self._files = sorted({str(change.file.resolve()) for change in changes})
        #: (File, line) -> the tests that execute it, and test -> its processor seconds.
        self._tests: dict[tuple[str, int], set[pytest.Item]] = defaultdict(set)
        self._seconds: dict[pytest.Item, float] = {}
        self.noticed = self.tried = 0

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run all tests once, then those of each change."""
        self._measure(session.items)
        functions = defaultdict(list)
        gc.unfreeze()
        for function in (thing for thing in gc.get_objects() if isinstance(thing, FunctionType)):
            code = function.__code__
            functions[code.co_filename, code.co_firstlineno, code.co_name].append(function)
        for change in self._changes:
            if time.monotonic() > self._ends:
                break
            code, line, text = change.apply()
            changed = functions[code.co_filename, code.co_firstlineno, code.co_name]
            items = sorted(self._tests[code.co_filename, line], key=lambda item: self._seconds[item])
            noticed = bool(items and changed) and self._notice(changed, code, items)
            self.tried, self.noticed = self.tried + 1, self.noticed + noticed
            if not noticed:
                print(f"{change.file}:{line}: survives {len(items)} tests: {text}", flush=True)
        return True

    def _measure(self, items: Sequence[pytest.Item]) -> None:
        """Which lines each test executes. Those of its fixtures count for all tests of its file."""
        cover = Coverage(data_file=None, config_file=False, include=self._files)
        of_file = defaultdict(list)
        for item in items:
            of_file[item.path].append(item)
        cover.start()
        for item, following in zip(items, [*items[1:], None], strict=True):
            began = time.process_time()
            for part in self._run_phases(item, following, cover):
                assert part.passed or part.skipped, f"{item.nodeid} fails without a change:\n{part.longreprtext}"
            self._seconds[item] = time.process_time() - began
        cover.stop()
        by_name = {item.nodeid: item for item in items}
        data = cover.get_data()
        for file in data.measured_files():
            for line, contexts in data.contexts_by_lineno(file).items():
                for name, _, phase in (context.rpartition(" ") for context in contexts if context):
                    item = by_name[name]
                    self._tests[file, line].update([item] if phase == "call" else of_file[item.path])

    @staticmethod
    def _run_phases(item: pytest.Item, following: pytest.Item | None, cover: Coverage) -> list[pytest.TestReport]:
        class Phases:
            @pytest.hookimpl(tryfirst=True)
            def pytest_runtest_setup(self, item: pytest.Item) -> None:
                cover.switch_context(f"{item.nodeid} setup")

            @pytest.hookimpl(tryfirst=True)
            def pytest_runtest_call(self, item: pytest.Item) -> None:
                cover.switch_context(f"{item.nodeid} call")

        phases = Phases()
        item.config.pluginmanager.register(phases)
        try:
            return runtestprotocol(item, log=False, nextitem=following)
        finally:
            item.config.pluginmanager.unregister(phases)

    def _notice(self, changed: Sequence[Any], code: CodeType, items: Sequence[pytest.Item]) -> bool:
        """Whether a test fails in a fork, or takes ten times as long as it did."""
        child = os.fork()
        if child == 0:
            sink = os.open(os.devnull, os.O_WRONLY)
            os.dup2(sink, 1)
            os.dup2(sink, 2)
            for function in changed:
                function.__code__ = code
            used = time.process_time()
            for item in items:
                used += 5 + 10 * self._seconds[item]
                resource.setrlimit(resource.RLIMIT_CPU, (int(used), resource.RLIM_INFINITY))
                if any(part.failed for part in runtestprotocol(item, log=False, nextitem=None)):
                    os._exit(1)
                used = time.process_time()
            os._exit(0)
        return os.waitpid(child, 0)[1] != 0


def main() -> None:
    """Print survivors and the score."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", default=list(TARGETS), help="files or folders of TARGETS")
    parser.add_argument("--minutes", type=float, default=20, help="no further change is tried after so many")
    parser.add_argument("--seed", type=int, default=int(time.strftime("%j")), help="default: the day of the year")
    options = parser.parse_args()
    tests = [next(tests for target, tests in TARGETS.items() if path.startswith(target)) for path in options.paths]
    changes = draw_changes(options.paths, options.seed)
    finished_runs.MADE = None  # the changed code writes them
    mutation = Mutation(changes, options.minutes)
    words = ["-q", "-n", "0", "-s", "-m", "not slow", "-p", "no:cacheprovider", *dict.fromkeys(tests)]
    status = pytest.main(words, plugins=[mutation])
    if status == pytest.ExitCode.OK and mutation.tried:
        share = mutation.noticed / mutation.tried
        print(
            f"score: {mutation.noticed} of {mutation.tried} tried of {len(changes)}, {share:.0%}, seed {options.seed}"
        )
    sys.exit(0 if mutation.tried else 1)


if __name__ == "__main__":
    main()
