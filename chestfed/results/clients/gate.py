"""What hospitals could do instead of using the common model, by name, and what their gates chose of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from chestfed.results.files import expected, read_json_file
from chestfed.results.run_folder import ALTERNATIVES, CENTRALIZED, CHOICE, FINE_TUNED, GATE, OWN_DATA, RunFolder

#: Kinds of alternatives -> what tables call them.
ALTERNATIVE_TITLES: Final = {
    OWN_DATA: "own data alone",
    FINE_TUNED: "fine-tuned",
    CENTRALIZED: "centralized",
    GATE: "gate",
}


def count_choices(runs: Sequence[RunFolder], k: int) -> dict[str, dict[str, int]]:
    """Hospital -> what its gate chose, and in how many runs."""
    counts: dict[str, dict[str, int]] = {}
    for run in runs:
        for file in sorted((run.path / f"k{k}" / ALTERNATIVES / GATE).glob(f"*/{CHOICE}")):
            choice = read_json_file(file)
            with expected(file):
                title = ALTERNATIVE_TITLES.get(choice["name"], f"K={k}")
                title += f" mixed with {ALTERNATIVE_TITLES[OWN_DATA]}" * choice["mixed"]
            chosen = counts.setdefault(file.parent.name, {})
            chosen[title] = chosen.get(title, 0) + 1
    return counts
