"""Another share of positives among a site's training images: who is dropped, and who is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError

from chestfed.core.errors import ConfigError
from chestfed.data.sites.table import SiteTable
from chestfed.studies.experiment.data import SiteEntry
from chestfed.studies.experiment.loading import load_pipeline
from chestfed.studies.experiment.resolved import identity, shareable
from chestfed.studies.training.data.prevalence import thin_positives
from chestfed.studies.training.data.sites import TEST, TRAIN, UNUSED, VALID, StudySite
from tests.cases import assert_refused, each
from tests.studies.training.tiny_studies import FILE, SMALL, read_rows, run_three, write_three

BOTH = ("edema", "effusion")


def make_site(
    shares: tuple[float, ...], count: int = 900, clients: int = 1, repeats: int = 1, **entry: object
) -> StudySite:
    """Three images per patient with independent labels of these prevalences; a third is not for training."""
    draw = np.random.default_rng(5)
    labels = draw.uniform(size=(count, len(shares))) < shares
    patients = [f"p{number // 3}" for number in range(count)]
    roles = [(TRAIN, TRAIN, TRAIN, TRAIN, TEST, VALID)[number // 3 % 6] for number in range(count)]
    names = [f"here-{number}" for number in range(1, clients + 1)] if clients > 1 else ["here"]
    client = [names[number // 3 // 6 % clients] if role == TRAIN else "" for number, role in enumerate(roles)]
    frame = pd.DataFrame({"patient": patients, "role": roles, "client": client, "reason": "", "study": patients})
    frame = frame.assign(
        **dict(zip(BOTH, labels.T.astype(np.float32), strict=False)),
        repeats=np.where(labels[:, 0], repeats, 1),
        view=pd.Categorical(["pa"] * count),
        sex=pd.Categorical(["F"] * count),
        age=np.float32(50),
    )
    diseases = BOTH[: len(shares)]
    given = SiteEntry.model_validate({"config": "here.yaml", "clients": clients, **entry})
    table = SiteTable("here", "here", Path(), True, diseases, frame)
    return StudySite(given, table, 1, diseases, tuple(names), {"left_out": {}})


def changed(site: StudySite) -> np.ndarray:
    return np.flatnonzero((site.table.frame["reason"] != "").to_numpy())


def test_last_patients_with_many_images_are_exchanged() -> None:
    """Positives of one client: a patient with seven, who is visited last by some seeds, and twenty with one."""
    patients = [f"p{number}" for number in range(20)] + ["many"] * 7 + [f"n{number}" for number in range(200)]
    labels = np.repeat([1.0, 0.0], [27, 200]).astype(np.float32)
    whole = make_site((0.4,), count=len(labels), positives=0.01)
    frame = whole.table.frame.assign(patient=patients, study=patients, edema=labels, role=TRAIN, client="here")
    site = replace(whole, table=whole.table.with_frame(frame))
    for seed in range(20):
        left = thin_positives(site, seed).select(TRAIN).frame
        assert (len(left), left["edema"].sum()) == (202, 2)


@each("share, wanted", [(0.4, 0.03), (0.4, 0.3), (0.03, 0.4), (0.2, 0.35), (0.2, 0.21)])
def test_whole_patients_come_to_the_share(share: float, wanted: float) -> None:
    site = make_site((share,), positives=wanted)
    thinned = thin_positives(site, 3)
    (ratio,) = thinned.select(TRAIN).positive_ratios()
    assert ratio == pytest.approx(wanted, rel=0.15)
    before, after = site.table.frame, thinned.table.frame
    assert after["role"][before["role"] != TRAIN].equals(before["role"][before["role"] != TRAIN])
    dropped = set(before["patient"].iloc[changed(thinned)])
    assert dropped
    assert not dropped & set(after["patient"].iloc[thinned.find(TRAIN)])
    positive = before.groupby("patient")["edema"].max()[sorted(dropped)]
    assert (positive == (1 if wanted < site.select(TRAIN).positive_ratios()[0] else 0)).all()
    assert (after["role"].iloc[changed(thinned)] == UNUSED).all()
    assert thinned.facts["people"]["train"]["images"] == len(thinned.find(TRAIN))
    assert list(thinned.facts["left_out"].values()) == [len(changed(thinned))]


def test_no_more_patients_go_than_needed() -> None:
    site = make_site((0.4,), positives=0.1)
    thinned = thin_positives(site, 3)
    rows = thinned.find(TRAIN)
    labels = thinned.table.frame["edema"].to_numpy()
    last = site.table.frame["patient"].iloc[changed(thinned)].unique()
    fewer = [np.append(rows, np.flatnonzero(site.table.frame["patient"] == patient)) for patient in last]
    assert len(fewer) > 10
    assert all(abs(labels[more].mean() - 0.1) >= abs(labels[rows].mean() - 0.1) for more in fewer)


def test_a_seed_draws_the_patients() -> None:
    site = make_site((0.4,), positives=0.1)
    one, again, other = (changed(thin_positives(site, seed)).tolist() for seed in (1, 1, 2))
    assert one == again != other


def test_repeated_positives_count_as_trained_on() -> None:
    thinned = thin_positives(make_site((0.2,), positives=0.1, repeats=3), 1)
    assert thinned.select(TRAIN).positive_ratios() == pytest.approx([0.1], rel=0.1)


def test_clients_cut_alike_have_the_share_each() -> None:
    site = make_site((0.4,), clients=3, positives=0.1)
    thinned = thin_positives(site, 1)
    assert [*thinned.clients] == ["here-1", "here-2", "here-3"]
    for name in thinned.clients:
        assert thinned.select(TRAIN, name).positive_ratios() == pytest.approx([0.1], rel=0.15)
    whole = thin_positives(make_site((0.4,), clients=3, cut="unlike", positives=0.1), 1)
    assert whole.select(TRAIN).positive_ratios() == pytest.approx([0.1], rel=0.1)


def test_each_of_two_diseases_has_its_share() -> None:
    joint = thin_positives(make_site((0.1, 0.15), positives=0.05), 1)
    assert joint.select(TRAIN).positive_ratios() == pytest.approx([0.05, 0.05], rel=0.15)
    given = thin_positives(make_site((0.1, 0.3), positives={"edema": 0.05, "effusion": 0.2}), 1)
    assert given.select(TRAIN).positive_ratios() == pytest.approx([0.05, 0.2], rel=0.2)
    one = thin_positives(make_site((0.3, 0.4), positives={"edema": 0.1}), 1)
    assert one.select(TRAIN).positive_ratios()[0] == pytest.approx(0.1, rel=0.15)
    assert one.select(TRAIN).positive_ratios()[1] > 0.3


def test_unreachable_shares_are_refused() -> None:
    with assert_refused(ConfigError, "share of positives not reached", site="here", disease="edema"):
        thin_positives(make_site((0.4,), count=60, positives=0.001), 1)
    with assert_refused(ConfigError, "share of positives not reached", disease="edema", found=0.0):
        thin_positives(make_site((0.0,), positives=0.1), 1)
    with assert_refused(ConfigError, "disease without labels", diseases=["pneumonia"]):
        thin_positives(make_site((0.4,), positives={"pneumonia": 0.1}), 1)
    twins = make_site((0.3, 0.3))  # both diseases have the same positives: their shares cannot differ
    frame = twins.table.frame.assign(effusion=twins.table.frame["edema"])
    entry = SiteEntry.model_validate({"config": "here.yaml", "positives": {"edema": 0.02, "effusion": 0.2}})
    same = StudySite(entry, twins.table.with_frame(frame), 1, BOTH, ("here",), {"left_out": {}})
    with assert_refused(ConfigError, "share of positives not reached"):
        thin_positives(same, 1)


def test_even_shares_of_skewed_clients_are_refused() -> None:
    about = {"config": "here.yaml", "clients": 3, "positives": 0.1}
    assert SiteEntry.model_validate({**about, "partition": {"quantity": 0.5}}).positives == 0.1
    for skew in ({"dirichlet": 0.1}, {"shards": 1}):
        with pytest.raises(ValidationError, match="positives"):
            SiteEntry.model_validate({**about, "partition": skew})


def test_default_is_in_no_identity() -> None:
    pipeline = load_pipeline(FILE, SMALL).resolve()
    changed = load_pipeline(FILE, [*SMALL, "sites.1.positives=0.2"]).resolve()
    assert identity(changed) == identity(pipeline)  # the digests of the sites' content tell them apart
    assert "positives" not in shareable(pipeline)["sites"][1]
    assert shareable(changed)["sites"][1]["positives"] == 0.2


def test_a_study_trains_on_what_is_left(home: Path) -> None:
    file = write_three(home)
    settings = [*SMALL, *(f"sites.{place}.positives={{edema: 0.3}}" for place in range(2))]
    pipeline = load_pipeline(file, settings).resolve()
    sites = read_rows(pipeline, file, home / str(pipeline.data_root)).sites
    ratios = [site.select(TRAIN).positive_ratios()[pipeline.diseases.index("edema")] for site in sites]
    assert ratios[:2] == pytest.approx([0.3, 0.3], rel=0.2)
    held = load_pipeline(file, [*settings, "held_out={sites: [vindr]}"]).resolve()
    assert held.held_out is not None
    others = read_rows(held, file, home / str(pipeline.data_root)).sites[:2]
    assert [site.select(TRAIN).positive_ratios()[pipeline.diseases.index("edema")] for site in others] == ratios[:2]
    called = run_three(home, "--dry-run", settings=settings)
    for site in sites[:2]:
        count = (site.table.frame["reason"] == "dropped for positives: edema 0.3").sum()
        assert f"{site.name}: {count} training images of" in " ".join(called.out.split())
