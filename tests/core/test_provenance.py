"""What results say of where their images come from."""

from __future__ import annotations

import itertools

import pytest

from chestfed.core.provenance import Origin

REAL, SYNTHETIC, MIXED = Origin.REAL, Origin.SYNTHETIC, Origin.MIXED


def test_one_real_part_makes_it_mixed() -> None:
    assert Origin.of([True, True]) is SYNTHETIC
    assert Origin.of([False]) is REAL
    assert Origin.of([True, False, True]) is MIXED
    assert Origin.of([]) is REAL
    assert Origin.together([]) is REAL


def test_results_are_alike_or_mixed() -> None:
    for origin, other in itertools.product(Origin, Origin):
        assert Origin.together([origin, other]) is (origin if origin is other else MIXED)


@pytest.mark.parametrize("origin", list(Origin))
def test_what_is_written_is_read(origin: Origin) -> None:
    assert Origin.read(origin.keys()) is origin
    assert origin.tags()["data"] == origin.value


def test_unknown_origin_is_none() -> None:
    assert Origin.read({"synthetic": True, "data": "unknown"}) is None
    assert Origin.read({}) is None


def test_only_phantoms_have_no_patients() -> None:
    for origin in Origin:
        words = (origin.mark, origin.sentence, origin.description, origin.alt, origin.short_mark)
        assert any("no patients" in text.lower() for text in words) is (origin is SYNTHETIC)
        assert any("real" in text for text in words) is (origin is not SYNTHETIC)
        assert any("synthetic" in text.lower() for text in words) is (origin is not REAL)
