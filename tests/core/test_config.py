"""Strict YAML: every mistake is named with file, line and a suggestion."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pydantic import Field

from chestfed.core.config import Document, StrictModel, expand_path, load_config, relative_path
from chestfed.core.errors import ConfigError
from tests.cases import assert_refused


class Section(StrictModel):
    window: int = Field(8, ge=1)
    lr: float = 0.1
    names: list[str] = []


class Entry(StrictModel):
    config: str = Field(description="the YAML of the site. Or its name")
    clients: int = 1


class Whole(StrictModel):
    title: str
    federated: Section = Section()
    sites: list[Entry] = []
    seeds: int | list[int] = 1


def write(folder: Path, text: str, name: str = "p.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_good_file_has_its_defaults(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, "title: x\nfederated: {lr: 1e-3}\n"), Whole)
    assert config == Whole(title="x", federated=Section(window=8, lr=0.001))


def test_half_a_character_names_its_place(tmp_path: Path) -> None:
    for text, place in (('title: "\\ud800"', "p.yaml:1"), ('title: x\n"\\udfff": 1', "p.yaml:2")):
        with assert_refused(ConfigError, "half a character", place=f"{tmp_path}/{place}"):
            load_config(write(tmp_path, text), Whole)
    for assignment in ('title="\\ud800"', "title\udcff=x"):
        with assert_refused(ConfigError, "half a character"):
            load_config(write(tmp_path, "title: x\n"), Whole, [assignment])


@pytest.mark.parametrize("word", ["010", "1:30", "0x1F", "yes", "2020-01-01"])
def test_old_yaml_numbers_are_words(tmp_path: Path, word: str) -> None:
    assert load_config(write(tmp_path, f"title: {word}\n"), Whole).title == word


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "title: x\nfederated:\n  windw: 3\n",
            "p.yaml:3: unknown key 'federated.windw'; did you mean 'window'?",
        ),
        ("title: x\nqqq: 3\n", "p.yaml:2: unknown key 'qqq'; known keys: federated, seeds, sites, title"),
        (
            "title: x\nsites:\n  - config: a\n    client: 2\n",
            "p.yaml:4: unknown key 'sites.0.client'; did you mean 'clients'?",
        ),
        (
            "title: x\nfederated:\n  window: eight\n",
            "p.yaml:3: 'federated.window' should be a whole number, found 'eight'",
        ),
        (
            "title: x\nfederated:\n  window: '8'\n",
            "p.yaml:3: 'federated.window' should be a whole number, found '8'",
        ),
        (
            "title: x\nfederated:\n  window: 0\n",
            "p.yaml:3: 'federated.window' should be at least 1, found 0",
        ),
        ("federated: {}\n", "'title' is missing"),
        ("title: x\ntitle: y\n", "p.yaml:2: duplicate key 'title'"),
        ("title: [\n", "not valid YAML"),
        ("- a\n", "expected keys and values"),
        ("title: x\nextends: nowhere.yaml\n", "p.yaml:2: no such file"),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(write(tmp_path, text), Whole)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("title:", "p.yaml:1: 'title' should be text, found nothing; write one"),
        (
            "title: x\nfederated:",
            "p.yaml:2: 'federated' should be keys and values, found nothing; write its keys (lr, ",
        ),
        (
            "title: x\nfederated: [window]",
            "'federated' should be keys and values, found a list; write its keys without",
        ),
        (
            "title: x\nfederated:\n  window:",
            "'federated.window' should be a whole number, found nothing; write one, or",
        ),
        ("title: x\nsites:", "'sites' should be a list, found nothing; write [{config: ...}], or remove it"),
        ("title: x\nsites:\n  -", "'sites.0' should be keys and values, found nothing; write {config: ...}, or"),
        ("title: x\nsites: [{}]", "key 'sites.0.config' is missing: the YAML of the site"),
        ("title: x\nsites: {a: b}", "'sites' should be a list, found keys and values; write [{config: ...}]"),
        ("title: x\nsites: chexpert", "'sites' should be a list, found 'chexpert'; write [{config: chexpert}]"),
        ("title: x\nseeds:", "p.yaml:2: 'seeds' should be a whole number or a list, found nothing; write one, or"),
        ("title: x\nseeds: {a: 1}", "'seeds' should be a whole number or a list, found keys and values"),
        ("title: x\nseeds: [1, a]", "p.yaml:2: 'seeds.1' should be a whole number, found 'a'"),
        ("- title: x", "p.yaml:1: expected keys and values, found a list; write 'key: value' lines without a dash"),
        ("extends:", "p.yaml:1: 'extends' takes one file name, found nothing"),
    ],
)
def test_what_is_empty_or_of_another_shape(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(write(tmp_path, text), Whole)
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_all_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(write(tmp_path, "titel: x\nfederated: {window: a, lr: b}\n"), Whole)
    assert len(str(caught.value).splitlines()) == 4


def test_no_is_a_word_and_1e3_a_number(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, "title: no\nfederated: {names: [on, yes, 1e3x], lr: 1.0e-5}\n"), Whole)
    assert config.title == "no"
    assert config.federated.names == ["on", "yes", "1e3x"]
    assert config.federated.lr == 1e-5


def test_extended_file_keeps_its_places(tmp_path: Path) -> None:
    write(tmp_path, "title: base\nfederated: {window: 4, lr: 0.5}\n", "base.yaml")
    config = load_config(write(tmp_path, "extends: base.yaml\nfederated: {window: 2}\n"), Whole)
    assert config == Whole(title="base", federated=Section(window=2, lr=0.5))
    write(tmp_path, "title: base\nfederated:\n  windo: 4\n", "base.yaml")
    place = f"{tmp_path / 'base.yaml'}:3"
    with assert_refused(ConfigError, "unknown key", key="federated.windo", place=place, suggestion="window"):
        load_config(tmp_path / "p.yaml", Whole)


@pytest.mark.parametrize(
    ("key", "suggestion"), [("lr", "federated.lr"), ("clients", ""), ("titel", "title"), ("optimizer", "")]
)
def test_key_of_another_section_is_meant(tmp_path: Path, key: str, suggestion: str) -> None:
    with assert_refused(ConfigError, "unknown key", suggestion=suggestion):
        load_config(write(tmp_path, "title: x\n"), Whole, [f"{key}=1"])


def test_overrides_reach_sections_and_lists(tmp_path: Path) -> None:
    path = write(tmp_path, "title: x\nsites: [{config: a}, {config: b}]\n")
    config = load_config(path, Whole, ["sites.1.clients=4", "federated.lr=1e-2", "title=long name"])
    assert config.sites[1] == Entry(config="b", clients=4)
    assert config.federated.lr == 0.01
    assert config.title == "long name"


@pytest.mark.parametrize("text", ["{image}_PA.png", "{image}", "[", "a: b: c", "- x"])
def test_override_of_text_is_no_yaml(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, "title: x\n")
    assert load_config(path, Whole, [f"title={text}"]).title == text
    assert load_config(path, Whole, [f'title="{text}"']).title == text


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("federated.window=x", "--set federated.window: 'federated.window' should be a whole number"),
        ("federated.wndow=3", "did you mean 'window'"),
        ("sites.7.clients=2", "not an index of a list of 1"),
        ("sites.².clients=2", "not an index of a list of 1"),
        ("title=!!bool x", "--set title: not valid YAML"),
        ("title.a=2", "is a value, not a mapping"),
        ("title", "expected KEY=VALUE"),
        ("federated.window={a", "--set federated.window={a: not valid YAML"),
        ("sites=[a", """quote text: --set 'sites="[a"'"""),
        ("title=" + "9" * 6000, "--set title: not valid YAML"),
        ("title=!!timestamp x", "--set title: not valid YAML"),
        ("sites=[{config: a, config: b}]", "--set sites: duplicate key 'config'"),
        ("title=3", "--set title: 'title' should be text, found 3"),
        ("federated.lr=.inf", "--set federated.lr: 'federated.lr' should be a finite number"),
    ],
)
def test_a_bad_override_is_named(tmp_path: Path, assignment: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(write(tmp_path, "title: x\nsites: [{config: a}]\n"), Whole, [assignment])
    assert message in str(caught.value)


def test_key_of_an_override_has_its_place(tmp_path: Path) -> None:
    document = Document(write(tmp_path, "title: x\n"))
    document.override("federated.window=3")
    for location in (("federated",), ("federated", "window"), ("federated", "lr")):
        assert document.place(location) == "--set federated.window"
    assert document.place(("sites",)).endswith("p.yaml:1")


def test_paths_expand_set_variables_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHERE", "/data")
    monkeypatch.delenv("NOWHERE", raising=False)
    assert expand_path("$WHERE/x", tmp_path) == Path("/data/x")
    assert expand_path("x/y", tmp_path) == tmp_path / "x" / "y"
    with assert_refused(ConfigError, "environment variable not set", variable="NOWHERE"):
        expand_path("${NOWHERE}/x", tmp_path)


@pytest.mark.slow_but("aliases of aliases", "extends in a circle", "itself")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("title: &a [*a]\n", "an alias (*) contains itself"),
        (
            "a0: &a0 [1,1,1,1,1,1,1,1,1,1]\n"
            + "".join(f"a{i + 1}: &a{i + 1} [{','.join([f'*a{i}'] * 10)}]\n" for i in range(6)),
            "aliases",
        ),
        ("? [a]\n: b\n", "site.yaml:1: a key is one word or number"),
        ("title: x\nsites: " + "9" * 6000 + "\n", "site.yaml:2: not valid YAML"),
        ("title: !!timestamp x\n", "site.yaml:1: not valid YAML"),
        ("title: x\n<<: {lr: 1}\n", "site.yaml:2: '<<' is not supported"),
        ("title: x\n" + "# \n" * 100_000, "more than 250 kB"),
        ("extends: other.yaml\n", "a file cannot extend itself, nor one that extends it"),
        ('extends: "a\\0"\n', "site.yaml:1: 'extends' takes one file name"),
    ],
    ids=["itself", "aliases of aliases", "key", "digits", "tag", "merge", "size", "extends in a circle", "no name"],
)
def test_endless_yaml_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "other.yaml").write_text("extends: site.yaml\n")
    (tmp_path / "site.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / "site.yaml", Whole)
    assert message in str(caught.value)


def test_relative_path_leads_to_the_same_file_through_links(tmp_path: Path) -> None:
    (tmp_path / "far/away/inner").mkdir(parents=True)
    (tmp_path / "far/site.yaml").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "far/away/inner")
    (tmp_path / "named.yaml").symlink_to(tmp_path / "far/site.yaml")
    for path in ("far/site.yaml", "link/../../site.yaml", "named.yaml"):
        for folder in (tmp_path, tmp_path / "link"):
            written = relative_path(tmp_path / path, folder)
            assert not Path(written).is_absolute()
            assert (folder / written).samefile(tmp_path / "far/site.yaml")
            assert Path(written).name == Path(path).name


@pytest.mark.skipif(os.name == "nt", reason="FIFOs are POSIX")
def test_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "site.yaml")
    with assert_refused(ConfigError, "not a file"):
        load_config(tmp_path / "site.yaml", Whole)
