"""requirements/: locked versions that fit pyproject.toml, with hashes, for every build of PyTorch."""

from __future__ import annotations

import importlib.util
import json
import re
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "requirements"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CORE = PROJECT["project"]["dependencies"]
EXTRAS = PROJECT["project"]["optional-dependencies"]
RENEW = "renew the lock: python3 bootstrap.py lock"


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def blocks(name: str) -> list[str]:
    """The requirements of a file, each with its hashes."""
    text = (FOLDER / name).read_text(encoding="utf-8")
    return re.findall(r"^[^\s#].*\n(?:[ \t].*\n)*", text, re.MULTILINE)


def versions(name: str) -> dict[str, set[str]]:
    """Package -> its locked lines without hashes: several where the version depends on the machine."""
    pins: dict[str, set[str]] = {}
    for block in blocks(name):
        line = block.splitlines()[0].removesuffix(" \\")
        pins.setdefault(normal(Requirement(line).name), set()).add(line)
    return pins


def unlocked(required: list[str], locked: dict[str, set[str]]) -> list[str]:
    """Requirements with a missing or forbidden version."""
    bad = []
    for requirement in map(Requirement, required):
        lines = locked.get(normal(requirement.name), set())
        exact = [next(iter(Requirement(line).specifier)).version for line in lines]
        if not exact or not all(requirement.specifier.contains(version) for version in exact):
            bad.append(str(requirement))
    return bad


def script(name: str) -> Any:
    """One of the scripts beside the lock, as a module."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_requirement_is_locked() -> None:
    constraints = versions("constraints.txt")
    for file, required in {
        "core.txt": [*CORE, *PROJECT["build-system"]["requires"]],
        "dev.txt": [*CORE, *PROJECT["build-system"]["requires"], *EXTRAS["dev"], *EXTRAS["docs"]],
        "federation.txt": [*CORE, *PROJECT["build-system"]["requires"], *EXTRAS["flower"]],
        "audit.txt": ["pip-audit"],
    }.items():
        locked = versions(file)
        torch = {"torch": constraints["torch"]}
        lines = [line for line in required if not line.startswith("chestfed[")]
        assert unlocked(lines, {**locked, **torch}) == [], RENEW


def test_dev_includes_docs() -> None:
    assert "chestfed[docs]" in EXTRAS["dev"]


def test_lock_files_agree() -> None:
    def pins(file: str) -> set[str]:
        return {line.partition(" ")[0] for lines in versions(file).values() for line in lines}

    assert pins("core.txt") <= pins("dev.txt") <= pins("constraints.txt")


def test_federation_lock_agrees() -> None:
    """Flower pins older versions of some packages; none of them makes numbers."""
    core, federation = versions("core.txt"), versions("federation.txt")
    other = {name for name in core if core[name] != federation.get(name)}
    assert other <= {"fastapi", "packaging", "protobuf", "rich", "starlette", "typer", "uvicorn"}


def test_hashes_cover_all_but_pytorch() -> None:
    """A CPU build and a CUDA build of the same version are different files; CUDA packages belong to one of them."""
    stack = set(versions("constraints.txt")) - set(versions("dev.txt"))
    assert {"torch", "triton"} <= stack
    assert all(re.match(r"torch$|triton$|nvidia-|cuda-", name) for name in stack)
    assert set(versions("torch.txt")) == stack
    for file in ("core.txt", "dev.txt", "federation.txt", "audit.txt"):
        assert not stack & set(versions(file))
        assert [block for block in blocks(file) if not re.search(r"--hash=sha256:[0-9a-f]{64}\b", block)] == []
    assert not re.search("--hash", (FOLDER / "constraints.txt").read_text(encoding="utf-8"))


def test_lock_names_no_index_or_folder() -> None:
    for file in FOLDER.glob("*.txt"):
        text = file.read_text(encoding="utf-8")
        assert "://" not in text
        assert "index-url" not in text
        assert "find-links" not in text


def test_renewed_lock_leaves_out_pytorch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = script("lock")
    hashes = "    --hash=sha256:00 \\\n    --hash=sha256:11\n"
    resolved = [f"{line} \\\n{hashes}" for line in ("a==1", "nvidia-x==2 ; sys_platform == 'linux'", "torch==3")]
    monkeypatch.setattr(lock, "HERE", tmp_path)
    monkeypatch.setattr(lock, "resolve", lambda output, *_: resolved)

    assert lock.main([]) == 0
    assert lock.main(["--no-such-option"]) == 2

    names = ("constraints", "torch", "dev", "core", "federation", "audit")
    constraints, torch, dev, *others = ((tmp_path / f"{name}.txt").read_text() for name in names)
    assert constraints.splitlines()[1:] == ["a==1", "nvidia-x==2 ; sys_platform == 'linux'", "torch==3"]
    assert torch.splitlines()[1:] == constraints.splitlines()[2:]
    assert others == [dev] * 3
    assert dev.splitlines()[1:] == resolved[0].splitlines()


def advisory(name: str, *events: dict[str, str], kind: str = "ECOSYSTEM", **more: Any) -> dict[str, Any]:
    """One in OSV's format, about one package."""
    package = {"package": {"ecosystem": "PyPI", "name": name}, "ranges": [{"type": kind, "events": list(events)}]}
    return {"id": f"X-{name}", "modified": "2026-01-02T00:00:00Z", "affected": [package], **more}


