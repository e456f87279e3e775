"""The schema of a site's YAML, and the configurations that are shipped."""

from __future__ import annotations

from pathlib import Path

from chestfed.core.diseases import DISEASES, format_title
from chestfed.core.errors import ConfigError
from chestfed.data.sites import load_site_config
from chestfed.data.sites.reader import READERS
from tests.cases import assert_refused
from tests.data.sites.small_sites import CONFIGS, load_bundled

SHIPPED = sorted(path.relative_to(CONFIGS).as_posix() for path in CONFIGS.rglob("*.yaml"))
SITES = ("chestxray8", "chexpert", "mimic_cxr", "padchest", "vindr")


def test_shipped_configurations_are_valid() -> None:
    for name in SHIPPED:
        path = CONFIGS / name
        config = load_site_config(path)
        assert path.read_text(encoding="utf-8").startswith("# "), name
        hospital = path.stem.removesuffix("_sample").removesuffix("_five")  # the same as of the whole release
        assert config.site == hospital
        more = path.parent.name == "more"
        readers = ("table", "chexpert", "mimic_cxr") if more else (config.site.removesuffix("_all_views"),)
        readers = ("chestxray8", "table") if path.parent.name == "films" else readers
        assert config.reader.name in readers
        assert config.source, name
        assert config.license, name


def test_every_site_is_real_and_synthetic() -> None:
    assert [name.removesuffix(".yaml") for name in SHIPPED if "/" not in name] == list(SITES)
    assert [name for name in SHIPPED if "synthetic" in name] == [f"synthetic/{site}.yaml" for site in SITES]


def test_synthetic_policies_are_real_ones() -> None:
    told_apart = {"synthetic", "title", "root", "license", "source", "citation", "reference_standard"}
    for site in SITES:
        real = load_site_config(CONFIGS / f"{site}.yaml")
        synthetic = load_site_config(CONFIGS / f"synthetic/{site}.yaml")
        assert (real.synthetic, synthetic.synthetic) == (False, True)
        assert "synthetic" in synthetic.title
        assert synthetic.root == f"synthetic-{site.replace('_', '-')}"
        expected = real.model_dump(exclude=told_apart)
        if site == "vindr":  # as the challenge copy, which does not label it
            expected["labels"]["edema"] = []
        if site == "padchest":  # the release has no splits
            expected["splits"]["file"] = "splits.csv"
        assert synthetic.model_dump(exclude=told_apart) == expected


def test_one_word_stands_for_all_diseases() -> None:
    assert load_bundled("chexpert", "uncertain=missing").uncertain == dict.fromkeys(DISEASES, "missing")


def test_one_disease_may_differ(tmp_path: Path) -> None:
    for key in ("uncertain", "blank"):
        site = load_bundled("chestxray8", f"{key}.edema=missing")
        assert getattr(site, key) == {**dict.fromkeys(DISEASES, "negative"), "edema": "missing"}
    text = "blank: {edema: missing}\nuncertain: {others: missing, edema: positive}\n"
    (tmp_path / "mine.yaml").write_text(f"extends: {CONFIGS / 'chestxray8.yaml'}\n{text}", encoding="utf-8")
    mine = load_site_config(tmp_path / "mine.yaml")
    assert mine.blank == {**dict.fromkeys(DISEASES, "negative"), "edema": "missing"}
    assert mine.uncertain == {**dict.fromkeys(DISEASES, "missing"), "edema": "positive"}


#: Override -> the key that is refused.
MISTAKES = {
    "labels.odema=[Edema]": "labels",
    "upsample.Pleural Effusion=1": "upsample",
    "diseases=[Pleural Effusion]": "diseases.0",
    "diseases=[mean]": "diseases.0",
    "titles.edema=Oedema": "titles",
    "titles.covid=covid-19": "titles",
    "labels.pneumonia=[Pneumonia]": "labels",
    "diseases=[edema, edema]": "diseases",
    "diseases=[cardiomegaly, edema, consolidation, atelectasis, pleural_effusion, mass]": "uncertain",
    "uncertain={edema: positive}": "uncertain",
    "uncertain=perhaps": "uncertain",
    "blank=positive": "blank",
    "blank.edema=positive": "blank.edema",
    "uncertain.others=missing": "uncertain",
    "blank.others=perhaps": "blank",
    "blank.odema=missing": "blank",
    "upsample.edema=-1": "upsample.edema",
    "views=[]": "views",
    "reader=nih": "reader",
    "reader={raters: any}": "reader",
    "label_files.tset=[x.csv]": "label_files",
    **{f"label_files.train=['{name}']": "label_files" for name in ("../train.csv", "/t.csv", ".", "x" * 256, "**.csv")},
    "splits={valid_fraction: 0.5, test_fraction: 0.5}": "splits.test_fraction",
    "site=My Site": "site",
}


