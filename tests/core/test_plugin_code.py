"""What identifies the code of a plug-in: a distribution's version, files, or a version that its declaration states."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from chestfed.core.errors import ChestfedWarning, ConfigError
from chestfed.core.plugins import Catalogue, Options, Versioned, code, identify_code
from chestfed.core.plugins.code import find_sources
from tests.cases import assert_refused

CELL = """
from tests.core.test_plugin_code import Part
class Schedule:
    factor = 1.0
    def step(self, lr): return self.factor * lr
schedule = Schedule()
PART = Part("mine", build=lambda: schedule.step(0.1))
"""
FILE = "from tests.core.test_plugin_code import Part\nPART = Part('mine')\n"


@dataclass(frozen=True)
class Part(Versioned):
    """A declaration."""

    name: str
    build: Callable[[], Any] = float
    options: type[Options] = field(default=Options)


@pytest.fixture
def catalogue(monkeypatch: pytest.MonkeyPatch) -> Catalogue[Part]:
    monkeypatch.setattr(code, "_script", [])
    made = Catalogue("method", "nowhere", Part)
    made.built_in = {}
    return made


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder on the path; its modules are forgotten afterwards."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def run_main(monkeypatch: pytest.MonkeyPatch, text: str, file: Path | None = None) -> dict[str, Any]:
    """Run a cell, or a script's file, as the main module; returns what it defines."""
    main = ModuleType("__main__")
    if file is not None:
        file.write_text(text)
        main.__file__ = str(file)
    monkeypatch.setitem(sys.modules, "__main__", main)
    exec(compile(text, str(file or "<cell>"), "exec"), vars(main))
    return vars(main)


def identify(catalogue: Catalogue[Part], part: Part) -> str:
    return str(catalogue.digest(catalogue.register(part)))


def import_file(folder: Path, name: str, text: str) -> ModuleType:
    (folder / f"{name}.py").write_text(text)
    importlib.invalidate_caches()
    return importlib.import_module(name)


def test_notebook_results_are_not_reused(catalogue: Catalogue[Part], monkeypatch: pytest.MonkeyPatch) -> None:
    names = run_main(monkeypatch, CELL)
    with pytest.warns(ChestfedWarning, match="method 'mine'"):
        first = identify(catalogue, names["PART"])
    assert catalogue.digest("mine") == first  # for the run that begins here
    names["schedule"].factor = 0.0
    with pytest.warns(ChestfedWarning):
        assert identify(catalogue, names["PART"]) != first


