"""Annotators: columns for each of them, a column that names them, and how their votes are combined."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import pandas as pd

from chestfed.core.console import plural
from chestfed.data.sites.lexicon import COLUMNS, JOINT, NAMES, TURNING, list_names, plain
from chestfed.data.sites.tables.rows import match_reader
from chestfed.data.sites.tables.schema import READER
from chestfed.leaves.drafts.proposal import NONE, Proposal, find_called, ignore, option

#: How rows that repeat an image are left out.
_DROP: Final = (
    f"{option('--set', 'rows.duplicate=drop')} {option('--set', 'rows.contradictory=drop')} (rows that repeat an "
    "earlier one; and all rows of an image that differ in patient, view, split, sex, age or labels)"
)
_MOST_READERS: Final = 50
#: So many names of annotators are listed in a question.
_MOST_LISTED: Final = 5
#: Words beside a name that may reverse it.
_REVERSING: Final = frozenset(("yes", "ja", "nein", "absent", "present", "neg", "negative", "0", "1", "2", "3"))
#: Words before and behind the name of a disease.
Affix = tuple[str, str]


def group_by_affix(names: Sequence[str]) -> dict[Affix, dict[str, str]]:
    """(words before, words behind) -> column -> disease, of columns that have more than a disease's name."""
    groups: dict[Affix, dict[str, str]] = defaultdict(dict)
    for name in names:
        if re.search(r"=(?!\s*[^\W\d]{3})|\(-\)|\?", name) or len({*list_names(name).values()}) > 1:
            continue  # `(0=yes)`; not `(choice=Edema)`
        words = plain(name).split()
        spans = [(start, end) for start in range(len(words)) for end in range(len(words), start, -1)]
        spans = [
            (start, end) for start, end in spans if " ".join(words[start:end]) in NAMES and end - start < len(words)
        ]
        if not spans:
            continue
        start, end = max(spans, key=lambda span: span[1] - span[0])
        beside = {*words[:start], *words[end:]}
        if not beside & (TURNING | _REVERSING):
            affix = " ".join(words[:start]), " ".join(words[end:])
            groups[affix][name] = NAMES[" ".join(words[start:end])]
    return groups


def choose_groups(
    proposal: Proposal, groups: Mapping[Affix, Mapping[str, str]], columns: dict[str, list[str]]
) -> dict[Affix, Mapping[str, str]]:
    """The groups that may be labels: of two diseases or more, or of numbered annotators.

    What annotators agreed on (`edema_consensus`) or a program says (`edema_AI`) is no annotator's vote. If annotators
    agreed on every disease, these columns are added, and no group is left; else which of them count is asked.
    """
    joint = {affix: names for affix, names in groups.items() if JOINT & _split_affix(affix)}
    votes = {affix: names for affix, names in groups.items() if affix not in joint}
    joint_names = {name: disease for names in joint.values() for name, disease in names.items()}
    voted = {disease for names in votes.values() for disease in names.values()}
    rivals = voted & set(joint_names.values())
    agreed = [names for affix, names in joint.items() if COLUMNS["agreed"] & _split_affix(affix)]
    everything = voted | set(joint_names.values())
    is_agreed = len(agreed) == 1 and {*agreed[0].values()} == everything and len(agreed[0]) == len(everything)
    if is_agreed and len(groups) > 1 and proposal.answers.raters is None:
        columns |= {disease: [name] for name, disease in agreed[0].items()}
        other = [name for names in groups.values() for name in names if name not in agreed[0]]
        proposal.pending |= {*other}
        proposal.first.append(
            f"labels are what annotators agreed on ({', '.join(agreed[0])}), not what each of them saw; not read: "
            f"{', '.join(other)}"
        )
        return {}
    if rivals and proposal.answers.raters is None:
        single = {name: disease for names in votes.values() for name, disease in names.items()}
        proposal.ask(
            f"labels: {', '.join(joint_names)}: annotators' joint labels or a program's, and no further annotator's. "
            "Do these count, or the others?",
            f"{_list_labels(joint_names)} {ignore(single)}",
            f"{_list_labels(single) if len(votes) == 1 else '--raters majority'} {ignore(joint_names)} (the votes)",
            about=[*joint_names, *single],
        )
    good = votes if rivals else dict(groups)
    numbered = {affix for affix in good if _is_numbered_reader(" ".join(affix))}
    several = len(numbered) > 1
    return {
        affix: names
        for affix, names in good.items()
        if len(set(names.values())) >= 2 or (several and affix in numbered)
    }