def test_a_mistake_is_refused_with_its_place() -> None:
    for override, key in MISTAKES.items():
        with assert_refused(ConfigError, "invalid value", key=key):
            load_bundled("chexpert", override)
    for override, suggestion in (
        ("labels.odema=[Edema]", "edema"),
        ("upsample.Pleural Effusion=1", "pleural_effusion"),
    ):
        with assert_refused(ConfigError, "invalid value", suggestion=suggestion):
            load_bundled("chexpert", override)
    for override in ("views=[front]", "titles.edema=Oedema"):
        with assert_refused(ConfigError, "invalid value", place=f"--set {override.partition('=')[0]}"):
            load_bundled("chexpert", override)
    with assert_refused(ConfigError, "unknown key", key="uncertian", suggestion="uncertain"):
        load_bundled("chexpert", "uncertian=positive")


def test_wrong_reader_keys_are_refused(tmp_path: Path) -> None:
    assert set(READERS.built_in) >= {*SITES, "table"}
    elsewhere = {key for reader in READERS.built_in.values() for key in reader.options.model_fields} - {"name"}
    assert elsewhere >= {"raters", "methods", "no_label"}
    for name, reader in READERS.built_in.items():
        for key in ("nonsense", *(elsewhere - set(reader.options.model_fields))):
            others = {"table": "example/table.yaml", "paths": "films/guangzhou.yaml"}
            base = CONFIGS / others.get(name, f"{name}.yaml")
            path = tmp_path / f"{name}.yaml"
            path.write_text(f"extends: {base}\ntitle: T\nreader:\n  {key}: [any]\n", encoding="utf-8")
            with assert_refused(ConfigError, "unknown key", key=f"reader.{key}", place=f"{path}:4"):
                load_site_config(path)
            path.write_text(f"extends: {base}\n{key}: [any]\n", encoding="utf-8")
            with assert_refused(ConfigError, "unknown key", key=key, place=f"{path}:2"):
                load_site_config(path)


def test_reader_options_are_checked() -> None:
    assert load_bundled("vindr", "reader=vindr").reader.model_dump() == {
        "name": "vindr",
        "raters": "any",
        "headers": True,
    }
    assert load_bundled("padchest").reader.model_dump()["no_label"] == ["exclude", "suboptimal study", "unchanged"]
    with assert_refused(ConfigError, "invalid value", place="--set reader.methods"):
        load_bundled("padchest", "reader.methods=[Nurse]")


def test_a_stray_disease_has_its_line(tmp_path: Path) -> None:
    text = f"extends: {CONFIGS / 'chexpert.yaml'}\nlabels:\n  scoliosis: [Scoliosis]\n"
    (tmp_path / "mine.yaml").write_text(text, encoding="utf-8")
    with assert_refused(ConfigError, "invalid value", key="labels", place=f"{tmp_path / 'mine.yaml'}:2"):
        load_site_config(tmp_path / "mine.yaml")


def test_titles_are_used_where_none_is_known(tmp_path: Path) -> None:
    text = f"extends: {CONFIGS / 'chexpert.yaml'}\ntitles: {{pleuritis: Pleurisy}}\n"
    (tmp_path / "mine.yaml").write_text(text, encoding="utf-8")
    load_site_config(tmp_path / "mine.yaml")
    assert [format_title(name) for name in ("edema", "covid_19", "pleuritis", "rib_notching", "mean")] == [
        *("Edema", "COVID-19", "Pleurisy", "Rib notching", "mean")
    ]
