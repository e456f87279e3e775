"""Which columns hold the labels: one per disease, or findings in words; and how open cells count."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import pandas as pd

from chestfed.core.diseases import DISEASES, sort_names
from chestfed.core.errors import ConfigError
from chestfed.data.sites.label_files.text import convert
from chestfed.data.sites.lexicon import (
    MAYBE_VALUES,
    NO_ANSWER,
    SIDES,
    VALUES,
    holds_percents,
    list_names,
    may_deny,
    may_turn,
    name_disease,
    name_side,
    plain,
    suggest,
)
from chestfed.data.sites.tables.codebook import LOOSE_SEPARATORS, Code, normalize_value
from chestfed.data.sites.tables.melt import PERCENT, compare_to_threshold
from chestfed.data.sites.terms import listed, parse_meaning
from chestfed.leaves.drafts.codes import ask_policies, count_findings, propose_findings, propose_labels
from chestfed.leaves.drafts.proposal import ALL, NONE, Proposal, find_called, ignore, option
from chestfed.leaves.drafts.readers import choose_groups, combine_groups, find_reader, group_by_affix, is_technical

#: Values that say no, as a rule.
MAYBE_NEGATIVE: Final = frozenset(v for v, meaning in {**VALUES, **MAYBE_VALUES}.items() if meaning == "negative")
#: More different cells than this are no values of a label.
_MOST_VALUES: Final = 12
_SAMPLE: Final = 1000
#: A finding with a score behind it, a sign in front, or in an object of JSON.
_CODED: Final = r"\w\s*[:=]\s*\d*[.,]?\d+\s*(?:\W|$)|^[+-]\s*\w|^\[\{"
#: Share of the cells that must have a known term, if the column is called like findings, or not.
_TELLING, _TELLING_UNNAMED = 0.2, 0.5


def propose_label_columns(proposal: Proposal) -> None:
    """Note the labels in whatever form the table has them, with the annotators, the code book and the policies."""
    note_constants(proposal)
    _refuse_coded(proposal)
    wide = _find_wide(proposal)
    labels = {name for names in wide.values() for name in names}
    terms = _find_terms(proposal, [name for name in proposal.free if name not in labels])
    named = proposal.answers.columns.keys() & {"findings", "finding"}
    if wide and not named and (terms is None or len(wide) >= len(terms[2])):
        _use_wide(proposal, wide)
    elif terms is not None:
        _use_terms(proposal, terms[0], terms[1])
    elif proposal.constant:
        proposal.diseases = sort_names(proposal.constant)
        ask_policies(proposal, {}, "")
    else:
        _ask_for_labels(proposal)


def _refuse_coded(proposal: Proposal) -> None:
    """Raise `ConfigError` for findings with scores, signs or keys beside them, which would be read as present."""
    for name in proposal.free:
        cells = proposal.frame[name].dropna().head(_SAMPLE)
        if cells.str.contains(_CODED).mean() > _TELLING_UNNAMED and any(map(list_names, cells.head(20))):
            lines = {
                "[": f"pd.json_normalize(frame.assign(x=frame['{name}'].map(json.loads)).explode('x')['x'])",
                "+-": f"frame['{name}'].str.extractall(r'([+-])\\s*([^,;|]+)')",
                "": f"frame['{name}'].str.extractall(r'([^:=|;,]+)[:=]([\\d.]+)')",
            }
            line = next(line for signs, line in lines.items() if not signs or cells.iloc[0][0] in signs)
            raise ConfigError(f"'{name}': scores, signs or keys beside findings say what is present: {convert(line)}")


def note_constants(proposal: Proposal) -> None:
    """The diseases that every image has, as the user says (`--label DISEASE=all`)."""
    if ALL not in proposal.headers:
        named = [disease for disease, names in proposal.answers.labels.items() if list(names) == [ALL]]
        proposal.constant = dict.fromkeys(named, "positive")


def _find_wide(proposal: Proposal) -> dict[str, list[str]]:
    """Disease -> its label columns: the user's, else by their names, with what they share stripped."""
    answers, columns = proposal.answers.labels, defaultdict[str, list[str]](list)
    for disease, names in answers.items():
        if disease in proposal.constant:
            continue
        columns[disease] += [proposal.check_column(f"--label {disease}={name}", name) for name in names]
        if names and proposal.frame[columns[disease]].isna().all(axis=None):
            raise ConfigError(
                f"--label {disease}={names[0]}: all {len(proposal.frame):,} cells are empty; name a column with "
                f"labels, or say that the disease is not labeled: --label {disease}={NONE}"
            )
        for name in names:
            coded = any(code.column == name for code in proposal.answers.codes)
            if may_deny(name) and not coded:
                proposal.first.append(
                    f"'{name}' may say that {disease} is absent: then {option('--code', f'{name}:1=negative')} ..."
                )
    taken = {name for names in columns.values() for name in names}
    free = [name for name in proposal.free if name not in taken]
    called = {name: name_disease(name) for name in free}
    direct = {name: disease for name, disease in called.items() if disease is not None and disease not in answers}
    for name, disease in direct.items():
        cells = proposal.frame[name].dropna()
        if cells.nunique() <= _MOST_VALUES or _are_numbers(cells):
            columns[disease].append(name)
        else:
            text = f"'{name}' is called like {disease}, but holds more than {_MOST_VALUES} different texts: not used"
            proposal.first.append(text)
    _join_sides(proposal, columns, [name for name in free if name not in direct])
    free = [name for name in free if not any(name in names for names in columns.values())]
    groups = group_by_affix(free)
    open_groups = {affix: {n: d for n, d in names.items() if d not in columns} for affix, names in groups.items()}
    good = choose_groups(proposal, {affix: names for affix, names in open_groups.items() if names}, columns)
    if len(good) > 1:
        combine_groups(proposal, good, columns)
    for affix, group in good.items() if len(good) == 1 and is_technical(next(iter(good))) else ():
        proposal.notes.append(f"stripped from the names of label columns: '{' '.join(filter(None, affix))}'")
        for name, disease in group.items():
            columns[disease].append(name)
    _ask_kinds(proposal, columns, free)
    return {disease: names for disease, names in columns.items() if names}


