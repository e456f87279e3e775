"""The container files, as far as they can be checked without a container engine."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from chestfed.cli import app
from chestfed.federation.settings import HospitalFile

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "containers"


@pytest.mark.parametrize("name", ["server", "hospital"])
def test_services_run_existing_commands(name: str) -> None:
    (service,) = yaml.safe_load((FOLDER / f"{name}.compose.yaml").read_text(encoding="utf-8"))["services"].values()
    *command, folder = service["command"]
    found = get_command(app)
    for word in command:
        found = found.commands[word]  # type: ignore[attr-defined]
    mounted = {volume.rsplit("}", 1)[1].split(":")[1]: volume for volume in service["volumes"]}
    assert folder in mounted
    assert (service["read_only"], service["cap_drop"], "privileged" in service) == (True, ["ALL"], False)
    assert ("ports" in service) == (name == "server")
    if name == "hospital":
        assert mounted["/data"].endswith(":ro")


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
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert needed <= kept  # what the build of the package reads is not ignored


def test_secret_key_has_own_mount() -> None:
    def key_in(dockerfile: Path) -> str:
        (path,) = re.findall(r"CHESTFED_KEY_FILE=(\S+)", dockerfile.read_text(encoding="utf-8"))
        return str(path)

    (service,) = yaml.safe_load((FOLDER / "hospital.compose.yaml").read_text(encoding="utf-8"))["services"].values()
    mounted = [volume.rsplit("}", 1)[1].split(":")[1] for volume in service["volumes"] if not volume.endswith(":ro")]
    assert key_in(FOLDER / "federation.Dockerfile") == f"{mounted[0]}/{HospitalFile.model_fields['names_key'].default}"
    assert key_in(ROOT / "Dockerfile") == "/key/key"  # not in /work, where results lie
    assert "HOME=/work" not in (ROOT / "Dockerfile").read_text(encoding="utf-8")