def is_technical(affix: Affix) -> bool:
    """Whether the words beside the diseases' names are those of columns of labels, and name no kind of a disease."""
    roles = ("findings", "value", "reader", "running")
    return all(word in JOINT or any(word in COLUMNS[role] for role in roles) for word in _split_affix(affix))


def _split_affix(affix: Affix) -> set[str]:
    return {*" ".join(affix).split()}


def _list_labels(diseases: Mapping[str, str]) -> str:
    """The options that name these columns."""
    return " ".join(option("--label", f"{disease}={name}") for name, disease in diseases.items())


def _name_readers(texts: Iterable[str]) -> bool:
    """Whether one of the texts has a word for an annotator, perhaps with a number: `r1`, `reader_2`."""
    words = {word for text in texts for word in re.split(r"\W|_|\d", text.casefold())}
    return not words.isdisjoint({*COLUMNS["reader"], "r", "rad", "reviewer"})


def _is_numbered_reader(text: str) -> bool:
    """Whether a text is an annotator's number, such as `r1`; not so `r`, which may be the right side."""
    return any(map(str.isdigit, text)) and _name_readers([text])


def combine_groups(
    proposal: Proposal, groups: Mapping[Affix, Mapping[str, str]], columns: dict[str, list[str]]
) -> None:
    """Add the columns of annotators' votes (`edema_r1`, `edema_r2`); else ask."""
    by_disease: dict[str, list[str]] = defaultdict(list)
    for group in groups.values():
        for name, disease in group.items():
            by_disease[disease].append(name)
    cuts = {disease: _cut_common(names) for disease, names in by_disease.items()}
    readers = {tuple(cut[2]) for cut in cuts.values()}
    joint = any(JOINT & _split_affix(affix) for affix in groups)
    if not joint and len(readers) == 1 and _name_readers(name for names in by_disease.values() for name in names):
        patterns = {disease: f"{before}{READER}{behind}" for disease, (before, behind, _) in cuts.items()}
        proposal.labels |= {disease: [pattern] for disease, pattern in patterns.items()}
        for disease, pattern in patterns.items():
            if others := match_reader(pattern, proposal.headers).keys() - set(by_disease[disease]):
                text = f"{pattern} would also take the votes of {', '.join(sorted(others))}"
                proposal.ask(f"labels: {text}: rename or remove these columns")
        names = readers.pop()
        _ask_raters(proposal, len(names), names)
        columns |= by_disease
        return
    disease = sorted(by_disease)[0]
    proposal.ask(
        f"labels: several columns for each of {', '.join(sorted(by_disease))}; which are the labels?",
        *(f"{option('--label', f'{disease}={name}')} ..." for name in by_disease[disease][:6]),
        about=[name for names in by_disease.values() for name in names],
    )


def _ask_raters(proposal: Proposal, number: float, names: Sequence[str]) -> None:
    """Note the rule that combines votes: the user's answer, else a question, unless each image has one annotator."""
    rule = proposal.answers.raters
    proposal.table["raters"] = rule or "any"
    proposal.evidence["raters"] = f"{number:g} annotators per image"
    if rule is None and number > 1:
        rules = ["majority", "any", "all", *(names if len(names) <= _MOST_LISTED else ())]
        proposal.ask(
            f"raters: {number:g} annotators per image; what is positive: what most, any or all of them see, or one?",
            *(option("--raters", rule) for rule in rules),
        )


def _cut_common(names: Sequence[str]) -> tuple[str, str, list[str]]:
    """Split names into their common beginning and end, and what differs."""
    before = re.sub(r"\d+$", "", _find_beginning(names))
    behind = _find_beginning([name[len(before) :][::-1] for name in names])[::-1]
    return before, behind, [name[len(before) : len(name) - len(behind)] for name in names]


