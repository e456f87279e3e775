"""What results say of a study's configuration: the only place that reads the keys of a resolved pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Settings:
    """A study as it was to be run.

    Attributes
    ----------
    ks
        The K that were to be run.
    window
        Local steps per round.
    resamples
        Of the intervals and comparisons; 0: none were wanted.
    protocol
        Which images are scored.
    adds_hospitals
        Whether each K adds a hospital; else clients are parts of a hospital, or of a public collection.
    tests_first_hospital
        Whether all test images are of the first hospital.
    """

    ks: tuple[int, ...]
    seed: int
    algorithm: str
    objective: str
    window: int
    resamples: int
    protocol: str
    adds_hospitals: bool
    tests_first_hospital: bool

    @classmethod
    def of(cls, configuration: Mapping[str, Any]) -> Settings:
        """From the `configuration` of a `study.json`."""
        federated, evaluation = configuration["federated"], configuration["evaluation"]
        sites = configuration.get("sites") or []
        adds = len(sites) > 1 and all(site["clients"] == 1 for site in sites)
        return cls(
            ks=tuple(configuration["k"]),
            seed=int(configuration["seed"]),
            algorithm=_name(federated["algorithm"]),
            objective=_name(federated["objective"]),
            window=int(federated["window"]),
            resamples=int(evaluation["resamples"]),
            protocol=evaluation["protocol"] if sites else "test images",
            adds_hospitals=adds,
            tests_first_hospital=adds and sum(site["test_fraction"] is not None for site in sites) < 2,
        )


def _name(configured: Any) -> str:
    """Of a part that is a name, or a section with one."""
    return str(configured["name"] if isinstance(configured, Mapping) else configured)
