"""`chestfed site new`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import typer
from rich.console import Console

from chestfed.commands.progress import Bars
from chestfed.core.checkpoint import write_text
from chestfed.core.errors import ConfigError, SiteError
from chestfed.new_site import Choices, Draft, draft_site, terms_file
from chestfed.new_site.choosing import NONE, TakesGuesses
from chestfed.sites import SiteTable, load_site_config, open_site
from chestfed.sites.config import check_diseases
from chestfed.sites.spreadsheet.term_table import TermRow, read_terms, terms_text

_MEANINGS = ("positive", "negative", "uncertain", "blank")


class Asks:
    """Asks on the terminal, with the guess as default."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def choose(
        self,
        what: str,
        flag: str,
        guess: str | None,
        candidates: Sequence[str],
        why: str,
        examples: Sequence[str] = (),
    ) -> str:
        """What is answered; asked again until it is one of the candidates."""
        self._console.print(f"{what}: {why}", highlight=False, markup=False, soft_wrap=True)
        for example in examples:
            self._console.print(f"  {example}", highlight=False, markup=False, soft_wrap=True)
        self._console.print(f"  one of: {', '.join(candidates)}", highlight=False, markup=False, soft_wrap=True)
        by_letters = {candidate.casefold(): candidate for candidate in candidates}
        while True:
            answer = str(typer.prompt(f"{what} ({flag})", default=guess)).strip()
            if answer.casefold() in by_letters:
                return by_letters[answer.casefold()]
            self._console.print(f"  '{answer}' is not one of them", markup=False)


def run_command(
    console: Console,
    name: str,
    images: Path,
    labels: Path | None,
    out: Path,
    choices: Choices,
    *,
    data: Path | None,
    yes: bool,
    force: bool,
) -> None:
    """Write the YAML and the mapping table of its terms, say how each thing was guessed, and open the site."""
    path, terms = out / f"{name}.yaml", out / terms_file(name)
    if path.exists() and not force:
        raise ConfigError(f"{path} already exists: give --force to replace it, or another name or --out folder")
    earlier = _earlier_terms(name, terms)
    choices = replace(choices, terms=earlier)
    asking = not yes and on_a_terminal()
    with Bars(console) as bars:
        draft = None if asking else _drafted(name, images, labels, choices, TakesGuesses(), data, bars)
    if draft is None:
        draft = _drafted(name, images, labels, choices, Asks(console), data, None)
    _show(console, draft)
    with TemporaryDirectory(prefix="chestfed-") as folder:  # a YAML that cannot be loaded is not left behind
        trial = Path(folder, path.name)
        trial.write_text(draft.text, encoding="utf-8")
        load_site_config(trial)
    write_text(path, draft.text)
    console.print(f"\nwritten to {path}", highlight=False, soft_wrap=True)
    if draft.terms:
        write_text(terms, "\ufeff" + terms_text(draft.terms))  # the mark tells Excel that it is UTF-8
        known = {row.term for row in earlier}
        new = f", {sum(row.term not in known for row in draft.terms):,} of them new" if earlier else ""
        text = f"written to {terms}: {len(draft.terms):,} terms{new}. It quotes cells: keep it at the hospital"
        console.print(text, highlight=False, soft_wrap=True)
    config = load_site_config(path)
    option = "" if data is None else f" --data {shlex.quote(str(data))}"
    try:
        table = open_site(config, data if data is not None else Path())
    except SiteError as error:
        raise ConfigError(
            f"{path} is written, but the site does not open with it yet:\n{error}\nFix the table, or the YAML, then: "
            f"chestfed site check {shlex.quote(str(path))}{option}"
        ) from None
    console.print(_opened(table), highlight=False, soft_wrap=True)
    for note in table.notes:
        console.print(f"note: {note}", highlight=False, markup=False, soft_wrap=True, style="yellow")
    said = shlex.quote(str(path))
    for line in ("next:", f"  chestfed site check {said}{option}", f"  chestfed study --add-site {said}"):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _earlier_terms(name: str, path: Path) -> Sequence[TermRow]:
    """The rows of the mapping table that an earlier call wrote and a person filled in; a mistake stops before anything.

    Raises
    ------
    SiteError
        With every mistake of the file.
    """
    if not path.exists():
        return ()
    rows, problems = read_terms(path)
    if problems:
        raise SiteError(name, problems)
    return rows


