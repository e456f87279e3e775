"""Every network that the documentation names is built in the default installation, or says what to install."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from chestfed.learning.models import build_model, network_options
from chestfed.learning.models.building import try_network

DOCS = Path(__file__).parents[2] / "docs"
#: `model:` lines of YAML in the docs, with their comments.
LINES = sorted(
    {
        line
        for page in DOCS.rglob("*.md")
        for line in re.findall(r"^model: \{.*$", page.read_text("utf-8"), re.MULTILINE)
    }
)
#: Built in, without a line of their own.
NAMES = re.findall(r"built in: ([\w, ]+)", "\n".join(LINES))[0].split(", ")


@pytest.mark.parametrize("name", NAMES)
def test_built_in_network_is_built(name: str) -> None:
    assert sum(weight.numel() for weight in build_model(network_options(name), 5, seed=0).parameters()) > 1000


@pytest.mark.slow
@pytest.mark.parametrize("line", [line for line in LINES if "mylab" not in line])
def test_named_network_is_built_or_says_how(line: str) -> None:
    settings = yaml.safe_load(line)["model"]
    package = settings["name"].partition(".")[0].partition(":")[0]
    if package in ("timm", "torchvision"):
        assert f"install {package} first" in line
    else:
        try_network(network_options(settings.pop("name"), **settings), 5, 320)  # raises unless it gives five logits
