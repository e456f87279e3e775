"""The answer of a study: a question, one sentence, and what it means, for terminal, page, notebook and MLflow."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from chestfed.core.console import plural
from chestfed.evaluation.intervals.interval import Interval
from chestfed.evaluation.training_seeds import ENOUGH_SEEDS, MOST_SEEDS, POWER
from chestfed.results.collect import Results
from chestfed.results.frames import list_records
from chestfed.results.grid import number, p_value, pair, signed

_WORDS: Final = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
#: Significance level of a difference.
_LEVEL: Final = 0.05
#: Methods that the answer names besides the best; of more, the number and the range.
_MOST_NAMED: Final = 6


@dataclass(frozen=True)
class Answer:
    """The last model of a study against its first.

    Parts may be empty. `meaning`: findings recognized among 1,000 patients; `gains`: who gains and who loses;
    `resolution`: what could not be seen.
    """

    question: str
    sentence: str
    meaning: str = ""
    gains: str = ""
    resolution: str = ""

    @property
    def details(self) -> tuple[str, ...]:
        """All but the sentence."""
        return tuple(filter(None, (self.meaning, self.gains, self.resolution)))

    def __str__(self) -> str:
        """Question and sentence."""
        return f"{self.question} {self.sentence}".strip()


def answer_study(results: Results) -> Answer:
    """The answer of one study or of several together."""
    if len(results.view("held_out")):
        return _answer_held_out(results)
    if results.about.get("along"):
        return _answer_along(results)
    means = list_records(results.view("study", disease="mean"))
    by_k = means[0]["model"].startswith("K=")
    gains = list_records(results.gains("study", disease="mean"))
    question = _ask(results) if by_k else "Which method has the highest mean AUC?"
    if not by_k:
        return Answer(question, _rank_methods(results, means), resolution=state_resolution(results))
    if len(means) < 2:
        text = f"Not tested: with {means[0]['model']} alone, the mean AUC is {number(means[0]['auc'])}"
        return Answer(question, f"{text} ({_describe_images(results)}). Train several K: `--k 1,{means[0]['k'] + 1}`.")
    mean = gains[-1] if gains else None
    sentence = _state_gain(results, means[0], means[-1], mean)
    return Answer(question, sentence, _state_meaning(results), state_gains(results), state_resolution(results))


def _answer_along(results: Results) -> Answer:
    """Of studies that differ in one thing: each gain, or without one how the alternatives compare with own data."""
    gains = list_records(results.gains("study", disease="mean"))
    if gains:
        return Answer("How much does joining help?", compare_models(gains), resolution=state_resolution(results))
    rows = [row for row in list_records(results.gains("alternatives", disease="mean")) if row["difference"] is not None]
    texts = []
    for model in dict.fromkeys(row["model"] for row in rows):
        each = [row["difference"] for row in rows if row["model"] == model]
        lower = sum(difference < 0 for difference in each)
        span = f"{signed(min(each))} to {signed(max(each))}"
        texts.append(f"{model} {span}, lower at {lower} of {plural(len(each), 'hospital')}")
    sentence = f"Mean AUC minus that of own data: {'; '.join(texts)}." if texts else "No hospital has alternatives."
    return Answer("What is joining worth to each hospital?", sentence)


def _ask(results: Results) -> str:
    target = results.about.get("target")
    what = "hospitals" if results.about.get("adds_hospitals", True) else "clients"
    return f"Does adding {what} help{f' at {target}' if target else ''}?"


def _state_gain(results: Results, first: dict[str, Any], last: dict[str, Any], mean: dict[str, Any] | None) -> str:
    what = "hospital" if results.about.get("adds_hospitals", True) else "client"
    others = last["k"] - first["k"]
    trained = f"trained with {_count(others)} {'other' if first['k'] == 1 else 'further'} {what}{'s' * (others > 1)}"
    before, after = first["auc"], last["auc"]
    if before is None or after is None:
        return f"Unknown: {trained} the mean AUC is not defined: {last['reason'] or first['reason']}."
    change = f"from {number(before)} to {number(after)}"
    moved = "rises" if after > before else "falls" if after < before else "stays the same,"
    evidence = _describe_evidence(results, mean, after - before)
    return f"{_judge(mean)}: {trained} the mean AUC {moved} {change} ({evidence})."


def _judge(mean: dict[str, Any] | None) -> str:
    """The verdict in a word; a test over training seeds alone says yes or no."""
    if mean is None or mean["low"] is None:
        return "Unknown"
    if mean["low"] <= 0 <= mean["high"]:
        return "Not seen"
    certain = mean["p"] is not None and mean["p"] < _LEVEL and json.loads(mean["of_seeds"] or "{}")
    if mean["low"] > 0:
        return "Yes" if certain else "Probably"
    return "No, it harms" if certain else "Probably not"


def _describe_evidence(results: Results, mean: dict[str, Any] | None, change: float) -> str:
    """Difference with interval, images, patients and training runs."""
    seeds = len(results.seeds)
    difference = signed(change)
    if mean is not None and mean["low"] is not None:
        difference += f" {pair(Interval(mean['low'], mean['high']), 3, signed)}"
    runs = "one training run" if seeds == 1 else f"{_count(seeds)} training runs"
    advice = f"; {_count(ENOUGH_SEEDS)} seeds would tell: `chestfed study --seeds {ENOUGH_SEEDS}`" if seeds == 1 else ""
    if mean is None or mean["low"] is None:
        reason = mean["reason"] if mean is not None else "the differences were not computed"
        return f"{difference} without an interval: {reason}; {_describe_images(results)}, {runs}"
    return f"{difference}, {_describe_images(results)}, {runs}{_count_higher(mean)}{advice}"


def _count_higher(mean: dict[str, Any]) -> str:
    seeds = list(json.loads(mean["of_seeds"] or "{}").values())
    higher = sum(gain is not None and gain > 0 for gain in seeds)
    return f", higher in {higher} of them" if seeds else ""


def _describe_images(results: Results) -> str:
    about = results.about
    return f"{plural(about['images'], 'image')} of {plural(about['patients'], 'patient')}"


def _state_meaning(results: Results) -> str:
    """What the gain means in patients."""
    counts = results.about.get("recognized")
    if not counts:
        return ""
    change = round(counts["model"]) - round(counts["reference"])  # of the numbers as they are shown
    more = f"{abs(change)} {'more' if change > 0 else 'fewer'}" if change else "as many"
    if counts["low"] is not None:
        more += f" [{counts['low']:+.0f}, {counts['high']:+.0f}]".replace("-", "−")
    return (
        f"Per 1,000 patients with one such image each, {counts['findings']:,.0f} findings: {counts['model']:,.0f} "
        f"recognized instead of {counts['reference']:,.0f} ({more}), each disease at a specificity of "
        f"{counts['specificity']:.0%}."
    )


def state_gains(results: Results, view: str = "hospitals") -> str:
    """Who gains and who loses, on each hospital's own held-out patients; empty without a comparison."""
    texts = []
    compared = set(results.gains(view)["model"])
    for model in [name for name in results.view(view)["model"].unique() if name in compared]:
        gains = list_records(results.gains(view, disease="mean", model=model).dropna(subset="difference"))
        if not gains:
            continue
        names = {
            "gain": [row["hospital"] for row in gains if row["low"] is not None and row["low"] > 0],
            "lose": [row["hospital"] for row in gains if row["low"] is not None and row["high"] < 0],
        }
        open_ = [row["hospital"] for row in gains if row["low"] is None or row["low"] <= 0 <= row["high"]]
        parts = [
            f"{_join(diseases)} {verb}{'s' * (len(diseases) == 1)}" for verb, diseases in names.items() if diseases
        ]
        parts += [f"undecided at {_join(open_)}"] if open_ else []
        reference = gains[0]["reference"]
        head = "Who gains" if view == "hospitals" else f"With {model} instead of {reference}"
        texts.append(f"{head}: {'; '.join(parts)}.")
    return " ".join(texts)