def on_a_terminal() -> bool:
    """Whether there is somebody to ask."""
    return sys.stdin.isatty()


def _drafted(
    name: str,
    images: Path,
    labels: Path | None,
    choices: Choices,
    chooser: Asks | TakesGuesses,
    data: Path | None,
    bars: Bars | None,
) -> Draft:
    tell = None if bars is None else lambda done, total: bars.decoding("headers", done, total)
    return draft_site(name, images, labels, choices, chooser, data=data, progress=tell)


def _show(console: Console, draft: Draft) -> None:
    width = max(len(what) for what, _, _ in draft.guesses)
    for what, value, why in draft.guesses:
        text = f"{what:<{width}}  {value}" + (f"   [{why}]" if why else "")
        console.print(text, highlight=False, markup=False, soft_wrap=True)
        for example in draft.examples if what == "image" else ():
            console.print(f"{'':<{width}}  {example}", highlight=False, markup=False, soft_wrap=True)
    for note in draft.notes:
        console.print(f"note: {note}", highlight=False, markup=False, soft_wrap=True, style="yellow")


def _opened(table: SiteTable) -> str:
    splits = ", ".join(
        f"{number:,} {split}" for split, number in table.frame["split"].value_counts(sort=False).items() if number
    )
    patients = table.frame["patient"].nunique()
    mark = "SYNTHETIC: " if table.synthetic else ""
    return f"{mark}loaded {len(table.frame):,} images of {patients:,} patients ({splits})"


def choices_of(
    columns: Mapping[str, str | None],
    labels: Sequence[str],
    values: Sequence[str],
    *,
    layout: str | None,
    uncertain: str | None,
    blank: str | None,
    raters: str | None,
    delimiter: str | None,
    encoding: str | None,
    sheet: str | None,
    header_row: int | None,
    separator: str | None,
    title: str | None,
) -> Choices:
    """The flags, checked.

    Raises
    ------
    ConfigError
        If one does not have the form, or is not one of the words, that it should.
    """
    for flag, said, known in (
        ("--layout", layout, ("onehot", "delimited", "list", "long", "readers")),
        ("--uncertain", uncertain, ("positive", "negative", "missing")),
        ("--blank", blank, ("negative", "missing")),
        ("--encoding", encoding, ("utf-8", "latin-1", "cp1252", "utf-16")),
    ):
        if said is not None and said not in known:
            raise ConfigError(f"{flag} {said}: choose one of {', '.join(known)}")
    by_disease: dict[str, list[str]] = {}
    for text in labels:
        disease, equals, name = text.partition("=")
        if not equals or not name.strip():
            raise ConfigError(
                f"--label {text}: expected DISEASE=NAME, for example --label cardiomegaly='Enlarged heart'"
            )
        try:
            check_diseases([disease.strip()])
        except ValueError as error:
            raise ConfigError(f"--label {text}: {error}") from None
        names = by_disease.setdefault(disease.strip(), [])
        if name.strip() != NONE:
            names.append(name.strip())
    meanings: dict[str, str] = {}
    for text in values:
        word, equals, meaning = text.rpartition("=")
        if not equals or meaning.strip() not in _MEANINGS:
            raise ConfigError(f"--value {text}: expected CELL=MEANING, the meaning being one of {', '.join(_MEANINGS)}")
        meanings[word.strip()] = meaning.strip()
    return Choices(
        columns={what: name for what, name in columns.items() if name is not None},
        labels=by_disease,
        values=meanings,
        layout=layout,
        uncertain=uncertain,
        blank=blank,
        raters=raters,
        delimiter=delimiter,
        encoding=encoding,
        sheet=sheet,
        header_row=header_row,
        separator=separator,
        title=title,
    )
