"""The answer of a study: a question, one sentence, and what it means, for terminal, page, notebook and MLflow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd

from chestfed.core.console import plural
from chestfed.core.diseases import format_title
from chestfed.results.evaluation.joining.planning import SEED_DEVIATION
from chestfed.results.evaluation.labeled import LEAST_PATIENTS
from chestfed.results.evaluation.training_seeds import POWER
from chestfed.results.tables.clients.attendance import count_added, describe_gaps, find_attendance
from chestfed.results.tables.columns import COMMON, OWN_DATA, DifferenceRow, EstimateRow
from chestfed.results.tables.frames import Results, get_interval, read_few_at, read_seeds
from chestfed.results.tables.grid import count_images, number, p_value, pair, signed
from chestfed.results.tables.presentations import find_presentation

_WORDS: Final = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
#: Significance level of a difference.
_LEVEL: Final = 0.05
#: More training seeds than these are not advised.
_MOST_SEEDS: Final = 20
#: How synthetic hospitals get AUCs.
_LARGER_SAMPLES: Final = (
    "with `--set samples.size=default`, in a federation also `chestfed samples` without `--size`, there are enough "
    "patients"
)
#: Methods that the answer names besides the best; of more, the number and the range.
_MOST_NAMED: Final = 6
#: The AUC of a score without information.
_CHANCE: Final = 0.5
#: A seed near chance broke down if there are so many and their median AUC is this; else all may have learned little.
_COMPARABLE, _LEARNED = 3, 0.6


@dataclass(frozen=True)
class Answer:
    """The last model of a study against its first.

    Parts may be empty. `meaning`: findings recognized among 1,000 patients; `calibration`: where joining harms it;
    `gains`: who gains and who loses; `resolution`: what could not be seen; `advice`: what would decide, `seeds` of them
    or None.
    """

    question: str
    sentence: str
    meaning: str = ""
    calibration: str = ""
    gains: str = ""
    resolution: str = ""
    advice: str = ""
    seeds: int | None = None

    @property
    def details(self) -> tuple[str, ...]:
        """All but the sentence."""
        parts = (self.meaning, self.calibration, self.gains, self.resolution, self.advice)
        return tuple(filter(None, parts))

    def __str__(self) -> str:
        """Question and sentence."""
        return f"{self.question} {self.sentence}".strip()


def answer_study(results: Results) -> Answer:
    """The answer of one study or of several together."""
    if own := find_presentation(results):
        return own.answer(results)
    if results.in_groups:
        return _answer_along(results)
    means = results.list_estimates("study", disease="mean")
    by_k = results.by_k
    gains = results.list_differences("study", disease="mean")
    question = _ask(results) if by_k else "Which method has the highest mean AUC?"
    if not by_k:
        advised = _advise(results, find_decisive(gains))
        return Answer(question, _rank_methods(results, means), resolution=state_resolution(results), **advised)
    if len(means) < 2:
        text = f"Not tested: with {means[0]['model']} alone, the mean AUC is {number(means[0]['auc'])}"
        advice = f"Train several K: `--k 1,{max(means[0]['k'], 2)}`"
        return Answer(question, f"{text} ({_describe_images(results)}). {advice}.")
    mean = gains[-1] if gains else None
    sentence = _state_gain(results, means[0], means[-1], mean)
    return Answer(
        question,
        sentence,
        _state_meaning(results),
        _state_calibration(results),
        state_gains(results),
        state_resolution(results),
        **_advise(results, mean),
    )


def _answer_along(results: Results) -> Answer:
    """State each gain of studies differing in one thing, or without one how the alternatives compare with own data."""
    gains = results.list_differences("study", disease="mean")
    if gains:
        text = compare_models(gains, patients_known=results.about.get("has_patients", True))
        return Answer("How much does joining help?", text, resolution=state_resolution(results))
    by_model: dict[str, list[float]] = {}
    for row in results.list_differences("alternatives", disease="mean"):
        if row["difference"] is not None:
            by_model.setdefault(row["model"], []).append(row["difference"])
    texts = []
    for model, each in by_model.items():
        lower = sum(difference < 0 for difference in each)
        span = f"{signed(min(each))} to {signed(max(each))}"
        texts.append(f"{model} {span}, lower at {lower} of {plural(len(each), 'hospital')}")
    sentence = f"Mean AUC minus that of own data: {'; '.join(texts)}." if texts else "No hospital has alternatives."
    return Answer("What is joining worth to each hospital?", sentence)


def _ask(results: Results) -> str:
    target = results.about.get("target")
    what = "hospitals" if results.about.get("adds_hospitals", True) else "clients"
    return f"Does adding {what} help{f' at {target}' if target else ''}?"


def _state_gain(results: Results, first: EstimateRow, last: EstimateRow, mean: DifferenceRow | None) -> str:
    what = "hospital" if results.about.get("adds_hospitals", True) else "client"
    others, ends = count_added(results, first["k"], last["k"]), find_attendance(results)
    trained = f"trained with {_count(others)} {'other' if first['k'] == 1 else 'further'} {what}{'s' * (others > 1)}"
    trained += f" ({gaps})" if last["k"] in ends and (gaps := describe_gaps(ends[last["k"]])) else ""
    before, after = first["auc"], last["auc"]
    if before is None or after is None:
        size = results.about.get("samples_size", "default")
        small = "" if size == "default" else f" These synthetic hospitals are of size {size}: {_LARGER_SAMPLES}."
        return f"Unknown: {trained} the mean AUC is not defined: {last['reason'] or first['reason']}.{small}"
    change = f"from {number(before)} to {number(after)}"
    moved = "rises" if after > before else "falls" if after < before else "stays the same,"
    evidence = _describe_evidence(results, mean, after - before)
    turns = ", ".join(format_title(name) for name in (mean["turns_without"] if mean else "").split(", ") if name)
    turn = f" The verdict turns if {turns.replace(', ', ' or ')} is left out." if turns else ""
    few = " It takes more test patients, if the hospital has them: a dry run says how." if list_few(results) else ""
    return f"{_judge(mean)}: {trained} the mean AUC {moved} {change} ({evidence}).{turn}{few}"


def _judge(mean: DifferenceRow | None) -> str:
    """The verdict in a word; a test over training seeds alone says yes or no."""
    if mean is None or (interval := get_interval(mean)) is None:
        return "Unknown"
    if interval.low <= 0 <= interval.high:
        return "No significant difference"
    certain = mean["p"] is not None and mean["p"] < _LEVEL and read_seeds(mean) and not mean["turns_without"]
    if interval.low > 0:
        return "Yes" if certain else "Probably"
    return "No, it harms" if certain else "Probably not"


def _describe_evidence(results: Results, mean: DifferenceRow | None, change: float) -> str:
    """Difference with interval, images, patients and training runs."""
    difference, runs = signed(change), describe_runs(results)
    if mean is None or mean["low"] is None:
        reason = mean["reason"] if mean is not None else "the differences were not computed"
        return f"{difference} without an interval: {reason}; {_describe_images(results)}, {runs}"
    interval = pair(get_interval(mean), 3, signed)
    return f"{difference} {interval}, {_describe_images(results)}, {runs}{_count_higher(mean)}"


def _count_higher(mean: DifferenceRow) -> str:
    each = read_seeds(mean).values()
    higher = sum(gain is not None and gain > 0 for gain in each)
    whole = f"{len(each)} runs" if mean["splits"] else "them"
    return f", higher in {higher} of {whole}" if each else ""


def describe_runs(results: Results) -> str:
    """The trainings of each model, in words."""
    seeds, splits = len(results.seeds), len(results.splits)
    if splits > 1:
        each = f" and {_count(seeds)} training seeds in each" if seeds > 1 else ""
        return f"over {_count(splits)} splits of patients{each}"
    return "one training run" if seeds == 1 else f"{_count(seeds)} training runs"


def _describe_images(results: Results) -> str:
    """Images and patients, and the diseases that stay out of the mean because they have too few."""
    about = results.about
    text = count_images(about["images"], about["patients"], patients_known=about.get("has_patients", True))
    few = list_few(results)
    return f"{text}, without {'; without '.join(few)}" if few else text


def list_few(results: Results) -> list[str]:
    """The diseases with an AUC that stay out of every mean, with what they have too few of."""
    rows = results.list_estimates("study")
    few = [row for row in rows if row["in_mean"] is False and row["auc"] is not None and row["disease"] != "mean"]
    return list(dict.fromkeys(map(describe_few, few)))


def has_labels(row: EstimateRow) -> bool:
    """Whether any image has a label of the disease, or it is not known."""
    return (row["positives"], row["negatives"]) != (0, 0)


def describe_few(row: EstimateRow) -> str:
    """A disease with what it has too few of: `Edema (5 patients with it)`."""
    if not has_labels(row):
        return f"{format_title(row['disease'])} (not labeled)"
    where = "too few patients at every hospital" if read_few_at(row) else "too few patients"
    words = _describe_counts(row["positive_patients"], row["negative_patients"]) or where
    return f"{format_title(row['disease'])} ({words})"


def list_few_at(results: Results) -> dict[str, list[str]]:
    """Hospital -> the diseases in whose AUC, a mean over hospitals, it does not count, with what it has too few of."""
    texts: dict[str, dict[str, str]] = {}
    for row in results.list_estimates("study"):
        for place, counts in read_few_at(row).items():
            words = _describe_counts(*counts) if any(counts) else "not labeled"
            texts.setdefault(place, {})[row["disease"]] = f"{format_title(row['disease'])} ({words})"
    return {place: [*of_place.values()] for place, of_place in texts.items()}


def _describe_counts(positive: int | None, negative: int | None) -> str:
    counts = {"with it": positive, "without it": negative}
    least = [f"{plural(n, 'patient')} {words}" for words, n in counts.items() if n is not None and n < LEAST_PATIENTS]
    return " and ".join(least)


def _advise(results: Results, mean: DifferenceRow | None) -> dict[str, Any]:
    """Advise on a difference that training seeds and patients leave open: `advice` and `seeds` of an answer."""
    if mean is None or not mean["difference"] or mean["low"] is None:
        return {}
    seeds, needed, times = len(read_seeds(mean)) or 1, mean["seeds_needed"], mean["times_needed"]
    if seeds > 1 and mean["p"] is not None and mean["p"] < _LEVEL:
        return {}
    several = not results.by_k and len(results.list_differences("study", disease="mean")) > 1
    which = f"that of {mean['model']} and {mean['reference']}" if several else "this"
    size = f"A difference as large as {which}, {abs(mean['difference']):.3f},"
    assumed = f", if its standard deviation over seeds is {SEED_DEVIATION:g}" if seeds == 1 else ""
    known = results.about.get("has_patients", True)
    tested = "patients" if known else "images"
    if needed is not None and times is None:
        if needed <= seeds:
            return {}
        text = f"{size} is seen with {needed:,} training seeds ({POWER:.0%} power{assumed})."
        if needed > _MOST_SEEDS:
            return {"advice": f"{text} With more test {tested} fewer are enough."}
        return {"advice": text, "seeds": needed}
    if times is None:
        return {}
    size = f"a{size[1:]}"
    text = f"No number of training seeds shows {size} on these test {tested} with {POWER:.0%} power"
    if needed is not None:
        count = mean["patients"] if known else mean["images"]
        more = f"{times * count:,.0f} {tested} in place of {count:,}"
        text += f": it takes {more}, and {needed:,} seeds{assumed}"
    return {"advice": f"{text}."}


def _state_calibration(results: Results) -> str:
    """Where joining makes probabilities worse by more than their noise; empty where it does not."""
    worse = []
    for measure in results.about.get("calibration") or ():
        if measure["low"] is not None and measure["low"] > 0:
            change = f"{number(measure['reference'])} to {number(measure['model'])}"
            interval = f"[{signed(measure['low'])}, {signed(measure['high'] or 0.0)}]"
            worse.append(f"{measure['name']} rises from {change} ({interval})")
    return f"The probabilities get worse: the mean {' and the '.join(worse)}." if worse else ""


def _state_meaning(results: Results) -> str:
    """State the gain in patients."""
    counts = results.about.get("recognized")
    if not counts:
        return ""
    change = round(counts["model"]) - round(counts["reference"])  # of the numbers as they are shown
    more = f"{abs(change)} {'more' if change > 0 else 'fewer'}" if change else "as many"
    if counts["low"] is not None and counts["high"] is not None:
        more += f" [{counts['low']:+.0f}, {counts['high']:+.0f}]".replace("-", "−")
    return (
        f"Per 1,000 patients with one such image each, {counts['findings']:,.0f} findings: {counts['model']:,.0f} "
        f"detected instead of {counts['reference']:,.0f} ({more}), each disease at a specificity of "
        f"{counts['specificity']:.0%}."
    )


def state_gains(results: Results, view: str = "") -> str:
    """Who gains and who loses against its own data, on each hospital's own held-out patients.

    Where own data was not trained, whose AUC rises or falls between the first model and the last: what the hospital
    would have without the others is then not known, but for a target that was alone at K=1. Empty without a comparison,
    and for the view `hospitals` where own data was trained.
    """
    told = find_gain_view(results)
    view, texts = view or told, list[str]()
    if view == "hospitals" != told:
        return ""
    compared = set(results.gains(view)["model"])
    for model in [name for name in results.view(view)["model"].unique() if name in compared]:
        rows = results.list_differences(view, disease="mean", model=model)
        gains = [row for row in rows if row["difference"] is not None]
        if not gains:
            continue
        reference = gains[0]["reference"]
        known = all(row["reference_kind"] == OWN_DATA for row in gains)
        verbs = ("gain", "lose") if known else ("rise", "fall")
        names: dict[str, list[str]] = {verbs[0]: [], verbs[1]: [], "": []}
        for row in gains:
            low, high = get_interval(row) or (0.0, 0.0)
            names[verbs[0] if low > 0 else verbs[1] if high < 0 else ""].append(row["place"])
        unclear = names.pop("")
        if known:
            parts = [f"{_join(part)} {verb}{'s' * (len(part) == 1)}" for verb, part in names.items() if part]
            head = (
                "Who gains over its own data" if gains[0]["kind"] == COMMON else f"With {model} instead of {reference}"
            )
        else:
            parts = [f"it {verb}s at {_join(part)}" for verb, part in names.items() if part]
            head = f"AUC before and after ({reference}, {model}), without a reference"
        parts += [f"inconclusive at {_join(unclear)}"] if unclear else []
        texts.append(f"{head}: {'; '.join(parts)}.")
    return " ".join(texts)


def find_gain_view(results: Results) -> str:
    """The view that says who gains: `alternatives` where own data was trained, else `hospitals`, before and after."""
    gains = results.gains("alternatives", reference_kind=OWN_DATA, kind=COMMON)
    return "alternatives" if len(gains) else "hospitals"


def compare_models(rows: Sequence[DifferenceRow], *, patients_known: bool = True) -> str:
    """Each model against the first, in one sentence: the means of rows of differences."""
    means = [row for row in rows if row["disease"] == "mean" and row["difference"] is not None]
    if not means:
        return "No mean AUC is defined for both models."
    texts = []
    for row in means:
        difference = row["difference"] or 0.0
        if not difference and row["low"] == row["high"] == 0:
            texts.append(f"{row['model']} gives the same scores as {row['reference']} (the same model twice?)")
            continue
        interval = f" {pair(get_interval(row), 3, signed)}".rstrip()
        test = "" if row["p"] is None else f", p {p_value(row['p'])}"
        size = f"{abs(difference):.3f} {'above' if difference > 0 else 'below'}" if difference else "equal to"
        texts.append(f"{row['model']} is {size} {row['reference']} ({signed(difference)}{interval}{test})")
    first = means[0]
    counted = count_images(first["images"], first["patients"], patients_known=patients_known)
    return f"Mean AUC: {'; '.join(texts)}, on {counted}."


def state_resolution(results: Results) -> str:
    """The smallest difference that these patients and seeds could show: of several methods, of the decisive pair."""
    gains = results.list_differences("study", disease="mean")
    if results.in_groups or not results.by_k:
        return describe_resolution(find_decisive(gains), named=len(gains) > 1)
    return describe_resolution(gains[-1] if gains else None)


def find_decisive(gains: Sequence[DifferenceRow]) -> DifferenceRow | None:
    """The difference that decides which method is the best: that of the best method, or of the second best if the
    reference is the best.
    """
    return max(gains, key=lambda row: -1.0 if row["auc_model"] is None else row["auc_model"], default=None)


def describe_resolution(mean: DifferenceRow | None, *, named: bool = False) -> str:
    """The smallest difference that the patients and seeds of a row of differences could show; `named`: of which."""
    if mean is None or not mean["detectable"]:
        return ""
    seeds, reference = len(read_seeds(mean)), mean["auc_reference"] or 0.0
    which = f" between {mean['model']} and {mean['reference']}" if named else ""
    if mean["detectable"] > max(reference, 1 - reference):
        runs = "runs" if mean["splits"] else "seeds"
        text = f"With {_count(seeds)} training {runs} no difference{which}, however large, would be seen"
        return f"{text} ({POWER:.0%} power)."
    return f"A difference{which} below {mean['detectable']:.3f} would probably not be seen ({POWER:.0%} power)."


def _list_sides(clear: Mapping[str, float], reference: str) -> Iterator[str]:
    """Methods above the reference, and those below it."""
    for side, sign in (("higher", 1), ("lower", -1)):
        names = [name for name, difference in clear.items() if difference * sign > 0]
        if names:
            yield f"{side} than {reference}: {_join(names) if len(names) <= _MOST_NAMED else f'{len(names)} methods'}"


def _rank_methods(results: Results, means: list[EstimateRow]) -> str:
    """The best method, or that none is clearly the best, and the AUC of each."""
    defined = sorted((row for row in means if row["auc"] is not None), key=lambda row: -(row["auc"] or 0.0))
    if not defined:
        return f"None: the mean AUC of no method is defined: {means[0]['reason']}."
    gains = results.list_differences("study", disease="mean")
    clear = {row["model"]: row["difference"] or 0.0 for row in gains if (row["p_holm"] or 1.0) < _LEVEL}
    best, reference = defined[0]["model"], gains[0]["reference"] if gains else ""
    wins = clear.get(best, 0.0) > 0 or (best == reference and len(clear) == len(defined) - 1 > 0)
    named = defined if len(defined) <= _MOST_NAMED + 1 else defined[:_MOST_NAMED]
    texts = [f"{row['model']} {number(row['auc'])}" for row in named]
    if unnamed := defined[len(named) :]:
        texts.append(f"{len(unnamed)} others {number(unnamed[-1]['auc'])} to {number(unnamed[0]['auc'])}")
    order = (
        f"{best}, {number(defined[0]['auc'])}; {', '.join(texts[1:])}" if wins else f"None clearly: {', '.join(texts)}"
    )
    runs, seeds = f"{_describe_images(results)}, {describe_runs(results)} each", len(results.seeds)
    runs = runs.removesuffix(" each") if len(results.splits) > 1 else runs
    if clear:
        tested = f"after Holm's correction {', '.join(_list_sides(clear, str(reference)))}"
    elif not gains:
        tested = "no test: it takes several training seeds, `--seeds`" if seeds == 1 else "no test"
    elif all(row["p_holm"] is None for row in gains):
        tested = f"no test: {gains[0]['reason']}"
    else:
        tested = "no difference is clear after Holm's correction"
    return f"{order} ({runs}; {tested}).{_state_broken(results)}"


def _state_broken(results: Results) -> str:
    """Methods of which training seeds broke down."""
    each = summarize_seeds(results)
    broken = [f"{name} in {row['broken']:.0f} of {row['seeds']:.0f}" for name, row in each.iterrows() if row["broken"]]
    if not broken:
        return ""
    text = f"Training seems to have broken down with {', '.join(broken)} seeds, whose AUC is nearer to 0.5 than to"
    return f" {text} the median: a smaller step size may be safer."


def summarize_seeds(results: Results) -> pd.DataFrame:
    """The mean AUC of each model over its training seeds: `median`, `seeds`, and `broken`, the seeds that broke down.

    These are below the middle between chance and the median: one of ten that falls to 0.6 where the others have 0.87.
    None is where the others show no better training: of fewer than three seeds, or with a median below `_LEARNED`.
    Empty of one seed.
    """
    rows = results.view_counted("seeds")
    aucs = rows.groupby(["model", *results.draws], sort=False)["auc"].mean().dropna()
    if aucs.empty:
        return pd.DataFrame(columns=["median", "seeds", "broken"])
    median = aucs.groupby(level="model", sort=False).median()
    low = aucs < (median.reindex(aucs.index.get_level_values("model")).to_numpy() + _CHANCE) / 2
    parts = low.groupby(level="model", sort=False)
    broken = parts.sum().where((median >= _LEARNED) & (parts.size() >= _COMPARABLE), 0)
    return pd.DataFrame({"median": median, "seeds": parts.size(), "broken": broken})


def _count(value: int) -> str:
    return _WORDS[value] if value < len(_WORDS) else f"{value:,}"


def _join(names: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


# ---- MLflow ------------------------------------------------------------------------------------------------------


#: Decimals of a number in MLflow; `table.csv` has all of them.
METRIC_DIGITS: Final = 4


def list_metrics(results: Results) -> dict[str, float | None]:
    """The numbers for MLflow: gain of the last model over the first, mean AUC of each, and both at every hospital.

    They are rounded. MLflow's list of runs sorts its columns by name: gain, its interval and the AUCs are named so that
    they stand there in this order.
    """
    values: dict[str, float | None] = {}
    gains = results.list_differences("study")
    last = [gain for gain in gains if gain["model"] == gains[-1]["model"]]
    for gain in last:
        if gain["disease"] == "mean":
            values |= {"gain": gain["difference"], "gain_from": gain["low"], "gain_to": gain["high"]}
    for row in results.list_estimates("study", disease="mean"):
        name = _name_metric(row)
        values |= {f"mean_auc/{name}": row["auc"]} | ({f"mean_auc_sd/{name}": row["sd"]} if results.repeats else {})
    for gain in last:
        values |= {"p_value": gain["p"]} if gain["disease"] == "mean" else {}
        if gain["disease"] != "mean":
            values[f"gain_per_disease/{gain['disease']}"] = gain["difference"]
    at = results.list_estimates("hospitals", disease="mean")
    values |= {f"auc_at/{row['place']}": row["auc"] for row in at if row["model"] == at[-1]["model"]}
    for change in results.list_differences("hospitals", disease="mean"):
        values[f"change_at/{change['place']}"] = change["difference"]
    for gain in results.list_differences("alternatives", disease="mean"):
        values[f"over_own_data/{gain['place']}/{_name_metric(gain)}"] = gain["difference"]
    return {name: None if value is None else round(value, METRIC_DIGITS) for name, value in values.items()}


def _name_metric(row: EstimateRow | DifferenceRow) -> str:
    """The model of a row, without the sign that MLflow does not allow in names."""
    return row["model"].replace("=", "")