def test_equal_versions_are_taken_as_equal(catalogue: Catalogue[Part]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first = identify(catalogue, Part("mine", version="1"))
        assert identify(catalogue, Part("mine", lambda: 0, version="1")) == first
        assert identify(catalogue, Part("mine", version="2")) != first


def test_object_of_a_file_has_its_digest(catalogue: Catalogue[Part], folder: Path) -> None:
    module = import_file(folder, "methods_1", FILE)
    assert identify(catalogue, module.PART) == catalogue.digest("methods_1:PART") == identify_code(module)
    other = import_file(folder, "methods_2", FILE.replace("('mine')", "('mine', version='2')"))
    assert identify(catalogue, other.PART).endswith(", version 2")


def test_edited_file_must_be_imported_again(catalogue: Catalogue[Part], folder: Path) -> None:
    (folder / "helper_3.py").write_text("A = 1\n")
    module = import_file(folder, "methods_3", "import helper_3\n" + FILE)
    before = identify(catalogue, module.PART)
    (folder / "helper_3.py").write_text("A = 22\n")
    os.utime(folder / "helper_3.py", times=(4e9, 4e9))
    with assert_refused(ConfigError, "plug-in changed after its import"):
        identify(catalogue, module.PART)
    os.utime(folder / "helper_3.py", times=(1e9, 1e9))
    importlib.reload(module)
    assert identify(catalogue, module.PART) != before


def test_script_digest_has_its_arguments(
    catalogue: Catalogue[Part], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digests = []
    for text, arguments in ((CELL, []), (CELL, []), (CELL + "\n", []), (CELL, ["--lr", "1"])):
        monkeypatch.setattr(code, "_script", [])
        monkeypatch.setattr(sys, "argv", ["own.py", *arguments])
        names = run_main(monkeypatch, text, folder / "own.py")
        digests.append(identify(catalogue, run_again(catalogue, names["PART"])))
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


def run_again(catalogue: Catalogue[Part], part: Part) -> Part:
    """As in a new process, where nothing of this name was passed before."""
    catalogue._registered.clear()
    return part


def test_loop_of_a_script_is_not_reused(
    catalogue: Catalogue[Part], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = run_main(monkeypatch, CELL, folder / "own.py")
    first = identify(catalogue, names["PART"])
    names["schedule"].factor = 0.0  # of the same declaration
    with pytest.warns(ChestfedWarning):
        second = identify(catalogue, names["PART"])
    names["PART"] = Part("mine", lambda: 0)
    with pytest.warns(ChestfedWarning):
        third = identify(catalogue, names["PART"])
    assert len({first, second, third}) == 3


def test_made_in_a_function_needs_a_version(catalogue: Catalogue[Part], folder: Path) -> None:
    module = import_file(folder, "methods_4", FILE + "def make(): return Part('made')\n")
    with pytest.warns(ChestfedWarning):
        assert identify(catalogue, module.make()) != identify_code(module)


def test_sibling_helpers_count(folder: Path) -> None:
    (folder / "helper.py").write_text("import deeper\n")
    (folder / "deeper.py").write_text("from parts.inner import A\n")
    (folder / "parts").mkdir()
    (folder / "parts" / "inner.py").write_text("A = 1\n")
    (folder / "unrelated.py").write_text("")
    (folder / ".hidden.py").write_text("")
    lazy = import_file(folder, "lazy", "def build():\n    import helper\n")
    assert set(find_sources(lazy)) == {"lazy.py", "helper.py", "deeper.py", "parts/inner.py"}
    computed = import_file(folder, "computed", "import importlib\nh = importlib.import_module('hel' + 'per')\n")
    assert set(find_sources(computed)) > {"helper.py", "unrelated.py", "parts/inner.py"}
    before = identify_code(lazy)
    (folder / "unrelated.py").write_text("B = 1\n")
    assert identify_code(lazy) == before
    (folder / "parts" / "inner.py").write_text("A = 2\n")
    assert identify_code(lazy) != before


@pytest.mark.parametrize("marker", ["__init__.py", "other.py"])  # a namespace package has no __init__.py
def test_all_files_of_a_package_count(folder: Path, marker: str) -> None:
    package = folder / f"lab_{marker.strip('_.py')}"
    (package / "deep").mkdir(parents=True)
    names = (marker, "methods.py", "deep/data.py", "deep/fast.so")
    for name in names:
        (package / name).write_text("")
    importlib.invalidate_caches()
    module = importlib.import_module(f"{package.name}.methods")
    assert set(find_sources(module)) == {f"{package.name}/{name}" for name in names}


def test_installed_code_is_known_by_version(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert identify_code(np) == f"numpy {np.__version__}"
    site = folder / "site-packages"
    (site / "lab-1.0.dist-info").mkdir(parents=True)
    (site / "lab-1.0.dist-info" / "METADATA").write_text("Name: lab\nVersion: 1.0\n")
    (site / "lab-1.0.dist-info" / "RECORD").write_text("installed_lab.py,,\nlab_helper.py,,\n")
    (site / "lab_helper.py").write_text("")
    monkeypatch.syspath_prepend(str(site))
    code._get_distributions.cache_clear()
    module = import_file(site, "installed_lab", "import torch\n")
    assert identify_code(module) == "lab 1.0"
    # Installed from a folder or a repository, where other code may have the same version.
    (site / "lab-1.0.dist-info" / "direct_url.json").write_text("{}")
    assert set(find_sources(module)) == {"installed_lab.py", "lab_helper.py"}
    before = identify_code(module)
    (site / "lab_helper.py").write_text("A = 1\n")
    assert identify_code(module) != before
    code._get_distributions.cache_clear()


def test_reference_without_a_file_is_refused(catalogue: Catalogue[Part], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "made_here", ModuleType("made_here"))
    for name in ("made_here:PART", "__main__:PART"):
        with pytest.raises(ConfigError):
            catalogue.find(name)