def _join_sides(proposal: Proposal, columns: dict[str, list[str]], free: Sequence[str]) -> None:
    """Add columns of a disease that differ in the side: if several sides are there, all without it is absence."""
    sides = defaultdict[str, list[str]](list)
    for name in free:
        disease = name_side(name)
        if disease is not None and disease not in proposal.answers.labels and disease not in columns:
            sides[disease].append(name)
    columns |= {disease: names for disease, names in sides.items() if len(names) > 1}


def _ask_kinds(proposal: Proposal, columns: Mapping[str, Sequence[str]], free: Sequence[str]) -> None:
    """A question about columns that have the name of a disease without labels among other words, or name a kind of it.

    `New effusion` 0 does not say that there is no effusion.
    """
    kinds, codes = dict[str, str](), list[str]()
    for name in free:
        named = {*list_names(name).values()} - {*columns, *proposal.answers.labels}
        cells = proposal.frame[name]
        if not 2 <= cells.nunique() + cells.isna().any() <= _MOST_VALUES:
            continue
        if len(named) > 1:
            choices = [option("--label", f"{disease}={name}") for disease in sort_names(named)]
            text = f"labels: '{name}' names {' and '.join(sort_names(named))}: which is it, if any of them is there?"
            proposal.ask(text, *choices, option("--column", f"ignore={name}"), about=[name])
        elif named:
            kinds[name] = named.pop()
            negative = (v for v in _read_values(cells) if v in MAYBE_NEGATIVE)
            codes += [option("--code", f"{name}:{value}=missing") for value in negative]
    if not kinds:
        return
    labels = " ".join(option("--label", f"{disease}={name}") for name, disease in kinds.items())
    diseases = dict.fromkeys(kinds.values())
    one_class = f"one_class=[{', '.join(diseases)}]"
    proposal.ask(
        f"labels: {', '.join(map(repr, kinds))} are called like a disease and more: kinds of it, or the disease? "
        "Without one of its kinds, a disease may be present",
        f"{labels} {' '.join(codes)} {option('--set', one_class)} (kinds of it)",
        f"{labels} (the disease: none of it is absence)",
        " ".join(option("--label", f"{disease}={NONE}") for disease in diseases),
        about=kinds,
    )


