"""Models whose AUC is below one half where they were trained: what that can mean, in a sentence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from chestfed.core.diseases import title_of
from chestfed.evaluation.estimates import Estimate
from chestfed.results.grid import number
from chestfed.results.hospital_table import HospitalTable
from chestfed.results.table import StudyTable

#: The AUC of a score without information.
_CHANCE = 0.5


def describe_chance(results: Iterable[tuple[str, Sequence[Estimate]]]) -> str:
    """Which models order the images of a hospital they were trained at worse than chance; empty if none does.

    `results` are a name and the AUCs (each disease, and at last the mean) of every model at such a hospital. Diseases
    are named if their interval is below one half.
    """
    below = [(name, aucs) for name, aucs in results if aucs[-1].value is not None and aucs[-1].value < _CHANCE]
    if not below:
        return ""
    where = "; ".join(f"{name} {number(aucs[-1].value)}{_name_diseases(aucs[:-1])}" for name, aucs in below)
    return (
        "The mean AUC is below 0.5 on held-out patients of a hospital that the model was trained at. Labels may be "
        f"reversed, or training diverged or was too short: {where}."
    )


def list_results(table: StudyTable, hospitals: HospitalTable | None) -> list[tuple[str, Sequence[Estimate]]]:
    """Every K of a study at every hospital that trained it; at the target alone if nobody else is scored."""
    if hospitals is None:
        return [(f"K={row.k}", row.aucs) for row in table.rows]
    return list_hospitals(hospitals)


def list_hospitals(hospitals: HospitalTable) -> list[tuple[str, Sequence[Estimate]]]:
    """Every model at every hospital that trained it."""
    return [
        (f"{model} at {hospital.name}", hospital.aucs[model])
        for hospital in hospitals.hospitals
        for model in hospitals.models
        if hospitals.takes_part(hospital, model)
    ]


def _name_diseases(diseases: Sequence[Estimate]) -> str:
    names = [
        title_of(disease.disease)
        for disease in diseases
        if disease.interval is not None and disease.interval.high < _CHANCE
    ]
    return f" ({', '.join(names)}: 95% interval below 0.5)" if names else ""