def compare_models(rows: Sequence[dict[str, Any]]) -> str:
    """Each model against the first, in one sentence: the means of rows of differences."""
    means = [row for row in rows if row["disease"] == "mean" and row["difference"] is not None]
    if not means:
        return "No mean AUC is defined for both models."
    texts = []
    for row in means:
        interval = "" if row["low"] is None else f" {pair(Interval(row['low'], row['high']), 3, signed)}"
        test = "" if row["p"] is None else f", p {p_value(row['p'])}"
        size = f"{abs(row['difference']):.3f} {'above' if row['difference'] > 0 else 'below'}"
        size = size if row["difference"] else "equal to"
        texts.append(f"{row['model']} is {size} {row['reference']} ({signed(row['difference'])}{interval}{test})")
    first = means[0]
    return f"Mean AUC: {'; '.join(texts)}, on {first['images']:,} images of {first['patients']:,} patients."


def state_resolution(results: Results) -> str:
    """The smallest difference that these patients and seeds could show, and with few seeds what this one needs."""
    return describe_resolution(next(iter(list_records(results.gains("study"))[-1:]), None))


def describe_resolution(mean: dict[str, Any] | None) -> str:
    """The same of the last row of differences."""
    if mean is None or mean["detectable"] is None:
        return ""
    seeds = len(json.loads(mean["of_seeds"] or "{}"))
    if mean["detectable"] > max(mean["auc_reference"], 1 - mean["auc_reference"]):
        text = f"With {_count(seeds)} training seeds no difference, however large, would be seen ({POWER:.0%} power)"
    else:
        text = f"A difference below {mean['detectable']:.3f} would probably not be seen ({POWER:.0%} power)"
    if not 1 < seeds < ENOUGH_SEEDS:
        return f"{text}."
    size = f"{abs(mean['difference']):.3f}, as here, needs"
    if mean["seeds_needed"] is None:
        return f"{text}; {size} more test patients: not even {MOST_SEEDS:,} seeds would show it."
    return f"{text}; {size} {mean['seeds_needed']:,} seeds."


