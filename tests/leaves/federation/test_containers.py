"""The container files, as far as they can be checked without a container engine."""

from __future__ import annotations

import configparser
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from chestfed.app.cli import app
from chestfed.leaves.federation.settings import HospitalFile

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "containers"


def read_service(name: str) -> dict[str, Any]:
    (service,) = yaml.safe_load((FOLDER / f"{name}.compose.yaml").read_text(encoding="utf-8"))["services"].values()
    return dict(service)


def assert_exists(words: list[str]) -> None:
    """Fail unless a command line names a command of chestfed, and options that it has."""
    command = get_command(app)
    while words and hasattr(command, "commands"):
        command = command.commands[words[0]]
        words = words[1:]
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known


@pytest.mark.parametrize("name", ["server", "hospital"])
def test_services_run_existing_commands(name: str) -> None:
    service = read_service(name)
    assert_exists(service["command"])
    assert_exists(service["healthcheck"]["test"][2:])
    mounted = {volume.rsplit(":/", 1)[1].partition(":")[0]: volume for volume in service["volumes"]}
    assert service["command"][-1].removeprefix("/") in mounted
    assert (service["read_only"], service["cap_drop"], "privileged" in service) == (True, ["ALL"], False)
    assert ("ports" in service) == (name == "server")
    if name == "hospital":
        assert mounted["data"].endswith(":ro")


@pytest.mark.parametrize("name", ["server.compose.yaml", "hospital.compose.yaml"])
def test_written_commands_exist(name: str) -> None:
    text = (FOLDER / name).read_text(encoding="utf-8").replace("\\\n#", "")
    lines = re.findall(r"(?:run --rm \w+ +|exec \w+ +chestfed )(federation .*)", text)
    assert lines
    for line in lines:
        assert_exists(line.split())


@pytest.mark.parametrize("name", ["server", "hospital"])
def test_units_run_the_same_commands(name: str) -> None:
    unit = configparser.ConfigParser()
    unit.read(FOLDER / f"chestfed-{name}.service")
    program, *words = unit["Service"]["ExecStart"].split()
    assert program.endswith("/chestfed")
    assert_exists(words)
    assert words[-1] == unit["Service"]["ReadWritePaths"]
    assert words == read_service(name)["command"]


def test_dashboard_shows_metrics_that_exist() -> None:
    board = json.loads((FOLDER / "grafana.json").read_text(encoding="utf-8"))
    shown = {name for panel in board["panels"] for name in re.findall(r"chestfed_\w+", panel["targets"][0]["expr"])}
    served = set(re.findall(r'"(chestfed_\w+)"', (ROOT / "chestfed/leaves/federation/server/progress.py").read_text()))
    assert {name.removesuffix("_total") for name in shown} <= served


def test_image_copies_existing_files() -> None:
    text = (FOLDER / "federation.Dockerfile").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (lock,) = re.findall(r"install_locked\('(\w+)'\)", text)
    assert (ROOT / "requirements" / f"{lock}.txt").is_file()
    assert f"bootstrap.py install {lock} " in text
    assert "pip install" not in text  # bootstrap.py checks hashes
    assert re.search(r"^USER (?!0|root)", text, flags=re.MULTILINE)
    (python,) = re.findall(r"FROM python:(\d+\.\d+)", text)
    assert project["requires-python"] == f">={python}"
    needed = {project["readme"], *project["license-files"], "chestfed", "pipelines", "site_configs", "pyproject.toml"}
    exceptions = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert needed <= exceptions  # what the build of the package reads is not ignored


def test_secret_key_has_own_mount() -> None:
    def key_in(dockerfile: Path) -> str:
        (path,) = re.findall(r"CHESTFED_KEY_FILE=(\S+)", dockerfile.read_text(encoding="utf-8"))
        return str(path)

    mounted = [volume.split(":")[1] for volume in read_service("hospital")["volumes"] if not volume.endswith(":ro")]
    assert key_in(FOLDER / "federation.Dockerfile") == f"{mounted[0]}/{HospitalFile.model_fields['names_key'].default}"
    assert key_in(ROOT / "Dockerfile") == "/key/key"  # not in /work, where results lie
    assert "HOME=/work" not in (ROOT / "Dockerfile").read_text(encoding="utf-8")