def _are_numbers(cells: pd.Series) -> bool:
    return bool(pd.to_numeric(cells.str.replace(",", ".").str.rstrip("% "), errors="coerce").notna().mean() >= 0.9)


def _use_wide(proposal: Proposal, wide: dict[str, list[str]]) -> None:
    """The columns of each disease, their code book, and the annotators."""
    proposal.diseases = sort_names([*wide, *proposal.constant])
    for disease in wide:
        if disease not in proposal.labels:  # not votes in columns
            proposal.labels[disease] = wide[disease]
            if len(wide[disease]) > 1:
                _join_columns(proposal, disease, wide[disease])
    columns = list(dict.fromkeys(name for names in wide.values() for name in names))
    _ask_threshold(proposal, wide, columns)
    books: dict[str, list[Code]] = {}
    propose_labels(proposal, columns, books)
    find_reader(proposal, columns, long=False)
    says = {name: _read_meanings(proposal, name, wide, books) for name in columns}
    proposal.present = pd.concat([cells == "positive" for cells in says.values()], axis=1).any(axis=1)
    used = proposal.select_counted(columns[0], proposal.unused).index
    total = {disease: sum((Counter(says[name][used]) for name in names), Counter()) for disease, names in wide.items()}
    for disease, number in total.items():
        words = ("positive", "negative", "uncertain", "blank")
        text = ", ".join(f"{number[word]:,} {word}" for word in words if number[word])
        proposal.evidence[disease] = f"{text}{proposal.name_counted(wide[disease][0])}" if text else "open"
    ask_policies(proposal, total, "an empty cell")


def _ask_threshold(proposal: Proposal, wide: Mapping[str, Sequence[str]], columns: Sequence[str]) -> None:
    """From which number on a label is positive, where columns hold probabilities or percents."""
    percents = [name for name in columns if holds_percents(name)]
    scores = [name for name in columns if name in percents or proposal.frame[name].nunique() > _MOST_VALUES]
    if not scores or "threshold" in proposal.table:
        return
    half = 50 if percents or proposal.frame[scores].stack().map(_is_percent).any() else 0.5
    threshold: float | dict[str, float] = half
    if half == 50 and any(_are_numbers(proposal.frame[name].dropna()) for name in {*columns} - {*scores}):
        threshold = {disease: half for disease, names in wide.items() if not {*names}.isdisjoint(scores)}
    shown = f"{{{', '.join(f'{key}: 50' for key in threshold)}}}" if isinstance(threshold, dict) else f"{half:g}"
    proposal.ask(
        f"labels: {', '.join(scores)} hold numbers such as probabilities; positive from which one on?",
        option("--set", f"threshold={shown}"),
        "--set 'threshold={DISEASE: NUMBER, ...}'",
    )
    proposal.table["threshold"] = threshold


def _may_be_labels(cells: pd.Series) -> bool:
    """Whether a column holds two or more values, all of them such as labels have."""
    values = _read_values(cells)
    return len(values) > 1 and values <= {"0", "1", *NO_ANSWER, *VALUES, *MAYBE_VALUES}


def _read_values(cells: pd.Series) -> set[str]:
    return {normalize_value("label", str(cell)) for cell in cells.dropna().unique()}


def _is_percent(cell: str) -> bool:
    """Whether a cell is a number above 1, or has a percent sign."""
    number = PERCENT.fullmatch(cell.strip())
    return number is not None and (bool(number[2]) or float(number[1].replace(",", ".")) > 1)


def _read_meanings(
    proposal: Proposal, name: str, wide: Mapping[str, Sequence[str]], books: Mapping[str, Sequence[Code]]
) -> pd.Series:
    """The meaning of each cell of a label column, by its codes and the threshold; open: none yet."""
    rows = {code.value: code.meaning or "open" for code in [*books.get("", []), *books.get(name, [])]}
    limit = proposal.table.get("threshold")
    if isinstance(limit, dict):
        limit = next((limit[disease] for disease, names in wide.items() if name in names and disease in limit), None)
    meanings = {}
    for cell in proposal.frame[name].dropna().unique():
        value = normalize_value("label", str(cell))
        plain_number = {"1": "positive", "0": "negative"}.get(value, "open")
        compared = compare_to_threshold(value, limit) if limit is not None else None
        meanings[cell] = compared or rows.get(value) or plain_number
    return proposal.frame[name].map(meanings).fillna("blank")


