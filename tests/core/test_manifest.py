"""Manifests: a flipped bit is damage, never another part, and never silent."""

from __future__ import annotations

from pathlib import Path

import pytest

from chestfed.core.manifest import MANIFEST, MisplacedError, Part, find_damage, write_manifest

PART = Part("0123456789ab", "k2")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A sealed folder with one file."""
    (tmp_path / "result.json").write_text("{}")
    write_manifest(tmp_path, PART, ["result.json", "missing.json"])
    return tmp_path


def test_a_sound_folder_has_no_damage(folder: Path) -> None:
    assert find_damage(folder, PART, ["result.json"]) == []
    assert find_damage(folder, Part(None, "k2")) == []


def test_flipped_manifest_bit_is_damage(folder: Path) -> None:
    file = folder / MANIFEST
    content, unnoticed = file.read_bytes(), 0
    for place in range(len(content)):
        for bit in range(8):
            file.write_bytes(content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :])
            damage = find_damage(folder, PART, ["result.json"])
            assert damage in ([], [MANIFEST])
            unnoticed += damage == []
    assert unnoticed < content.count(b"\n") * 4  # one kind of white space for another


@pytest.mark.parametrize("expected", [Part("0123456789ab", "k1"), Part("another", "k2"), Part("", "evaluation")])
def test_another_part_is_refused(folder: Path, expected: Part) -> None:
    with pytest.raises(MisplacedError) as caught:
        find_damage(folder, expected)
    assert (caught.value.folder, caught.value.part, caught.value.expected) == (folder, PART, expected)


def test_changed_and_missing_files_are_named(folder: Path) -> None:
    (folder / "result.json").write_text("[]")
    assert find_damage(folder, PART, ["model.safetensors"]) == ["model.safetensors", "result.json"]
    (folder / MANIFEST).unlink()
    assert find_damage(folder, PART) == [MANIFEST]
