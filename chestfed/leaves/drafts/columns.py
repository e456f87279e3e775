"""Which columns hold the patient, study, view, split, sex, age, site, and which ones filter rows."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

import pandas as pd

from chestfed.core.errors import ConfigError
from chestfed.data.sites.label_files.text import convert
from chestfed.data.sites.lexicon import WORDS, name_disease, name_unit, name_view, plain
from chestfed.data.sites.reader import group_spellings, plain_id
from chestfed.leaves.drafts.codes import (
    MOST_WORDS,
    SHOWN_FROM,
    add_codes,
    ask_codes,
    count_values,
    count_with_empty,
    guess_words,
    leave_out_views,
    list_frequent,
    names_split,
    offer_codes,
    propose_ages,
    propose_words,
)
from chestfed.leaves.drafts.proposal import (
    ENOUGH,
    FOLDER,
    NONE,
    PREFIX,
    Proposal,
    count,
    find_called,
    has_dates,
    is_called,
    is_date,
    option,
)

#: Values that a column of splits has, in one of its two to four words.
_SPLIT_WORDS: Final = frozenset(
    (*WORDS["split"], *("dev", "development", "eval", "internal validation"), "external validation")
)
#: A column of a split has no more values than this.
_MOST_SPLITS: Final = 4
_SIGNS, _ZEROS, _POINT_ZERO = (r"[\W_]", ""), (r"(?<!\d)0+(?=\d)", ""), (r"\.0$", "")
#: Replacements in names in capitals that make those of one person alike, the least first.
_ALIKE: Final = ((), (_SIGNS,), (_POINT_ZERO,), (_ZEROS,), (_POINT_ZERO, _ZEROS), (_SIGNS, _ZEROS))
_SPELLINGS: Final = "capitals, spaces, leading zeros, .0, or a sign before or within the number"


def propose_patient(proposal: Proposal) -> None:
    """Note the column of the patient, a folder of the images, or that every image is a patient; else a question."""
    if proposal.is_in_path("patient"):
        return
    answer, paths = proposal.get_answer("patient"), list_paths(proposal)
    places = {FOLDER: find_folder(paths), PREFIX: find_prefix(paths)}
    if answer in places:
        place = places[answer]
        if place is None:
            raise ConfigError(f"--column patient={answer}: it does not tell the images apart")
        proposal.table["from_path"], proposal.evidence["from_path"] = place
        return
    if answer == NONE:
        proposal.take("patient", proposal.columns["image"], "none: every image counts as a separate patient")
        return
    if answer is not None:
        _refuse_dates(proposal, answer)
        proposal.take("patient", answer, f"given; {_count_groups(proposal, answer)}")
        if number := _count_spellings(proposal.frame[answer]):
            proposal.first.append(
                f"{number:,} values of '{answer}' are written in several ways ({_SPELLINGS}), and count as "
                f"several patients: write those of one person alike{_write_alike(proposal.frame[answer])}"
            )
        return
    names = [name for name in proposal.headers if name != proposal.columns.get("image")]
    called = find_called("patient", names)
    likely = [name for name in called if _fits_images(proposal.frame[name], proposal.image)]
    for name in likely:
        _refuse_dates(proposal, name)
    if likely and all(have_same_groups(proposal.frame[name], proposal.frame[likely[0]]) for name in likely):
        proposal.take("patient", likely[0], f"by its name; {_count_groups(proposal, likely[0])}")
        _ask_spellings(proposal, likely[0])
        return
    ids = [name for name in names if looks_like_ids(proposal.frame[name], proposal.image) and name not in likely]
    why = (
        "several columns are called like it, and group the images differently"
        if likely
        else _explain_none(proposal, called)
    )
    choices = [option("--column", f"patient={name}") for name in likely or ids[:6] or ["NAME"]]
    for name, place in places.items():
        if place and not are_years(paths.str.extract(place[0], expand=False).dropna().unique()):
            choices.append(f"{option('--column', f'patient={name}')} ({place[1]})")
    proposal.ask(
        f"patient: {why}. Without patients, images of one person may be in both training and test",
        *choices,
        f"{option('--column', f'patient={NONE}')} (every image counts as a patient)",
    )


def _count_spellings(cells: pd.Series) -> int:
    """Count names that are written in several ways; `HC-12` and `hc 12` are perhaps one, which only a person knows."""
    return len(group_spellings(cells.dropna()))


def _ask_spellings(proposal: Proposal, name: str) -> None:
    if number := _count_spellings(proposal.frame[name]):
        proposal.ask(
            f"patient: {number:,} values of '{name}' are written in several ways, which differ only in "
            f"{_SPELLINGS}; write those of one person alike{_write_alike(proposal.frame[name])}",
            f"{option('--column', f'patient={name}')} (they are different persons)",
        )


def _write_alike(cells: pd.Series) -> str:
    """Advice with the line of pandas that gives the names of each person the first one's spelling, if there is one."""
    names = pd.Series(cells.dropna().unique())
    plain_names = names.map(plain_id)
    for steps in _ALIKE:
        keys, expression = names.str.upper(), ".astype(str).str.upper()"
        for pattern, text in steps:
            keys = keys.str.replace(pattern, text, regex=True)
            expression += f".str.replace(r'{pattern}', '{text}', regex=True)"
        if have_same_groups(keys, plain_names):
            column = f"frame[{str(cells.name)!r}]"
            line = f"{column} = {column}.groupby({column}{expression}).transform('first')"
            return f"; {convert(line)}"
    return ""


