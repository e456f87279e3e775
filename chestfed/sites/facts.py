"""What a study says of a hospital's participants and labels: counts and policies, no names of patients or files."""

from __future__ import annotations

from typing import Any

from chestfed.sites.config import SiteConfig
from chestfed.sites.table import SiteTable


def site_facts(config: SiteConfig, whole: SiteTable, training: SiteTable, test: SiteTable) -> dict[str, Any]:
    """Flow, people and label policy of a hospital, as plain data; `training` and `test` are the parts that are used."""
    views = "all" if config.views == "all" else ", ".join(config.views)
    left_out = {f"other views than {views}": whole.other_views} | {
        f"rows: {reason.replace('_', ' ')}": count for reason, count in whole.left_out.items()
    }
    return {
        "site": whole.name,
        "title": whole.title,
        **{name: getattr(config, name) for name in ("license", "source", "citation", "reference_standard")},
        "policy": {
            "names": config.model_dump(mode="json")["labels"],
            **{name: dict(getattr(config, name)) for name in ("uncertain", "blank", "upsample")},
        },
        "found": len(whole.frame) + sum(left_out.values()),
        "left_out": {reason: count for reason, count in left_out.items() if count},
        "people": {"train": _people(training), "test": _people(test)},
    }


def _people(part: SiteTable) -> dict[str, Any]:
    patients = part.frame.drop_duplicates("patient")
    sex, ages = patients["sex"].dropna(), patients["age"].dropna()
    views = part.frame["view"].value_counts()
    return {
        "images": len(part.frame),
        "patients": len(patients),
        "women": float((sex == "F").mean()) if len(sex) else None,
        "age": [float(ages.quantile(q)) for q in (0.25, 0.5, 0.75)] if len(ages) else None,
        "views": {str(view): int(count) for view, count in views.items() if count},
    }
