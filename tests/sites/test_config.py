"""The schema of a site's YAML, and the configurations that are shipped."""

from __future__ import annotations

from pathlib import Path

import pytest

from chestfed.core.diseases import DISEASES
from chestfed.core.errors import ConfigError
from chestfed.sites import load_site_config
from tests.sites.small_sites import CONFIGS, config_of

SHIPPED = sorted(path.relative_to(CONFIGS).as_posix() for path in CONFIGS.rglob("*.yaml"))
SITES = ("chestxray8", "chexpert", "mimic_cxr", "padchest", "vindr")


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_configuration_is_valid_and_says_where_to_get_the_files(name: str) -> None:
    path = CONFIGS / name
    config = load_site_config(path)
    assert path.read_text(encoding="utf-8").startswith("# ")
    assert config.site == path.stem
    assert config.reader == ("table" if path.parent.name == "more" else config.site)
    assert config.source
    assert config.licence


def test_every_site_has_a_real_and_a_synthetic_configuration() -> None:
    assert [name.removesuffix(".yaml") for name in SHIPPED if "/" not in name] == list(SITES)
    assert [name for name in SHIPPED if "synthetic" in name] == [f"synthetic/{site}.yaml" for site in SITES]


@pytest.mark.parametrize("site", SITES)
def test_a_synthetic_configuration_has_the_policy_of_the_real_one_and_says_that_it_is_synthetic(site: str) -> None:
    real, synthetic = load_site_config(CONFIGS / f"{site}.yaml"), load_site_config(CONFIGS / f"synthetic/{site}.yaml")
    assert synthetic.synthetic
    assert not real.synthetic
    assert "synthetic" in synthetic.title
    assert synthetic.root == f"synthetic-{site.replace('_', '-')}"
    told_apart = {"synthetic", "title", "root", "licence", "source", "citation"}
    assert synthetic.model_dump(exclude=told_apart) == real.model_dump(exclude=told_apart)


def test_one_word_stands_for_all_diseases() -> None:
    assert config_of("chexpert", "uncertain=missing").uncertain == dict.fromkeys(DISEASES, "missing")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("labels.odema=[Edema]", "unknown disease 'odema'; did you mean 'edema'?"),
        ("upsample.Pleural Effusion=1", "unknown disease 'Pleural Effusion'; did you mean 'pleural_effusion'?"),
        ("labels.pneumonia=[Pneumonia]", "pneumonia: not among the site's 'diseases'"),
        ("diseases=[edema, edema]", "names a disease twice"),
        (
            "diseases=[cardiomegaly, edema, consolidation, atelectasis, pleural_effusion, mass]",
            "says nothing about mass",
        ),
        ("uncertain={edema: positive}", "says nothing about cardiomegaly, consolidation"),
        ("uncertain=perhaps", "'positive', 'negative' or 'missing', found 'perhaps'"),
        ("blank=positive", "'negative' or 'missing', found 'positive'"),
        ("upsample.edema=-1", "greater than or equal to 0"),
        ("views=[front]", "'pa', 'ap', 'frontal', 'lateral', 'other' or 'unknown'"),
        ("views=[]", "keeps nothing"),
        ("reader=nih", "unknown reader 'nih'. There are: table, chexpert, chestxray8, padchest, mimic_cxr, vindr"),
        ("label_files.train=[../train.csv]", "'../train.csv' leaves the site's root"),
        ("label_files.train=[/train.csv]", "'/train.csv' leaves the site's root"),
        ("splits={valid_fraction: 0.5, test_fraction: 0.5}", "leave nothing to train on"),
        ("site=My Site", "pattern"),
        ("uncertian=positive", "unknown key 'uncertian'; did you mean 'uncertain'?"),
    ],
)
def test_a_mistake_is_refused_with_its_place(override: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config_of("chexpert", override)
    assert message in str(caught.value)
    assert "--set " in str(caught.value) or "chexpert.yaml:" in str(caught.value)


def test_an_unknown_disease_in_a_file_is_named_with_its_line(tmp_path: Path) -> None:
    text = f"extends: {CONFIGS / 'chexpert.yaml'}\nlabels:\n  scoliosis: [Scoliosis]\n"
    (tmp_path / "mine.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"mine\.yaml:2: 'labels': unknown disease 'scoliosis'"):
        load_site_config(tmp_path / "mine.yaml")
