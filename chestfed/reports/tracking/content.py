"""Content of every record of a study: parameters, tags and metrics. It names no patient, no image, and no folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from chestfed.results.tables.frames import Row
from chestfed.studies.training.identity import software_versions
from chestfed.studies.training.reporting import StudyRun

#: Sums over the clients: per round under "round", of all rounds under "cost".
_COST: Final = ("images", "gradients", "bytes_up", "bytes_down")
_BUDGET: Final = ("epsilon", "epsilon_of_all")  # with `federated.privacy`


def list_parameters(study: StudyRun) -> dict[str, Any]:
    """The identity of a study as flat keys: configuration, digests of the sites' content, versions."""
    identity = study.identity
    digests = {f"dataset.{name}": digest for name, digest in identity.inputs.items()}
    versions = {f"version.{package}": version for package, version in software_versions().items()}
    versions["results_version"] = str(identity.results_version)
    return {**flatten(identity.configuration), **digests, **versions}


def list_tags(study: StudyRun, kind: str, **more: str) -> dict[str, str]:
    """Words by which a run is found."""
    return {
        **study.origin.tags(),
        "kind": kind,
        **({"quick": "true"} if study.pipeline.quick else {}),
        "pipeline": study.name,
        "algorithm": study.pipeline.federated.algorithm.name,
        "seed": str(study.pipeline.seed),
        "split": str(study.pipeline.split),
        "digest": study.identity.digest,
        **({"held_out": study.held_out} if study.held_out else {}),
        **more,
    }


def label_study(study: StudyRun) -> str:
    """Name of a study's run for people, which begins with the origin of its images."""
    settings, pipeline = study.pipeline.federated, study.pipeline
    split = f" split {pipeline.split}" if pipeline.split else ""
    quick, origin = "quick, " if pipeline.quick else "", f"{study.origin} " if study.origin.any_synthetic else ""
    label = f"{quick}{settings.algorithm.name} I={settings.window} seed {pipeline.seed}{split}"
    return f"{origin}{label}: {study.name}"


def list_round(entry: Mapping[str, Any]) -> dict[str, float | None]:
    """Metrics of one round: AUCs of an evaluated one first, loss, drift, costs."""
    aucs = {f"round/auc_{disease}": value for disease, value in entry.get("auc", {}).items()}
    others = {f"round/{name}": entry[name] for name in ("loss", "drift", "gradient_drift") if name in entry}
    names = (*_COST, *(key for key in _BUDGET if key in entry))
    others |= {f"round/{name}": entry[name] for name in names}
    return {"round/auc_mean": entry.get("mean_auc"), **aucs, **others}


def list_aucs(row: Row) -> dict[str, float | None]:
    """AUCs of a finished K."""
    diseases = {f"auc_per_disease/{estimate.disease}": estimate.value for estimate in row.diseases}
    return {"auc/mean": row.mean.value, **diseases}


def flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    """Nested data as dotted keys."""
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, list) and any(isinstance(part, dict) for part in value):
        items = enumerate(value)  # type: ignore[assignment]
    else:
        return {prefix: value}
    flat: dict[str, Any] = {}
    for key, part in items:
        flat |= flatten(part, f"{prefix}.{key}" if prefix else str(key))
    return flat