def _join_columns(proposal: Proposal, disease: str, names: list[str]) -> None:
    """Several columns of one disease: sides and kinds of it are joined, anything else is asked for."""
    bare = {" ".join(part for part in plain(name).split() if part not in SIDES) for name in names}
    if disease in proposal.answers.labels or disease in proposal.table.get("any_column", []) or len(bare) == 1:
        proposal.table["any_column"] = list(dict.fromkeys([*proposal.table.get("any_column", []), disease]))
        proposal.evidence["any_column"] = "one positive column is enough"
        return
    counted = proposal.frame.loc[proposal.select_counted(names[0]).index, names]
    cells = counted.apply(lambda column: column.str.strip().str.casefold())
    differ = int((cells.nunique(axis=1) > 1).sum())
    both = " ".join(option("--label", f"{disease}={name}") for name in names)
    proposal.ask(
        f"labels: {', '.join(names)} are all called like {disease}, and differ in {differ:,} of {len(cells):,} rows",
        *(f"{option('--label', f'{disease}={name}')} {ignore({*names} - {name})}" for name in names),
        f"{both} (one positive is enough)",
    )


def _find_terms(proposal: Proposal, free: Sequence[str]) -> tuple[str, str | None, set[str]] | None:
    """The column of findings in words, its separator, and the diseases in it; None if there is none."""
    answer = proposal.get_answer("findings") or proposal.get_answer("finding")
    if answer == NONE:
        return None
    if answer is not None:
        attempt = _look_at(proposal, answer, called=True)
        return answer, attempt[1], attempt[2]
    good = []
    for name in free:
        called = bool(find_called("findings", [name]))
        share, separator, diseases = _look_at(proposal, name, called=called)
        if diseases and share >= (_TELLING if called else _TELLING_UNNAMED):
            good.append((len(diseases), share, name, separator, diseases))
    if not good:
        return None
    good.sort(key=lambda each: (each[0], bool(find_called("findings", [each[2]])), each[1]), reverse=True)
    rivals = [each[2] for each in good if each[0] == good[0][0] and each[1] > 0.8 * good[0][1]]
    if len(rivals) > 1 and len(find_called("findings", rivals)) != 1:
        listed_names = ", ".join(rivals)
        proposal.ask(
            f"findings: {listed_names} all hold some",
            *(option("--column", f"findings={name}") for name in rivals),
            about=rivals,
        )
    return good[0][2], good[0][3], good[0][4]


def _look_at(proposal: Proposal, name: str, *, called: bool) -> tuple[float, str | None, set[str]]:
    """Share of cells with a known term, the separator that makes most terms known, and the diseases.

    Cells are cut at `,`, `/`, `+` and `&` only if none of them denies or doubts anything: `no edema, effusion` has to
    stay one term.
    """
    counted = proposal.frame[name].dropna().value_counts().head(_SAMPLE)
    pairs = [(str(cell), int(number)) for cell, number in counted.items()]
    total, answer = max(1, sum(number for _, number in pairs)), proposal.table.get("separator")
    ways: list[tuple[str | None, list[tuple[list[str], int]]]]
    if pairs and sum(number for cell, number in pairs if listed(cell) is not None) >= 0.95 * total:
        ways = [(None, [(listed(cell) or [], number) for cell, number in pairs])]
    else:
        ways = [(None, [([cell], number) for cell, number in pairs])]
        for sign in [answer] if answer else ["|", ";", *LOOSE_SEPARATORS]:
            cut = [(cell.split(sign), number) for cell, number in pairs]
            loose = sign in LOOSE_SEPARATORS and any(
                may_turn(p) for parts, _ in cut if len(parts) > 1 for p in parts if p.strip()
            )
            if any(len(parts) > 1 for parts, _ in cut) and not loose:
                ways.append((sign, cut))
            elif answer and loose:
                raise ConfigError(
                    f"--set separator={sign}: cells deny or doubt something, which may go on behind it: "
                    "without a separator, each cell is one term of the label map"
                )
    best: tuple[float, float, str | None, set[str]] | None = None
    for separator, cells in ways:
        score, telling, diseases = 0.0, 0, set[str]()
        for parts, number in cells:
            suggestions = [suggest(normalize_value("finding", part)) for part in parts if part.strip()]
            useful = [s for s in suggestions if s.meaning is not None and (s.certain or called)]
            score += number * sum(1 if s.certain else 0.5 if s in useful else -0.25 for s in suggestions)
            telling += number if any(s.meaning and (s.meaning.findings or s.meaning.healthy) for s in useful) else 0
            diseases |= {d for s in useful if s.meaning for d in s.meaning.findings}
        if best is None or score > best[0] or (answer and separator):
            best = score, telling / total, separator, diseases
    assert best is not None
    return best[1], best[2], best[3]