def _explain_none(proposal: Proposal, unfit: list[str]) -> str:
    if not unfit:
        return "no column is called like it"
    empty = proposal.select_counted(unfit[0]).isna()
    if empty.mean() <= 1 - ENOUGH:
        return f"'{unfit[0]}' has several values for one image"
    rows = proposal.list_rows(empty.index[empty])
    return f"'{unfit[0]}' is empty in {empty.sum():,} rows ({rows}); fill it in on every row"


def _refuse_dates(proposal: Proposal, name: str) -> None:
    if has_dates(proposal.frame[name]):
        proposal.ask(
            f"patient: the cells of '{name}' are dates, and name no patient", option("--column", "patient=NAME")
        )


def _count_groups(proposal: Proposal, column: str) -> str:
    return f"{proposal.frame[column].nunique():,} patients of {proposal.image.nunique():,} images"


def _fits_images(cells: pd.Series, image: pd.Series) -> bool:
    """Filled, and one for each image."""
    known = pd.DataFrame({"image": image, "cell": cells}).dropna().drop_duplicates()
    return bool(cells.notna().mean() >= ENOUGH and known["image"].duplicated().mean() < 1 - ENOUGH)


def looks_like_ids(cells: pd.Series, image: pd.Series) -> bool:
    """Many different cells, and some images in common."""
    if any(
        is_called(role, str(cells.name)) for role in ("age", "view", "split", "sex", "findings", "value", "running")
    ):
        return False
    share = cells.nunique() / max(1, image.nunique())
    fits = _fits_images(cells, image) and 0.2 < share <= 1 and not has_dates(cells)
    return fits and not cells.str.contains(r"\s", na=False).mean() > 0.5


def have_same_groups(first: pd.Series, second: pd.Series) -> bool:
    pairs = pd.DataFrame({"a": first, "b": second}).dropna().drop_duplicates()
    return bool(pairs["a"].is_unique and pairs["b"].is_unique)


def find_prefix(paths: pd.Series, folder: str = "(?:^|/)", role: str = "patient") -> tuple[str, str] | None:
    """Find how the files' names begin, up to a `_` or `-`, as an expression, with counts; None if it groups none."""
    names = paths.str.rsplit("/", n=1).str[-1]
    sign = next((sign for sign in "_-" if names.str.contains(sign, regex=False).any()), None)
    if sign is None:
        return None
    number = names.str.split(sign, n=1).str[0].nunique()
    if not 1 < number < paths.nunique():
        return None
    text = f"{number:,} beginnings of file names, up to '{sign}', of {paths.nunique():,} images"
    if whole := names[~names.str.contains(sign, regex=False)].nunique():
        text += f"; {whole:,} names without '{sign}' are a {role} each"
    return f"{folder}(?P<{role}>[^/{sign}]+)[^/]*$", text


