"""`chestfed site new`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from chestfed.commands.options import optional
from chestfed.core.console import command, open_console, say
from chestfed.core.errors import ConfigError, SiteError

if TYPE_CHECKING:
    from rich.console import Console

    from chestfed.new_site import Choices, Draft
    from chestfed.new_site.work import Ask
    from chestfed.sites import SiteTable
    from chestfed.sites.spreadsheet.term_table import TermRow

#: The key of a YAML that may quote cells.
_TERMS = "table.terms"
_column = partial(optional, metavar="COLUMN", rich_help_panel="Columns of the table; 'none': there is no such column")
_table = partial(optional, rich_help_panel="How the table is written")
_meaning = partial(optional, rich_help_panel="What the labels mean")

Name = Annotated[str, typer.Argument(help="Short name of the hospital, such as st-anne.", show_default=False)]
Images = Annotated[Path, typer.Option(help="Folder of the images, at any depth: PNG, JPEG or DICOM.")]
Labels = Annotated[
    Path | None,
    optional(
        help="The table: csv, tsv (also .gz), xlsx or parquet. Without it, the labels are taken from the headers of "
        "the DICOM files."
    ),
]
Out = Annotated[Path, typer.Option(help="Folder for NAME.yaml and NAME.terms.csv.")]
Data = Annotated[Path | None, optional(help="Write the root relative to this folder, the --data of other commands.")]
Title = Annotated[str | None, optional(help="Name in tables and plots.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Non-interactive: accept the guesses, fail if unsure.")]
Force = Annotated[
    bool, typer.Option("--force", help="Replace an existing YAML. Keeps a copy and prints the changed keys.")
]
ImageColumn = Annotated[str | None, _column(help="File of the image.")]
PatientColumn = Annotated[str | None, _column(help="Patient id.")]
StudyColumn = Annotated[str | None, _column(help="Study id.")]
ViewColumn = Annotated[str | None, _column(help="View, such as PA, AP, lateral.")]
SplitColumn = Annotated[str | None, _column(help="Split: train, valid, test.")]
SexColumn = Annotated[str | None, _column(help="Sex of the patient.")]
AgeColumn = Annotated[str | None, _column(help="Age of the patient.")]
ReaderColumn = Annotated[str | None, _column(help="Name of the annotator, if each annotator has a row.")]
FindingsColumn = Annotated[str | None, _column(help="Findings in words, one or several per cell.")]
ValueColumn = Annotated[str | None, _column(help="Value of the row's finding, such as yes or no.")]
Layout = Annotated[
    Literal["onehot", "delimited", "list", "long", "readers"] | None, _table(help="How the findings are laid out.")
]
Separator = Annotated[str | None, _table(help="Character between the findings in a cell, e.g. '|'.")]
Delimiter = Annotated[str | None, _table(help="Character between the cells of a csv, e.g. ';' or tab.")]
Encoding = Annotated[str | None, _table(help="Encoding of a csv, as Python calls it: cp1250, shift_jis, gb18030.")]
Sheet = Annotated[str | None, _table(help="Sheet of an xlsx. Default: the first.")]
HeaderRow = Annotated[int | None, _table(min=1, help="Row of the column names, if not the first.")]
Label = Annotated[
    list[str] | None,
    _meaning(metavar="DISEASE=NAME", help="Your column or term for a disease, or none. Repeatable."),
]
Value = Annotated[
    list[str] | None,
    _meaning(
        metavar="CELL=MEANING",
        help="What a cell of a label column means: positive, negative, uncertain, blank or missing. Repeatable; a "
        "shortcut for rows of the mapping table.",
    ),
]
Word = Annotated[
    list[str] | None,
    _meaning(
        metavar="view:WORD=MEANING",
        help="What a word in the column of view, split, sex or age means: view:seitl=lateral, split:Menge2=test, "
        "sex:W=F, age:'85 or more'=85, sex:keine=missing. Repeatable; a shortcut for rows of the mapping table.",
    ),
]
Uncertain = Annotated[
    Literal["positive", "negative", "missing"] | None, _meaning(help="How to treat uncertain labels.")
]
Blank = Annotated[Literal["negative", "missing"] | None, _meaning(help="How to treat diseases not mentioned.")]
Drop = Annotated[
    list[str] | None,
    _meaning(
        metavar="KIND",
        help="Leave out and count such rows instead of refusing them (`rows` in the YAML): contradictory, duplicate, "
        "missing_image, total or unnamed. Repeatable.",
    ),
]
Raters = Annotated[
    str | None,
    _meaning(metavar="RULE", help="How to combine annotators: any, majority, all, or the name of one of them."),
]


def site_new(
    name: Name,
    images: Images,
    labels: Labels = None,
    out: Out = Path("site_configs"),
    data: Data = None,
    title: Title = None,
    yes: Yes = False,
    force: Force = False,
    image_column: ImageColumn = None,
    patient_column: PatientColumn = None,
    study_column: StudyColumn = None,
    view_column: ViewColumn = None,
    split_column: SplitColumn = None,
    sex_column: SexColumn = None,
    age_column: AgeColumn = None,
    reader_column: ReaderColumn = None,
    findings_column: FindingsColumn = None,
    value_column: ValueColumn = None,
    layout: Layout = None,
    separator: Separator = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    sheet: Sheet = None,
    header_row: HeaderRow = None,
    label: Label = None,
    value: Value = None,
    word: Word = None,
    uncertain: Uncertain = None,
    blank: Blank = None,
    raters: Raters = None,
    drop: Drop = None,
) -> None:
    """Describe a new hospital: inspect its images and its table, and write a YAML with the evidence for each guess.

    In a terminal it asks, with its guess as the default. When it cannot decide, it lists the candidates and the option
    that decides. What the table's words mean (findings, label values, views, splits, sexes, ages) goes into a mapping
    table, NAME.terms.csv, in which a person enters what is not known. Names of patients are neither shown nor written.

    Example:

        chestfed site new st-anne --images hospitals/st-anne/images --labels hospitals/st-anne/labels.csv --yes
    """
    from chestfed.new_site import Choices

    columns = {"image": image_column, "patient": patient_column, "study": study_column, "view": view_column}
    columns |= {"split": split_column, "sex": sex_column, "age": age_column, "reader": reader_column}
    columns |= {"findings": findings_column, "value": value_column}
    given: dict[str, Any] = {"layout": layout, "separator": separator, "delimiter": delimiter, "encoding": encoding}
    given |= {"sheet": sheet, "header_row": header_row, "uncertain": uncertain, "blank": blank, "raters": raters}
    given |= {"title": title, "drop": _drops(drop or [])}
    choices = Choices(
        columns={role: column for role, column in columns.items() if column is not None},
        labels=_labels(label or []),
        words=_words(value or [], word or []),
        **given,
    )
    _describe(open_console(), name, images, labels, out / f"{name}.yaml", choices, data, yes=yes, force=force)


def _drops(keys: Sequence[str]) -> Sequence[str]:
    from chestfed.sites.left_out import Rows

    for key in keys:
        if key not in Rows.model_fields:
            raise ConfigError(f"--drop {key}: not one of {', '.join(Rows.model_fields)}")
    return keys


def _labels(texts: Sequence[str]) -> dict[str, list[str]]:
    """Disease -> columns or terms, from DISEASE=NAME."""
    from chestfed.core.diseases import check_spelling
    from chestfed.new_site.work import NONE

    by_disease: dict[str, list[str]] = {}
    for text in texts:
        disease, equals, name = (part.strip() for part in text.partition("="))
        if not equals or not name:
            raise ConfigError(
                f"--label {text}: expected DISEASE=NAME, for example --label cardiomegaly='Enlarged heart'"
            )
        try:
            check_spelling(disease)
        except ValueError as error:
            raise ConfigError(f"--label {text}: {error}") from None
        by_disease.setdefault(disease, []).extend([] if name == NONE else [name])
    return by_disease


def _words(values: Sequence[str], words: Sequence[str]) -> dict[str, dict[str, str]]:
    """Label values, views, splits, sexes, ages -> word -> what it means: CELL=MEANING, and WHAT:WORD=MEANING."""
    from chestfed.sites.spreadsheet.config import Words
    from chestfed.sites.spreadsheet.term_table import VALUE, parse_word

    by_kind: dict[str, dict[str, str]] = {}
    for option, text in [*(("--value", text) for text in values), *(("--word", text) for text in words)]:
        word, equals, meaning = (part.strip() for part in text.rpartition("="))
        kind = VALUE
        try:
            if option == "--value" and not equals:
                raise ValueError("expected CELL=MEANING")
            if option == "--word":
                kind, _, word = (part.strip() for part in word.partition(":"))
                if kind not in Words.model_fields or not word:
                    raise ValueError(
                        "expected WHAT:WORD=MEANING with WHAT view, split, sex or age, as in view:seitl=lateral"
                    )
            by_kind.setdefault(kind, {})[word if kind == VALUE else word.lower()] = parse_word(kind, meaning)
        except ValueError as error:
            raise ConfigError(f"{option} {text}: {error}") from None
    return by_kind


def asking(console: Console) -> Ask:
    """Asks on the terminal, with the guess as default, until the answer is one of the candidates."""

    def ask(
        what: str, flag: str, guess: str | None, candidates: Sequence[str], why: str, examples: Sequence[str]
    ) -> str:
        say(console, "\n  ".join([f"{what}: {why}", *examples, f"one of: {', '.join(candidates)}"]))
        by_letters = {candidate.casefold(): candidate for candidate in candidates}
        while True:
            answer = str(typer.prompt(f"{what} ({flag})", default=guess)).strip()
            if answer.casefold() in by_letters:
                return by_letters[answer.casefold()]
            say(console, f"  '{answer}' is not one of these")

    return ask


def _describe(
    console: Console,
    name: str,
    images: Path,
    labels: Path | None,
    path: Path,
    choices: Choices,
    data: Path | None,
    *,
    yes: bool,
    force: bool,
) -> None:
    """Write the YAML and the mapping table of its words, say how each thing was guessed, and open the site."""
    from chestfed.core.checkpoint import write_text
    from chestfed.new_site import UnknownWordsError, terms_file
    from chestfed.sites import load_site_config

    if path.parent.suffix in (".yaml", ".yml"):
        raise ConfigError(f"--out {path.parent}: name a folder; the file in it is called {path.name}")
    if path.exists() and not force:
        raise ConfigError(f"{path} exists: use --force to replace it, or choose another name or --out folder")
    terms = path.parent / terms_file(name)
    choices = replace(choices, terms=_earlier_terms(name, terms))
    try:
        draft = _draft(console, name, images, labels, choices, data, yes=yes)
    except UnknownWordsError as error:
        _write_terms(console, terms, error.rows, choices.terms)
        text = f"{error}\nThe mapping table {terms} has them: enter MEANING and yes, then run this command again"
        raise ConfigError(text) from None
    _show(console, draft)
    with TemporaryDirectory(prefix="chestfed-") as folder:  # a YAML that cannot be loaded is not left behind
        trial = Path(folder, path.name)
        trial.write_text(draft.text, encoding="utf-8")
        load_site_config(trial)
    _keep_earlier(console, path, draft.text)
    write_text(path, draft.text)
    say(console, f"\nwritten to {path}")
    if draft.terms:
        _write_terms(console, terms, draft.terms, choices.terms)
    _open(console, path, data)


def _keep_earlier(console: Console, path: Path, text: str) -> None:
    """Where a YAML is replaced: which keys change, whoever wrote them, and a copy of what it was."""
    import yaml

    from chestfed.core.checkpoint import write_text

    earlier = path.read_text(encoding="utf-8") if path.exists() else text
    try:
        was, now = _flat(yaml.safe_load(earlier)), _flat(yaml.safe_load(text))
    except yaml.YAMLError:
        was, now = {"(not readable)": ""}, {}
    changed = [key for key in {**was, **now} if was.get(key) != now.get(key)]
    if changed:
        copy = path.with_name(f"{path.stem}.earlier.yaml")
        write_text(copy, earlier)
        say(console, f"\n{path} is replaced (the earlier file is kept as {copy}). Changed keys:", "yellow")
        for key in changed:
            shown = "" if key == _TERMS else f": {was.get(key, '(none)')} -> {now.get(key, '(none)')}"
            say(console, f"  {key}{shown}", "yellow")


def _flat(value: object, above: str = "") -> dict[str, str]:
    """Each value of a YAML by the path of its keys."""
    if not isinstance(value, dict) or not value or above == _TERMS:
        return {above: str(value)}
    return {
        key: cell
        for name, part in value.items()
        for key, cell in _flat(part, f"{above}.{name}" if above else str(name)).items()
    }


def _draft(
    console: Console, name: str, images: Path, labels: Path | None, choices: Choices, data: Path | None, *, yes: bool
) -> Draft:
    from chestfed.commands.progress import Bars
    from chestfed.new_site import draft_site

    if on_a_terminal() and not yes:
        return draft_site(name, images, labels, choices, asking(console), data=data)
    with Bars(console) as bars:
        tell = partial(bars.decoding, "headers")
        return draft_site(name, images, labels, choices, data=data, progress=tell)


def _earlier_terms(name: str, path: Path) -> Sequence[TermRow]:
    """The rows of the mapping table that an earlier call wrote and a person filled in; any mistake is refused."""
    from chestfed.sites.spreadsheet.term_table import read_terms

    if not path.exists():
        return ()
    rows, problems = read_terms(path)
    if problems:
        raise SiteError(name, problems)
    return rows


def _write_terms(console: Console, path: Path, rows: Sequence[TermRow], earlier: Sequence[TermRow]) -> None:
    from chestfed.core.checkpoint import write_text
    from chestfed.sites.spreadsheet.term_table import terms_text

    write_text(path, "\ufeff" + terms_text(rows))  # the mark tells Excel that it is UTF-8
    known = {(row.kind, row.term) for row in earlier}
    new = f", {sum((row.kind, row.term) not in known for row in rows):,} of them new" if earlier else ""
    say(console, f"written to {path}: {len(rows):,} terms{new}. It quotes cells: keep it at the hospital")


def _open(console: Console, path: Path, data: Path | None) -> None:
    """Open the site that was written, and say what to do next."""
    from chestfed.sites import load_site_config, open_site
    from chestfed.sites.left_out import KEYS

    place = [path] if data is None else [path, "--data", data]
    check = command("site", "check", *place)
    try:
        table = open_site(load_site_config(path), data if data is not None else Path())
    except SiteError as error:
        set_already = load_site_config(path).rows.model_dump()
        kinds = [KEYS[problem.kind] for problem in error.problems if problem.kind in KEYS]
        keys = dict.fromkeys(key for key in kinds if set_already[key] == "refuse")
        drop = " ".join(f"--drop {key}" for key in keys)
        also = f"\nTo leave such rows out and count them, add {drop} --force to this command" if keys else ""
        raise ConfigError(
            f"{path} was written, but the site cannot be opened with it yet:\n{error}\n"
            f"Fix the table or the YAML, then run: {check}{also}"
        ) from None
    say(console, _loaded(table))
    for note in table.notes:
        say(console, f"note: {note}", "yellow")
    say(console, f"next:\n  {check}\n  {command('study', '--add-site', *place)}")


def on_a_terminal() -> bool:
    """Whether there is somebody to ask."""
    return sys.stdin.isatty()


def _show(console: Console, draft: Draft) -> None:
    width = max(len(what) for what, _, _ in draft.guesses)
    for what, value, why in draft.guesses:
        say(console, f"{what:<{width}}  {value}" + (f"   [{why}]" if why else ""))
        for example in draft.examples if what == "image" else ():
            say(console, f"{'':<{width}}  {example}")
    for note in draft.notes:
        say(console, f"note: {note}", "yellow")


def _loaded(table: SiteTable) -> str:
    counts = table.frame["split"].value_counts(sort=False).items()
    splits = ", ".join(f"{number:,} {split}" for split, number in counts if number)
    mark = "SYNTHETIC: " if table.synthetic else ""
    return f"{mark}Loaded {len(table.frame):,} images of {table.frame['patient'].nunique():,} patients ({splits})"
