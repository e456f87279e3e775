"""Rooms with their lines, arrows between them, and the reach of each feature: `python -m tests.house`.

The reach of a feature is the number of files outside its home that name it. A feature that many files name cannot be
checked alone, nor removed.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import chestfed
from tests.test_imports import import_graph, room

ROOT: Final = Path(chestfed.__file__).parent


@dataclass(frozen=True)
class Feature:
    """A word by which code names a feature, and the places where the feature is at home.

    Attributes
    ----------
    words
        Regular expression of the names in code.
    homes
        Folders or files below `chestfed/`, by prefix.
    """

    words: str
    homes: tuple[str, ...]


FEATURES: Final = {
    "held-out sites": Feature(r"held_out\b", ("studies/designs/held_out", "results/tables/presentations/held_out")),
    "subsets": Feature(r"\bsubsets\b|Shapley", ("leaves/subsets", "results/evaluation/joining/contributions")),
    "target images": Feature(r"target_images", ("studies/designs/target_images",)),
    "alternatives": Feature(r"\balternatives\b", ("studies/designs/alternatives", "studies/experiment/alternatives")),
    "gate": Feature(r"\bGate\b|\bgate\b", ("results/evaluation/joining/gate", "results/tables/clients/gate")),
    "windows": Feature(r"\bby_window\b|\bwindows\b", ("studies/designs/comparison",)),
    "personal methods": Feature(r"\bPersonal\b|\bpersonal\b", ("learning/algorithms/personal",)),
    "decentralized": Feature(r"PeerEngine|PeerAlgorithm|[Dd]ecentralized", ("leaves/decentralized",)),
    "compositional": Feature(r"[Cc]ompositional", ("leaves/compositional",)),
    "score pool": Feature(r"\bpool_shape\b|[Ss]core_?[Pp]ool|\bPooled\b", ("leaves/score_pool",)),
    "differential privacy": Feature(r"noise_multiplier|PrivacyOptions|\bepsilon\b", ("learning/exchange/noise",)),
    "compression": Feature(r"[Cc]ompression\b", ("learning/exchange/compression",)),
    "server optimizer": Feature(r"server_optimizer|ServerOptimizer", ("learning/exchange/server_optimizer",)),
    "robust mean": Feature(r"\btrim\b|trimmed|[Rr]obust[A-Z_]?", ("learning/exchange/aggregation",)),
    "local steps": Feature(r"\blocal_steps\b|LocalSteps|straggler", ("studies/experiment",)),
    "frozen features": Feature(r"FeatureOptions|FeatureStore|FeatureImages|load_frozen", ("data/images/features",)),
    "stage output": Feature(r"stage_output", ("studies/training/loop",)),
    "tuning": Feature(r"TuningRecord", ("studies/tuning",)),
    "published figures": Feature(r"PublishedFigures|paper_auc|find_paper", ("results/tables/settings",)),
    "permuted labels": Feature(r"labels_permuted", ("studies/training/data",)),
    "overlap of sites": Feature(r"[Oo]verlap", ("studies/training/data/overlap",)),
    "samples": Feature(r"write_hospitals|write_samples|\bphantom", ("leaves/samples",)),
    "Slurm": Feature(r"submitit|\bcluster\b|[Ss]lurm", ("leaves/slurm",)),
    "leaderboard": Feature(r"leaderboard", ("leaves/leaderboard",)),
    "drafts": Feature(r"\bdrafts?\b|site_new", ("leaves/drafts",)),
    "federation over hospitals": Feature(r"leaves\.federation|\bParticipant\b|Flower\b", ("leaves/federation",)),
    "transfer of thresholds": Feature(r"judge_transfer|judge_folds|transfer\.csv", ("leaves/thresholds",)),
}


def list_reach() -> dict[str, list[str]]:
    """Feature -> files outside its homes that name it in code (comments and docstrings included)."""
    texts = {file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8") for file in ROOT.rglob("*.py")}
    return {
        name: sorted(path for path, text in texts.items() if not path.startswith(feature.homes) and search(text))
        for name, feature in FEATURES.items()
        for search in [re.compile(feature.words).search]
    }


def count_lines() -> dict[str, int]:
    """Room -> lines of its modules."""
    lines: dict[str, int] = {}
    for file in ROOT.rglob("*.py"):
        name = file.relative_to(ROOT).parts[0].removesuffix(".py")
        lines[name] = lines.get(name, 0) + len(file.read_text(encoding="utf-8").splitlines())
    return lines


def list_arrows() -> list[tuple[str, str]]:
    """Pairs of rooms of which the first imports the second."""
    arrows = {(room(module), room(name)) for module, names in import_graph().items() for name in names}
    return sorted(pair for pair in arrows if pair[0] != pair[1])


def main() -> None:
    """Print the three lists; `-v` names the files of each reach."""
    lines, arrows = count_lines(), list_arrows()
    print(f"{'room':12} lines  imports")
    for name in sorted(lines, key=lambda name: -lines[name]):
        print(f"{name:12} {lines[name]:6}  {', '.join(b for a, b in arrows if a == name)}")
    core = sum(count for name, count in lines.items() if name != "leaves")
    print(f"{'all':12} {sum(lines.values()):6}  without leaves {core}; {len(arrows)} arrows\n")
    for name, files in sorted(list_reach().items(), key=lambda item: -len(item[1])):
        print(f"{name:26} {len(files):3} files outside its home")
        for file in files if "-v" in sys.argv else ():
            print(f"    {file}")


if __name__ == "__main__":
    main()