def find_folder(paths: pd.Series, role: str = "patient") -> tuple[str, str] | None:
    """The outermost folder of the images that differs, as an expression, with counts."""
    folders = [path.split("/")[:-1] for path in paths]
    depth = min(map(len, folders), default=0)
    different = [1, *(len({tuple(parts[: level + 1]) for parts in folders}) for level in range(depth))]
    levels = [level for level in range(depth) if different[level + 1] > different[level]]
    if not levels:
        return None
    text = f"{different[levels[0] + 1]:,} folders at level {levels[0] + 1} of {paths.nunique():,} images"
    return f"^{'[^/]+/' * levels[0]}(?P<{role}>[^/]+)/", text


def list_paths(proposal: Proposal) -> pd.Series:
    """The paths of the images as `from_path` sees them."""
    paths = proposal.image.dropna().astype(str)
    for root in sorted(proposal.rule.get("roots", ["."]), key=len, reverse=True):
        paths = paths.str.removeprefix(f"{root.rstrip('/')}/")
    return paths


def propose_path_words(proposal: Proposal) -> None:
    """The codes of the views, sexes and splits that the user's `from_path` takes from the paths."""
    pattern = str(proposal.answers.keys.get("from_path", ""))
    for role in ("view", "sex", "split"):
        if not proposal.is_in_path(role):
            continue
        cells = list_paths(proposal).str.extract(pattern)[role]
        counts = count_values(cells, role)
        if len(counts) > MOST_WORDS:
            raise ConfigError(f"--set from_path: {len(counts):,} different values are not words for a {role}")
        rows = add_codes(proposal, "", role, counts, guess_words(role, role, counts))
        ask_codes(proposal, f"'{role}' in the path", role, rows)
        if role == "view":
            counted = cells.index[~proposal.image[cells.index].duplicated()]
            leave_out_views(proposal, cells, rows, counted, "images")


def propose_others(proposal: Proposal) -> None:
    """Note study, view, sex, age and split."""
    answer = proposal.get_answer("study")
    likely = [
        name for name in find_called("study", proposal.free) if _fits_images(proposal.frame[name], proposal.image)
    ]
    if answer not in (None, NONE) or (answer is None and likely and "study" not in proposal.columns):
        name = answer or likely[0]
        proposal.take(
            "study", name, f"{'given' if answer else 'by its name'}; {proposal.frame[name].nunique():,} different"
        )
    for role in ("view", "sex"):
        answer = proposal.get_answer(role)
        column = NONE if proposal.is_in_path(role) else answer or _find_worded(proposal, role)
        if column is not None and column != NONE:
            propose_words(proposal, role, column, "given" if answer else "by its name and words")
    propose_path_words(proposal)
    _propose_age(proposal)
    _propose_date(proposal)
    if "view" not in proposal.columns and not proposal.is_in_path("view") and "default_view" not in proposal.table:
        _ask_view_folders(proposal)
        proposal.first.append(
            "no column of views: lateral images, if any, are used for training (--column view=NAME, "
            "or, if all are frontal, --set default_view=frontal)"
        )
    _propose_split(proposal)


def _ask_view_folders(proposal: Proposal) -> None:
    """A question where no column has views, and folders or ends of file names are called like some."""
    if proposal.get_answer("view") is not None:
        return
    root = proposal.rule.get("roots", ["."])[0]
    paths = proposal.image.astype(str).str.removeprefix(f"{root}/")
    folders = paths.str.split("/").str[:-1]
    cells = {f"^{'[^/]+/' * n}(?P<view>[^/]+)/": folders.str[n] for n in range(int(folders.str.len().min() or 0))}
    cells[r"[_-](?P<view>[A-Za-z]+)\.\w+$"] = paths.str.extract(r"[_-]([A-Za-z]+)\.\w+$", expand=False)
    for pattern, names in cells.items():
        if names.notna().all() and has_only_views(names):
            text = "view: no column has views, and folders, or the ends of file names, are called like views"
            proposal.ask(text, option("--set", f"from_path={pattern}"), option("--column", f"view={NONE}"))
            return