def _rank_methods(results: Results, means: list[dict[str, Any]]) -> str:
    defined = sorted((row for row in means if row["auc"] is not None), key=lambda row: -row["auc"])
    if not defined:
        return "None: the mean AUC of no method is defined."
    best, *rest = defined
    named = rest if len(rest) <= _MOST_NAMED else rest[: _MOST_NAMED - 1]
    others = ", ".join(f"{row['model']} {number(row['auc'])}" for row in named)
    if unnamed := rest[len(named) :]:
        others += f", {len(unnamed)} others {number(unnamed[-1]['auc'])} to {number(unnamed[0]['auc'])}"
    text = f"{best['model']}, {number(best['auc'])}{'; ' * bool(rest)}{others} ({_describe_images(results)}"
    gains = list_records(results.gains("study", disease="mean"))
    if not gains:
        return f"{text}, one training run each, no test: `--seeds {ENOUGH_SEEDS}` would test it)."
    reference = gains[0]["reference"]
    clear = [row["model"] for row in gains if row["p_holm"] is not None and row["p_holm"] < _LEVEL]
    names = _join(clear) if len(clear) <= _MOST_NAMED else f"{len(clear)} methods"
    tested = f"against {reference} {names} differ{'s' * (len(clear) == 1)}" if clear else "no difference is clear"
    return f"{text}, {_count(len(results.seeds))} training runs each; {tested} after Holm's correction)."


def _answer_held_out(results: Results) -> Answer:
    rows = list_records(results.view("held_out", disease="mean", takes_part=False))
    texts = [f"{row['model']} {number(row['auc'])}" for row in rows]
    question = "How good is a model at a hospital that it was not trained at?"
    return Answer(question, f"Mean AUC at each site when it is held out: {', '.join(texts)}.")


def _count(value: int) -> str:
    return _WORDS[value] if value < len(_WORDS) else f"{value:,}"


def _join(names: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