def _find_beginning(names: Sequence[str]) -> str:
    same = [len(set(letters)) == 1 for letters in zip(*names, strict=False)]
    return names[0][: same.index(False) if False in same else len(same)]


def find_reader(proposal: Proposal, labels: Collection[str], *, long: bool) -> None:
    """Note the annotator's column, if images have several rows."""
    image, frame = proposal.image, proposal.frame
    answer = proposal.get_answer("reader")
    several = image.dropna().duplicated().any()
    if answer == NONE or (not several and answer is None):
        return
    column = answer
    if column is None:
        free = [name for name in proposal.free if name not in labels and frame[name].notna().all()]
        fitting = [name for name in free if 2 <= frame[name].nunique() <= _MOST_READERS]
        fitting = [name for name in fitting if _varies(frame[name], image, long=long)]
        called = find_called("reader", fitting)
        if len(called) == 1:
            column = called[0]
        elif fitting or not long:
            again = image[image.notna() & image.duplicated(keep=False)]
            usual = image.dropna().nunique() < 0.7 * image.notna().sum()
            if not long and _drop_copies(proposal, again):
                return
            choices = [option("--column", f"reader={name}") for name in called or fitting] if long or usual else []
            if choices or long:
                choices.append("--column reader=none" if long else _DROP)
                text = f"{_count_repeated(proposal, again)}; which column names who labeled the row?"
            else:
                again = _drop_alike(frame, again)
                groups = frame.loc[again.index].groupby(again)
                differ = [repr(name) for name in proposal.headers if (groups[name].nunique(dropna=False) > 1).any()]
                repeated = _count_repeated(proposal, again)
                text = f"{repeated} that differ in {', '.join(differ)}: correct the table, or leave them out"
                choices.append(_DROP)
            if long or not proposal.answers.keys.get("rows", {}).get("duplicate"):
                proposal.ask(f"annotators: {text}", *choices, about=called or fitting)
            return
        else:
            return
    per_image = frame[column].groupby(image).nunique()
    number = float(per_image.max() if per_image.max() == 1 else max(2, per_image.median()))
    proposal.take("reader", column, f"{frame[column].nunique():,} annotators, {number:g} per image")
    _ask_raters(proposal, number, sorted(map(str, frame[column].dropna().unique())))


def _varies(cells: pd.Series, image: pd.Series, *, long: bool) -> bool:
    """Whether images have several values, each once (long: as many for all images)."""
    per_image = cells.groupby(image).nunique()
    if not long:
        return not pd.DataFrame({"image": image, "cell": cells}).duplicated().any()
    return bool((per_image > 1).any() and per_image.nunique() == 1 and 2 * cells.nunique() <= image.nunique())


def _count_repeated(proposal: Proposal, again: pd.Series) -> str:
    return f"{plural(again.nunique(), 'image')} with several rows ({proposal.list_rows(again.index)})"


def _drop_alike(frame: pd.DataFrame, again: pd.Series) -> pd.Series:
    """The rows of images of which two rows differ, one of each; all, if none do."""
    rows = again[~frame.loc[again.index].assign(**{"\0image": again}).duplicated()]
    rows = rows[rows.duplicated(keep=False)]
    return rows if len(rows) else again


def _drop_copies(proposal: Proposal, again: pd.Series) -> bool:
    """Whether the repeated rows are alike in every cell, so that one of each is left."""
    rows = proposal.frame.loc[again.index].assign(**{"\0image": again}).drop_duplicates()
    if len(rows) > again.nunique() or "duplicate" in proposal.answers.keys.get("rows", {}):
        return False
    proposal.rows["duplicate"] = "drop"
    copies = again.index.difference(rows.index)
    number = len(copies) if proposal.numbers is None else proposal.numbers[copies].nunique()
    what = "row repeats" if number == 1 else "rows repeat"
    proposal.first.append(f"{number:,} {what} another one in every cell ({proposal.list_rows(copies)}): left out")
    return True