def _find_worded(proposal: Proposal, role: str) -> str | None:
    """The column that is called so, if it has few words; of views also one with nothing but views."""
    free = [name for name in proposal.free if proposal.frame[name].nunique() <= MOST_WORDS]
    shares = {name: _measure_known(proposal.frame[name], role) for name in find_called(role, free)}
    best = max(shares, key=lambda name: shares[name], default=None)
    if best is not None and (shares[best] > 0 or proposal.frame[best].nunique() > 1):
        return best
    views = [name for name in free if role == "view" and has_only_views(proposal.frame[name])]
    return views[0] if views else None


def _measure_known(cells: pd.Series, role: str) -> float:
    words = cells.dropna().str.strip().str.lower()
    guess = guess_words(role, str(cells.name), set(words))
    return float(words.map(lambda word: guess(word)[2]).mean()) if len(words) else 0.0


def has_only_views(cells: pd.Series) -> bool:
    views = {name_view(cell) for cell in cells.dropna().unique()}
    return None not in views and len(views & {"pa", "ap", "frontal", "lateral"}) > 1


def _propose_age(proposal: Proposal) -> None:
    answer, birth = proposal.get_answer("age"), proposal.get_answer("birth")
    if birth not in (None, NONE):
        proposal.take("birth", str(birth), "given; with the date of the image it gives the age")
    if answer == NONE or "birth" in proposal.columns:
        return
    bare = {name: re.sub(f"( in| en| em)? {name_unit(name) or '$'}$", "", plain(name)) for name in proposal.free}
    called = [name for name in proposal.free if is_called("age", bare[name])]
    for name in [answer] if answer else called:
        if propose_ages(proposal, name, "given" if answer else "by its name"):
            return
        text = _explain_ages(proposal, name)
        if answer:
            raise ConfigError(f"--column age={name}: {text}")
        proposal.ask(f"age: '{name}' is called like it, but {text}", "--column age=none", about=[name])


def _explain_ages(proposal: Proposal, name: str) -> str:
    """Why a column has no ages in years, with counts, and the line of pandas that makes ages of it."""
    cells = proposal.frame[name].dropna()
    if dates := int(is_date(cells).sum()):
        exam = next((other for other in proposal.headers if other != name and has_dates(proposal.frame[other])), "DATE")
        both = f"{option('--column', f'birth={name}')} {option('--column', f'date={exam}')}"
        whose = f"if they are dates of birth and '{exam}' is the date of the image, {both}"
        return f"{count(dates, len(cells))} are dates, and an age is in years: {whose}"
    if years := int(cells.str.strip().str.fullmatch(r"(?:19|20)\d\d").sum()):
        return f"{count(years, len(cells))} are calendar years: write the age in years at the time of the image"
    if cells.str.fullmatch(r"\d+").mean() > 0.5:
        line = f"frame.rename(columns={{{name!r}: {f'{name} (months)'!r}}})"
        return f"too few cells are ages in years; of months: {convert(line)}"
    words = cells.str.extract(r"^\s*\d+(?:[.,]\d+)?\s*([^\W\d]+)\.?\s*$", expand=False).str.lower().value_counts()
    if shown := [word for word, rows in words.items() if rows >= SHOWN_FROM]:
        units = f"{', '.join(map(repr, shown))}{' and others' if len(shown) < len(words) else ''}"
        line = f'frame[{name!r}] = frame[{name!r}].str.extract(r"(\\d+)", expand=False)'
        number = count(int(words.sum()), len(cells))
        return f"{number} are a number and {units}, too few in a known unit; if all are years, {convert(line)}"
    return "too few cells are ages in years; --code age:VALUE=YEARS, or the code book, says what other cells mean"


def _propose_date(proposal: Proposal) -> None:
    """Note the only column of dates that differ within patients, as those of birth do not."""
    answer, patient = proposal.get_answer("date"), proposal.columns.get("patient")
    if answer is None and patient is not None:
        dates = [name for name in proposal.free if has_dates(proposal.frame[name])]
        dates = [n for n in dates if (proposal.frame[n].groupby(proposal.frame[patient]).nunique() > 1).any()]
        answer = dates[0] if len(dates) == 1 else None
    if answer not in (None, NONE):
        proposal.take("date", str(answer), "dates; the check compares them with ages, where these are known")
    if "birth" in proposal.columns and "date" not in proposal.columns:
        raise ConfigError(f"birth: the date of the image is needed too: {option('--column', 'date=NAME')}")


