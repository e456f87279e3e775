"""pyproject.toml, environment.yml, the lock and the set-up script say the same."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

import chestfed

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
ENVIRONMENT = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))


def test_conda_installs_the_project() -> None:
    *plain, by_pip = ENVIRONMENT["dependencies"]
    assert plain == [f"python{PROJECT['project']['requires-python']}", "pip"]
    assert by_pip == {"pip": ["-c requirements/constraints.txt", "-e ."]}


@pytest.mark.slow
def test_pip_reads_the_conda_file() -> None:
    """Everything is installed in this environment, so pip finds nothing to fetch: the requirements agree with it."""
    section = ENVIRONMENT["dependencies"][-1]["pip"]
    arguments = [word for line in section for word in line.split()]
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--dry-run",
        "--no-index",
        "--no-build-isolation",
        *arguments,
    ]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    fetched = re.findall(r"^Would install (.*)$", result.stdout, re.MULTILINE)
    assert fetched in ([], [f"chestfed-{chestfed.__version__}"])


def test_script_needs_the_projects_python() -> None:
    script = (ROOT / "bootstrap.py").read_text(encoding="utf-8")
    assert PROJECT["project"]["requires-python"] == ">=3.11"
    assert "sys.version_info < (3, 11)" in script


def test_ci_runs_the_test_command() -> None:
    readme, ci = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", ".ci/run"))
    assert "python3 bootstrap.py test" in readme
    assert "python3 bootstrap.py test" in ci


def test_ci_runs_on_the_oldest_python() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    job = workflow["jobs"]["test"]
    assert {"run": ".ci/run"} in job["steps"]
    assert f">={min(job['strategy']['matrix']['python'])}" == PROJECT["project"]["requires-python"]


def test_image_gets_all_files() -> None:
    """The image itself is not built here."""
    exceptions = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    build = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {*build["packages"], *build["force-include"], "README.md", "LICENSE", "pyproject.toml"}
    assert {*needed, "bootstrap.py", "requirements"} <= exceptions


def test_changelog_has_the_version() -> None:
    assert f"## {chestfed.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_package_is_marked_as_typed() -> None:
    assert (ROOT / "chestfed" / "py.typed").read_bytes() == b""
    assert "Typing :: Typed" in PROJECT["project"]["classifiers"]


def test_citation_has_version_and_papers() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == chestfed.__version__
    assert citation["license"] == PROJECT["project"]["license"]
    assert [(paper["authors"][0]["family-names"], paper["year"]) for paper in citation["references"]] == [
        ("Yuan", 2021),
        ("Zhang", 2023),
        ("Niwa", 2020),
    ]


def test_wheel_has_all_yaml_files(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    (wheel,) = tmp_path.glob("*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    assert "chestfed/py.typed" in packed
    shipped = [path for part in ("site_configs", "pipelines") for path in (ROOT / part).rglob("*.yaml")]
    assert "site_configs/more/brax.yaml" in [path.relative_to(ROOT).as_posix() for path in shipped]
    missing = {f"chestfed/bundled/{path.relative_to(ROOT).as_posix()}" for path in shipped} - packed
    assert missing == set()


def test_actions_are_pinned_by_commit() -> None:
    texts = [file.read_text(encoding="utf-8") for file in (ROOT / ".github" / "workflows").glob("*.yml")]
    assert all(yaml.safe_load(text)["jobs"] for text in texts)
    used = [line.strip() for text in texts for line in text.splitlines() if "uses:" in line]
    assert used
    assert [line for line in used if not re.fullmatch(r"- uses: [\w/-]+@[0-9a-f]{40} # v[\d.]+", line)] == []
    loose = r"(?<!uv )pip install (?!.*--require-hashes)"  # uv resolves anew, for the oldest and newest versions
    assert not any(re.search(loose, text) for text in texts)