def _use_terms(proposal: Proposal, column: str, separator: str | None) -> None:
    """A column of findings in words: one row per image, or one per finding."""
    cells, images = proposal.frame[column], proposal.image.dropna()
    several, says = bool(len(images) and images.duplicated().any()) and separator is None, None
    long = "finding" in proposal.answers.columns or (several and "findings" not in proposal.answers.columns)
    counted: pd.Series | None = cells
    proposal.take(
        "finding" if long else "findings", column, "a row per finding" if long else "all findings of an image"
    )
    if long:
        value = proposal.get_answer("value") or next(iter(find_called("value", proposal.free)), None)
        maybe = [name for name in proposal.free if value is None and _may_be_labels(proposal.frame[name])]
        counted = counted if value is None and not maybe else None
        if maybe:
            proposal.ask(
                f"value: a row per finding; does {' or '.join(maybe)} say whether the finding is present?",
                *(option("--column", f"value={name}") for name in maybe),
                f"{option('--column', f'value={NONE}')} (a finding that has a row is present)",
                about=maybe,
            )
        if value not in (None, NONE):
            proposal.take("value", str(value), "yes or no")
            books: dict[str, list[Code]] = {}
            propose_labels(proposal, [str(value)], books)
            says, counted = _read_meanings(proposal, str(value), {}, books), cells
        find_reader(proposal, [column, *([str(value)] if value else [])], long=True)
    lists = separator is None and any(listed(cell) is not None for cell in cells.dropna().head(5))
    if not long and not lists:
        unused = next(
            sign for sign in ("|", ";", "||") if not cells.str.contains(sign, regex=False, na=False).any() or separator
        )
        proposal.table["separator"] = separator or unused
        proposal.evidence["separator"] = (
            "splits the cells into the most known terms" if separator else "occurs in no cell"
        )
    terms: Counter[str] = Counter()
    for cell, number in cells.dropna().value_counts().items():
        parts = listed(str(cell)) if lists else str(cell).split(separator) if separator else [str(cell)]
        for term in {normalize_value("finding", part) for part in parts or [] if part.strip()} or {""}:
            terms[term] += int(number)
    if cells.isna().any():
        terms[""] += int(cells.isna().sum())
    rows = propose_findings(proposal, terms, column)
    use_findings(proposal, rows)
    ask_policies(
        proposal,
        count_findings(proposal, rows, counted, separator, lists, says),
        "a disease that is not mentioned",
    )


def use_findings(proposal: Proposal, rows: Sequence[Code]) -> None:
    """Note the diseases that the terms mention."""
    meanings = [parse_meaning(row.meaning or row.proposal) for row in rows if row.meaning or row.proposal]
    mentioned = {disease for meaning in meanings for disease in meaning.findings}
    proposal.diseases = sort_names([*mentioned, *proposal.constant]) if mentioned else list(DISEASES)


def _ask_for_labels(proposal: Proposal) -> None:
    """The question where no column is called like a disease, and none has terms for one."""
    free = [name for name in proposal.free if proposal.frame[name].nunique() <= _MOST_VALUES]
    listed_names = ", ".join(free or proposal.free)
    proposal.ask(
        f"labels: no column is called like a disease, and none holds words for one. Columns: {listed_names}",
        option("--label", "DISEASE=COLUMN"),
        f"{option('--label', f'DISEASE={ALL}')} (every image has it)",
        option("--column", "findings=COLUMN"),
    )
    proposal.site |= {
        "uncertain": proposal.answers.uncertain or "missing",
        "blank": proposal.answers.blank or "missing",
    }
    proposal.diseases = list(DISEASES)