def _propose_split(proposal: Proposal) -> None:
    """Note the column that is called like a split or holds the words of one; no test set is guessed."""
    answers, answer = proposal.answers, proposal.get_answer("split")
    if answer not in (None, NONE):
        propose_words(proposal, "split", str(answer), "given")
    elif answer is None and not proposal.has_split:
        free = [name for name in proposal.free if name not in proposal.table.get("keep", [])]
        maybe = [name for name in free if _may_be_split(proposal, name)]
        named = [name for name in find_called("split", maybe) if _measure_known(proposal.frame[name], "split") == 1]
        if len(named or maybe) == 1:
            propose_words(proposal, "split", (named or maybe)[0], "by its name and words")
        elif maybe:
            options = [option("--column", f"split={name}") for name in maybe]
            text = f"split: {', '.join(map(repr, maybe))} may say which images are for testing"
            proposal.ask(text, *options, option("--column", "split=none"), about=maybe)
    if answer is None and answers.test_fraction and "split" in proposal.columns:
        proposal.ask(
            f"split: '{proposal.columns['split']}' says which images are for testing, and so does --test-fraction",
            "--test-fraction 0 (the images of the column)",
            f"{option('--column', f'split={NONE}')} (drawn by patient)",
        )
    propose_share(proposal)


def propose_share(proposal: Proposal) -> None:
    """Note the share of patients for testing that the user gives; a question if nothing else says what is for it."""
    answers = proposal.answers
    if answers.test_fraction is not None:
        proposal.site["splits"] = {"test_fraction": answers.test_fraction}
        proposal.evidence["splits"] = "given; drawn by patient"
    elif not answers.no_split and not proposal.has_split:
        names = [name for name in proposal.free if names_split(name) and name_disease(name) is None]
        offers = {name: offer for name in names if (offer := offer_split(proposal, name))}
        text = f"{', '.join(map(repr, offers))} may say" if offers else "nothing says"
        fixed = f"chestfed site check {proposal.name}.yaml --fix-splits"
        asked = f"split: {text} which images are for testing. A drawn split is kept in a file by `{fixed}`: recommended"
        proposal.ask(asked, *offers.values(), "--test-fraction 0.2", "--no-split", about=offers)


def offer_split(proposal: Proposal, name: str) -> str:
    """The options by which a column says which images are for testing; empty if its few values do not part patients."""
    patient = proposal.columns.get("patient")
    cells, person = proposal.frame[name].fillna(""), proposal.frame[patient] if patient is not None else proposal.image
    counts = count_with_empty(proposal.frame[name])
    values = list_frequent(counts)
    if not 1 < len(values) <= _MOST_SPLITS or proposal.has_split or not is_constant(cells, person):
        return ""
    guess = guess_words("split", name, counts)
    meanings = [guess(value)[0] or ("train" if place == 0 else "test") for place, value in enumerate(values)]
    drawn = " --test-fraction 0" if proposal.answers.test_fraction else ""
    return f"{option('--column', f'split={name}')} {offer_codes('split', values, meanings)}{drawn}"


def is_constant(cells: pd.Series, groups: pd.Series) -> bool:
    """Whether each group has one value."""
    return bool((cells.groupby(groups).nunique() <= 1).all())


def are_years(names: Collection[str]) -> bool:
    """Whether all of these are years, which are no centers and no patients."""
    return all(re.fullmatch(r"(?:19|20)\d\d", name) for name in names)


def _may_be_split(proposal: Proposal, name: str) -> bool:
    """Whether a column holds two to four words, most of them of a split, or is called like one, of up to ten values."""
    values = {plain(value) for value in proposal.frame[name].dropna().unique()}
    words = 2 <= len(values) <= 4 and 2 * len(values & _SPLIT_WORDS) > len(values)
    return name_disease(name) is None and (words or (bool(find_called("split", [name])) and 2 <= len(values) <= 10))
