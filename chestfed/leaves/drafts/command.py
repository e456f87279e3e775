"""`chestfed site new`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from chestfed.app.commands.options import optional
from chestfed.core.console import command, open_console, plural, say, show_answer
from chestfed.core.errors import ConfigError, SiteError
from chestfed.core.processes.stopping import Stopped

if TYPE_CHECKING:
    from rich.console import Console

    from chestfed.data.sites import SiteTable
    from chestfed.data.sites.tables.codebook import Code
    from chestfed.leaves.drafts.proposal import Proposal, Question

_answer = partial(optional, rich_help_panel="Answers; everything else is edited in the YAML")

Name = Annotated[str, typer.Argument(help="Short name of the hospital, such as st-anne.", show_default=False)]
Images = Annotated[Path, typer.Option(help="Folder of the images, at any depth: PNG, JPEG or DICOM.")]
Labels = Annotated[
    Path | None,
    optional(
        help="The table, in any format of docs/new_site.md. Without it, the labels are taken from the headers of the "
        "DICOM files, or from the names of the folders."
    ),
]
Out = Annotated[Path, typer.Option(help="Folder for NAME.yaml and NAME.codes.csv.")]
Data = Annotated[Path | None, optional(help="Write the root relative to this folder, the --data of other commands.")]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing YAML; a copy of it is kept.")]
NoInput = Annotated[bool, typer.Option("--no-input", help="Never ask in the terminal: list what is open, and stop.")]
Column = Annotated[
    list[str] | None,
    _answer(
        metavar="ROLE=COLUMN",
        help="The column of image, patient, study, view, split, sex, age, findings, finding, value, reader or site; "
        "none: there is no such column; patient=folder, patient=prefix: the images' folder, or how the files' names "
        "begin. Repeatable.",
    ),
]
Label = Annotated[
    list[str] | None,
    _answer(
        metavar="DISEASE=COLUMN",
        help="The label column of a disease; none: it is not labeled; all: every image has it. Repeatable.",
    ),
]
CodeRow = Annotated[
    list[str] | None,
    _answer(
        "--code",
        metavar="COLUMN:VALUE=MEANING",
        help="A row of the label map, such as view:quer=lateral, 2=uncertain (label columns) or BodyPart:HAND=drop. "
        "Repeatable.",
    ),
]
Setting = Annotated[
    list[str] | None,
    _answer(
        "--set",
        metavar="KEY=VALUE",
        help="A key of the YAML's table or rows, or title, views or one_class, such as encoding=cp1250, "
        "sheet=Labels or rows.total=drop. Repeatable.",
    ),
]
Uncertain = Annotated[Literal["positive", "negative", "missing"] | None, _answer(help="How uncertain labels count.")]
Blank = Annotated[Literal["negative", "missing"] | None, _answer(help="How diseases that are not mentioned count.")]
Raters = Annotated[str | None, _answer(metavar="RULE", help="Annotators: any, majority, all, or one's name.")]
TestFraction = Annotated[
    float | None,
    _answer(min=0, max=0.9, help="Share of the patients for testing, drawn; then keep it: site check --fix-splits."),
]
NoSplit = Annotated[bool, _answer("--no-split", help="Every image is for training.")]


def site_new(
    name: Name,
    images: Images,
    labels: Labels = None,
    out: Out = Path("site_configs"),
    data: Data = None,
    force: Force = False,
    no_input: NoInput = False,
    column: Column = None,
    label: Label = None,
    code: CodeRow = None,
    setting: Setting = None,
    uncertain: Uncertain = None,
    blank: Blank = None,
    raters: Raters = None,
    test_fraction: TestFraction = None,
    no_split: NoSplit = False,
) -> None:
    """Describe a new hospital: inspect its images and its table, and write its YAML and its label map.

    What is not certain is asked in a terminal; otherwise everything that is open is listed with the option, or the row
    of the label map, that answers it, and the command ends with exit code 2. The same command then continues from the
    label map, NAME.codes.csv, in which a person confirms what the table's values mean.

    Example:

        chestfed site new st-anne --images st-anne/images --labels st-anne/labels.csv --test-fraction 0.2
    """
    console, path = open_console(), out / f"{name}.yaml"
    if out.suffix in (".yaml", ".yml"):
        raise ConfigError(f"--out {out}: name a folder; the file in it is called {path.name}")
    if path.exists() and not force:
        raise ConfigError(f"{path} exists: use --force to replace it, or choose another name or --out folder")
    options: dict[str, Any] = {
        "columns": column or [],
        "labels": label or [],
        "codes": code or [],
        "keys": setting or [],
    }
    options |= {"uncertain": uncertain, "blank": blank, "raters": raters, "test_fraction": test_fraction}
    options["no_split"] = no_split
    with _without_resuming(_name_book(name, out)):
        book = _read_book(name, out)
        while True:
            draft = _draft(console, name, images, labels, data, options, book)
            _write_book(console, name, out, draft.codes, book)
            if not draft.questions:
                break
            if no_input or not is_terminal():
                _list_open(console, draft, out, name)
                raise typer.Exit(2)
            _ask(console, draft.questions, options)
        _write_site(console, path, draft, data)


@contextmanager
def _without_resuming(book: Path) -> Iterator[None]:
    """Say after a signal what is true of this command: nothing is resumed."""
    try:
        yield
    except KeyboardInterrupt as stop:
        kept = f"; it reads {book}" if book.exists() else ""
        say(open_console(stderr=True), f"interrupted. The same command begins anew, in place of going on{kept}")
        raise typer.Exit(stop.exit_code if isinstance(stop, Stopped) else 130) from None


def _draft(
    console: Console,
    name: str,
    images: Path,
    labels: Path | None,
    data: Path | None,
    options: Mapping[str, Any],
    book: Sequence[Code],
) -> Proposal:
    from chestfed.app.commands.progress import Bars
    from chestfed.leaves.drafts.draft import draft_site
    from chestfed.leaves.drafts.proposal import parse_answers

    answers = parse_answers(**options, book=book)
    with Bars(console) as bars:
        return draft_site(name, images, labels, answers, data=data, progress=partial(bars.decoding, "headers"))


def _list_open(console: Console, draft: Proposal, out: Path, name: str) -> None:
    """Everything that is open, with what answers it."""
    _show(console, draft, draft.idle)
    console = open_console(stderr=True) if console.quiet else console  # what is open is no message to be left out
    say(console, f"\nopen: {plural(len(draft.questions), 'question')}", "yellow")
    for number, question in enumerate(draft.questions, start=1):
        say(console, f"{number}. {question.text}", "yellow")
        for answer in question.answers:
            say(console, f"     {answer}")
    waiting = any(not code.is_known for code in draft.codes)
    book = f", or for values MEANING and yes in {_name_book(name, out)}," if waiting else ""
    each = "the question" if len(draft.questions) == 1 else f"each of {len(draft.questions)} questions"
    text = f"Add an option for {each}{book} and run the command again"
    show_answer(console, text, questions=[item.text for item in draft.questions])


def _ask(console: Console, questions: Sequence[Question], options: dict[str, Any]) -> None:
    """Ask in the terminal; answers become options, as if they had been typed."""
    for question in questions:
        say(console, f"\n{question.text}")
        for number, answer in enumerate(question.answers, start=1):
            say(console, f"  {number}  {answer}")
        text = str(typer.prompt("number, or an option as it is typed; q to stop")).strip()
        if text == "q" or not question.answers:
            raise typer.Exit(2)
        chosen = (
            question.answers[int(text) - 1] if text.isdecimal() and 0 < int(text) <= len(question.answers) else text
        )
        add_options(options, chosen)


def add_options(options: dict[str, Any], text: str) -> None:
    """Add options as they are typed, such as `--column split=none --blank missing`, without what is behind a blank (.

    Raises `ConfigError` for anything else.
    """
    words = shlex.shlex(text, posix=True)
    words.whitespace_split, words.commenters = True, ""
    lists = {"--column": "columns", "--label": "labels", "--code": "codes", "--set": "keys"}
    single = {"--uncertain": "uncertain", "--blank": "blank", "--raters": "raters", "--test-fraction": "test_fraction"}
    try:
        for head in words:
            if head == "..." or head.startswith("("):
                break
            if head == "--no-split":
                options["no_split"] = True
            elif head in lists:
                options[lists[head]] = [*options[lists[head]], next(words)]
            else:
                options[single[head]] = float(next(words)) if head == "--test-fraction" else next(words)
    except (KeyError, StopIteration, ValueError):  # no option, without a value, or with an open quotation mark
        listed = ", ".join((*lists, *single))
        raise ConfigError(f"'{text}': type one of the numbers, or an option such as {listed}") from None


def _name_book(name: str, out: Path) -> Path:
    from chestfed.leaves.drafts.writing import name_book

    return out / name_book(name)


def _read_book(name: str, out: Path) -> Sequence[Code]:
    """The code book that an earlier call wrote and a person filled in; any mistake is refused."""
    from chestfed.data.sites.tables.codebook import read_book

    if not _name_book(name, out).exists():
        return ()
    codes, problems = read_book(_name_book(name, out))
    if problems:
        raise SiteError(name, problems)
    return codes


def _write_book(console: Console, name: str, out: Path, codes: Sequence[Code], earlier: Sequence[Code]) -> None:
    """Write the book; what a person confirmed stays, also if this table does not hold it."""
    from chestfed.data.sites.tables.codebook import YES, write_book

    held = {(code.column, code.kind, code.value) for code in codes}
    old = [code for code in earlier if code.confirmed == YES and (code.column, code.kind, code.value) not in held]
    if codes or old:
        out.mkdir(parents=True, exist_ok=True)
        write_book(_name_book(name, out), [*codes, *old])
        waiting = sum(not code.is_known for code in codes)
        state = f", {waiting:,} to be confirmed" if waiting else ""
        text = f"written to {_name_book(name, out)}: {len(codes):,} values{state}"
        say(console, f"{text}. It quotes cells: keep it at the hospital")


def _write_site(console: Console, path: Path, draft: Proposal, data: Path | None) -> None:
    """Write the YAML, show how each thing was chosen, and open the site."""
    from chestfed.core.checkpoint import write_text
    from chestfed.data.sites import load_site_config

    _show(console, draft)
    with TemporaryDirectory(prefix="chestfed-") as folder:  # a YAML that cannot be loaded is not left behind
        trial = Path(folder, path.name)
        trial.write_text(draft.text, encoding="utf-8")
        load_site_config(trial)
    if path.exists() and path.read_text(encoding="utf-8") != draft.text:
        copy = path.with_name(f"{path.stem}.earlier.yaml")
        write_text(copy, path.read_text(encoding="utf-8"))
        say(console, f"\n{path} is replaced; the earlier file is kept as {copy}", "yellow")
    write_text(path, draft.text)
    say(console, f"\nwritten to {path}")
    _open(console, path, data)


def _open(console: Console, path: Path, data: Path | None) -> None:
    """Open the site that was written, and say what to do next."""
    from chestfed.data.checks.idle_images import describe_idle_images
    from chestfed.data.sites import load_site_config
    from chestfed.data.sites.left_out import KEYS
    from chestfed.data.sites.opening import survey_site
    from chestfed.data.sites.stats import describe_test_split
    from chestfed.results.evaluation.labeled import LEAST_PATIENTS

    place = [path] if data is None else [path, "--data", data]
    check = command("site", "check", *place)
    config = load_site_config(path)
    survey = survey_site(config, data if data is not None else Path(), keep_going=False)
    if survey.problems:
        error = SiteError(config.site, survey.problems)
        policies = config.rows.model_dump()
        keys = dict.fromkeys(KEYS[problem.kind] for problem in error.problems if problem.kind in KEYS)
        drop = " ".join(f"--set rows.{key}=drop" for key in keys if policies[key] == "refuse")
        also = f"\nTo leave such rows out and count them, add {drop} --force to this command" if drop else ""
        raise ConfigError(
            f"{path} was written, but the site cannot be opened with it yet:\n{error}\n"
            f"Fix the table or the YAML, then run: {check}{also}"
        )
    table = survey.table
    say(console, _describe(table))
    for note in [*table.notes, *describe_idle_images(config, survey)]:
        say(console, f"note: {note}", "yellow")
    for sentence in describe_test_split(table, config, LEAST_PATIENTS):
        say(console, sentence, "yellow")
    valid, test = (len(table.select(name).frame) for name in ("valid", "test"))
    split = " with `test_fraction: 0.3`" * (not test and not valid)
    split += " and `evaluation.split: test`" * bool(test or not valid)
    copy = f"{command('new', 'pipeline', 'mine')}, then `config: {path}` first in its `sites`{split}: tested here"
    say(console, f"next:\n  {check}\n  {command('study', '--add-site', *place)}\n  {copy}")
    images = len(table.frame)
    show_answer(console, f"written to {path}: {images:,} images", file=str(path), images=images)


def is_terminal() -> bool:
    """Whether there is somebody to ask."""
    return sys.stdin.isatty()


def _show(console: Console, draft: Proposal, so_far: str = "") -> None:
    width = max((len(what) for what, _, _ in draft.shown), default=0)
    for what, value, why in draft.shown:
        say(console, f"{what:<{width}}  {value}" + (f"   [{why}]" if why else ""))
        for example in draft.examples if what == "image" else ():
            say(console, f"{'':<{width}}  {example}")
    for note in draft.notes:
        say(console, f"note: {note}")
    if first := [*draft.first, *filter(None, [so_far])]:
        say(console, "look at these first:", "yellow")
        for text in first:
            say(console, f"  - {text}", "yellow")


def _describe(table: SiteTable) -> str:
    counts = table.frame["split"].value_counts(sort=False).items()
    splits = ", ".join(f"{number:,} {split}" for split, number in counts if number)
    mark = "SYNTHETIC: " if table.synthetic else ""
    return f"{mark}Loaded {len(table.frame):,} images of {table.frame['patient'].nunique():,} patients ({splits})"
