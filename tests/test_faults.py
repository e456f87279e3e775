"""The campaign of faults in a short form, how it is taken up again, and that the documentation shows what it found."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from PIL import Image

from benchmarks import __main__ as benchmarks
from benchmarks.faults import __main__ as campaign
from benchmarks.faults import pictures
from benchmarks.faults.cases import Campaign, Case, Result


def test_a_campaign_goes_on_with_what_is_missing_and_what_fell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tried: list[str] = []
    faults = {"b": "it fell"}

    def attempt(name: str) -> Result:
        if name == "c" and faults:
            raise KeyboardInterrupt
        tried.append(name)
        return Result(faults.get(name, ""), {"kills": 4}, {"s": len(tried)})

    def cases(given: Campaign) -> Iterator[Case]:
        yield from (Case(name, partial(attempt, name)) for name in "abc")

    monkeypatch.setattr(campaign, "PARTS", {"kills": cases})
    monkeypatch.setattr(campaign, "sound_study", lambda home: home)
    words = ["faults", "kills", "--save", str(tmp_path / "faults.json")]
    with pytest.raises(KeyboardInterrupt):
        benchmarks.main(words)
    assert tried == ["a", "b"]
    assert "| 2 cases, 8 kills, at most 2 s | 1 good |" in campaign.table(campaign.read(tmp_path / "faults.json"))
    faults.clear()
    with pytest.raises(SystemExit) as ended:
        benchmarks.main(words)
    assert (ended.value.code, tried) == (0, ["a", "b", "b", "c"])
    assert "| 3 cases, 12 kills, at most 4 s | all good |" in capsys.readouterr().out


def test_a_picture_read_as_another_is_noticed(tmp_path: Path) -> None:
    given = Campaign(tmp_path, tmp_path)
    both = [pictures.saved(Image.new("L", (32, 32), shade), "PNG") for shade in (7, 8)]
    contents = [lambda: both[0], lambda: both[0], lambda: both[1], lambda: b"no picture"]
    for checksums in (False, True):
        result = pictures.compare(given, contents, checksums=checksums)
        assert result.counts == {"pictures": 4, "read": 3, "refused": 1, "changed unnoticed": 1}
        assert result.why == ("number 2: read as another picture" if checksums else "")


ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "faults.json"
#: What the other tests have in a short form of their own, or takes minutes.
LONG = ("kills", "stores", "repairs", "folders", "names", "disks", "together", "canaries", "real_key")


@pytest.mark.parametrize(
    "parts", [[part for part in campaign.PARTS if part not in LONG], pytest.param(list(LONG), marks=pytest.mark.slow)]
)
def test_a_short_campaign_finds_nothing(
    parts: list[str], tiny_hospitals: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def sound_study(home: Path) -> Path:
        (home / "synthetic_hospitals").symlink_to(tiny_hospitals)  # else they are drawn again
        return original(home)

    original = campaign.sound_study
    monkeypatch.setattr(campaign, "sound_study", sound_study)
    words = ("--every", "45", "--kills", "2", "--stores", "1", "--flips", "2", "--pictures", "1000")
    with pytest.raises(SystemExit) as ended:
        campaign.main([*parts, *words])
    assert ended.value.code == 0, capsys.readouterr().out
    assert capsys.readouterr().out.count("| all good |") == len(parts)


def test_the_documentation_has_the_table_of_the_last_campaign() -> None:
    saved = campaign.read(RESULTS)
    assert {"stores", "pictures"} <= set(saved)
    assert campaign.table(saved) in (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
    assert not [row for part in saved.values() for row in part["cases"] if row.get("why")]