@pytest.mark.parametrize("packed", [False, True])
def test_audit_names_affected_versions(tmp_path: Path, capsys: pytest.CaptureFixture[str], packed: bool) -> None:
    ever = {"introduced": "0"}
    bad = {
        "fixed-later": advisory("fixed-later", ever, {"fixed": "2.10"}),
        "came.again": advisory("Came_Again", ever, {"fixed": "1.0"}, {"introduced": "2.0"}, {"fixed": "3.0"}),
        "the-last": advisory("the-last", ever, {"last_affected": "2.9"}),
        "listed": {**advisory("listed"), "affected": [{**advisory("listed")["affected"][0], "versions": ["2.9"]}]},
    }
    good = {
        "fixed-before": advisory("fixed-before", ever, {"fixed": "2.9"}),
        "came-later": advisory("came-later", {"introduced": "2.9.1"}),
        "older": advisory("older", ever, {"last_affected": "2.8"}),
        "of-commits": advisory("of-commits", ever, kind="GIT"),
        "taken-back": advisory("taken-back", ever, withdrawn="2026-01-03T00:00:00Z"),
        "of-others": {**advisory("of-others"), "affected": [{"package": {"ecosystem": "npm", "name": "of-others"}}]},
    }
    lock = tmp_path / "lock.txt"
    lock.write_text("# head\n" + "".join(f"{name}==2.9 ; python_version > '3'\n" for name in (*bad, *good)))
    copy = tmp_path / ("all.zip" if packed else "copy")
    if packed:
        with zipfile.ZipFile(copy, "w") as archive:
            for name, record in (bad | good).items():
                archive.writestr(f"{name}.json", json.dumps(record))
    else:
        copy.mkdir()
        for name, record in (bad | good).items():
            (copy / f"{name}.yaml").write_text(json.dumps(record))  # which is YAML as well

    assert script("audit").main([str(copy), "--lock", str(lock)]) == 1
    *lines, counted, snapshot, _, _ = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == sorted(name.replace(".", "-") for name in bad)
    assert counted.startswith("10 locked versions, 8 packages with advisories: 4 found")
    assert "2026-01-02" in snapshot
    lock.write_text("older==2.9\n")
    assert script("audit").main([str(copy), "--lock", str(lock)]) == 0
    (tmp_path / "empty").mkdir()
    assert script("audit").main([str(tmp_path / "empty"), "--lock", str(lock)]) == 2
