"""The answer of a study: a question, one sentence, and what it means, for terminal, page, notebook and MLflow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from chestfed.core.console import plural
from chestfed.results.evaluation.training_seeds import ENOUGH_SEEDS, MOST_SEEDS, POWER
from chestfed.results.tables.frames import DifferenceRow, EstimateRow, Results, get_interval, group_rows, read_seeds
from chestfed.results.tables.grid import number, p_value, pair, signed
from chestfed.results.tables.sentences import average_seen

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
    means = results.list_estimates("study", disease="mean")
    by_k = results.by_k
    gains = results.list_differences("study", disease="mean")
    question = _ask(results) if by_k else "Which method has the highest mean AUC?"
    if not by_k:
        return Answer(question, _rank_methods(results, means), resolution=state_resolution(results))
    if len(means) < 2:
        text = f"Not tested: with {means[0]['model']} alone, the mean AUC is {number(means[0]['auc'])}"
        advice = f"Train several K: `--k 1,{max(means[0]['k'], 2)}`"
        return Answer(question, f"{text} ({_describe_images(results)}). {advice}.")
    mean = gains[-1] if gains else None
    sentence = _state_gain(results, means[0], means[-1], mean)
    return Answer(question, sentence, _state_meaning(results), state_gains(results), state_resolution(results))


def _answer_along(results: Results) -> Answer:
    """Of studies that differ in one thing: each gain, or without one how the alternatives compare with own data."""
    gains = results.list_differences("study", disease="mean")
    if gains:
        return Answer("How much does joining help?", compare_models(gains), resolution=state_resolution(results))
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
    others = last["k"] - first["k"]
    trained = f"trained with {_count(others)} {'other' if first['k'] == 1 else 'further'} {what}{'s' * (others > 1)}"
    before, after = first["auc"], last["auc"]
    if before is None or after is None:
        return f"Unknown: {trained} the mean AUC is not defined: {last['reason'] or first['reason']}."
    change = f"from {number(before)} to {number(after)}"
    moved = "rises" if after > before else "falls" if after < before else "stays the same,"
    evidence = _describe_evidence(results, mean, after - before)
    return f"{_judge(mean)}: {trained} the mean AUC {moved} {change} ({evidence})."


def _judge(mean: DifferenceRow | None) -> str:
    """The verdict in a word; a test over training seeds alone says yes or no."""
    if mean is None or (interval := get_interval(mean)) is None:
        return "Unknown"
    if interval.low <= 0 <= interval.high:
        return "Not seen"
    certain = mean["p"] is not None and mean["p"] < _LEVEL and read_seeds(mean)
    if interval.low > 0:
        return "Yes" if certain else "Probably"
    return "No, it harms" if certain else "Probably not"


def _describe_evidence(results: Results, mean: DifferenceRow | None, change: float) -> str:
    """Difference with interval, images, patients and training runs."""
    seeds = len(results.seeds)
    difference = signed(change)
    runs = "one training run" if seeds == 1 else f"{_count(seeds)} training runs"
    advice = f"; {_count(ENOUGH_SEEDS)} seeds would tell: `chestfed study --seeds {ENOUGH_SEEDS}`" if seeds == 1 else ""
    if mean is None or mean["low"] is None:
        reason = mean["reason"] if mean is not None else "the differences were not computed"
        return f"{difference} without an interval: {reason}; {_describe_images(results)}, {runs}"
    interval = pair(get_interval(mean), 3, signed)
    return f"{difference} {interval}, {_describe_images(results)}, {runs}{_count_higher(mean)}{advice}"


def _count_higher(mean: DifferenceRow) -> str:
    seeds = read_seeds(mean).values()
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
    if counts["low"] is not None and counts["high"] is not None:
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
        rows = results.list_differences(view, disease="mean", model=model)
        gains = [row for row in rows if row["difference"] is not None]
        if not gains:
            continue
        names: dict[str, list[str]] = {"gain": [], "lose": [], "": []}
        for row in gains:
            low, high = get_interval(row) or (0.0, 0.0)
            names["gain" if low > 0 else "lose" if high < 0 else ""].append(row["hospital"])
        undecided = names.pop("")
        parts = [f"{_join(part)} {verb}{'s' * (len(part) == 1)}" for verb, part in names.items() if part]
        parts += [f"undecided at {_join(undecided)}"] if undecided else []
        reference = gains[0]["reference"]
        head = "Who gains" if view == "hospitals" else f"With {model} instead of {reference}"
        texts.append(f"{head}: {'; '.join(parts)}.")
    return " ".join(texts)


def compare_models(rows: Sequence[DifferenceRow]) -> str:
    """Each model against the first, in one sentence: the means of rows of differences."""
    means = [row for row in rows if row["disease"] == "mean" and row["difference"] is not None]
    if not means:
        return "No mean AUC is defined for both models."
    texts = []
    for row in means:
        difference = row["difference"] or 0.0
        interval = f" {pair(get_interval(row), 3, signed)}".rstrip()
        test = "" if row["p"] is None else f", p {p_value(row['p'])}"
        size = f"{abs(difference):.3f} {'above' if difference > 0 else 'below'}" if difference else "equal to"
        texts.append(f"{row['model']} is {size} {row['reference']} ({signed(difference)}{interval}{test})")
    first = means[0]
    return f"Mean AUC: {'; '.join(texts)}, on {first['images']:,} images of {first['patients']:,} patients."


def state_resolution(results: Results) -> str:
    """The smallest difference that these patients and seeds could show, and with few seeds what this one needs."""
    return describe_resolution(next(iter(results.list_differences("study")[-1:]), None))


def describe_resolution(mean: DifferenceRow | None) -> str:
    """The same of the last row of differences."""
    if mean is None or mean["detectable"] is None:
        return ""
    seeds, reference = len(read_seeds(mean)), mean["auc_reference"] or 0.0
    if mean["detectable"] > max(reference, 1 - reference):
        text = f"With {_count(seeds)} training seeds no difference, however large, would be seen ({POWER:.0%} power)"
    else:
        text = f"A difference below {mean['detectable']:.3f} would probably not be seen ({POWER:.0%} power)"
    if not 1 < seeds < ENOUGH_SEEDS:
        return f"{text}."
    size = f"{abs(mean['difference'] or 0.0):.3f}, as here, needs"
    if mean["seeds_needed"] is None:
        return f"{text}; {size} more test patients: not even {MOST_SEEDS:,} seeds would show it."
    return f"{text}; {size} {mean['seeds_needed']:,} seeds."


def _rank_methods(results: Results, means: list[EstimateRow]) -> str:
    defined = sorted((row for row in means if row["auc"] is not None), key=lambda row: -(row["auc"] or 0.0))
    if not defined:
        return "None: the mean AUC of no method is defined."
    best, *rest = defined
    named = rest if len(rest) <= _MOST_NAMED else rest[: _MOST_NAMED - 1]
    others = ", ".join(f"{row['model']} {number(row['auc'])}" for row in named)
    if unnamed := rest[len(named) :]:
        others += f", {len(unnamed)} others {number(unnamed[-1]['auc'])} to {number(unnamed[0]['auc'])}"
    text = f"{best['model']}, {number(best['auc'])}{'; ' * bool(rest)}{others} ({_describe_images(results)}"
    gains = results.list_differences("study", disease="mean")
    if not gains:
        each = " each" if rest else ""
        if len(results.seeds) > 1:
            return f"{text}, {_count(len(results.seeds))} training runs{each})."
        return f"{text}, one training run{each}, no test: `--seeds {ENOUGH_SEEDS}` would test it)."
    reference = gains[0]["reference"]
    if all(row["p_holm"] is None for row in gains):
        return f"{text}, {_count(len(results.seeds))} training runs each; no test: {gains[0]['reason']})."
    clear = [row["model"] for row in gains if row["p_holm"] is not None and row["p_holm"] < _LEVEL]
    names = _join(clear) if len(clear) <= _MOST_NAMED else f"{len(clear)} methods"
    tested = f"against {reference} {names} differ{'s' * (len(clear) == 1)}" if clear else "no difference is clear"
    return f"{text}, {_count(len(results.seeds))} training runs each; {tested} after Holm's correction)."


def _answer_held_out(results: Results) -> Answer:
    rows = results.list_estimates("held_out", disease="mean", takes_part=False)
    texts = [f"{row['model']} {number(row['auc'])}" for row in rows]
    question = "How good is a model at a hospital that it was not trained at?"
    return Answer(question, f"Mean AUC at each site when it is held out: {', '.join(texts)}.")


def _count(value: int) -> str:
    return _WORDS[value] if value < len(_WORDS) else f"{value:,}"


def _join(names: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


# ---- MLflow ------------------------------------------------------------------------------------------------------


def list_metrics(results: Results) -> dict[str, float | None]:
    """The numbers for MLflow: mean AUC of each model, its gain over the first, and both at every hospital."""
    values: dict[str, float | None] = {}
    for row in results.list_estimates("study", disease="mean"):
        name = row["model"].replace("=", "")
        values |= {f"auc/{name}": row["auc"]} | ({f"auc_sd/{name}": row["sd"]} if len(results.seeds) > 1 else {})
    gains = results.list_differences("study")
    for gain in (gain for gain in gains if gain["model"] == gains[-1]["model"]):
        if gain["disease"] == "mean":
            values |= {"gain/low": gain["low"], "gain/high": gain["high"], "gain/p": gain["p"]}
            values["gain/mean"] = gain["difference"]
        else:
            values[f"gain_per_disease/{gain['disease']}"] = gain["difference"]
    at = results.list_estimates("hospitals", disease="mean")
    values |= {f"auc_at/{row['hospital']}": row["auc"] for row in at if row["model"] == at[-1]["model"]}
    for gain in results.list_differences("hospitals", disease="mean"):
        values[f"gain_at/{gain['hospital']}"] = gain["difference"]
    for gain in results.list_differences("alternatives", disease="mean"):
        values[f"over_own_data/{gain['hospital']}/{gain['model'].replace('=', '')}"] = gain["difference"]
    return values


def list_held_out_metrics(results: Results) -> dict[str, float | None]:
    """The numbers for MLflow: mean AUC of each held-out site, and of its model on the sites that it was trained on."""
    values: dict[str, float | None] = {}
    for rows in group_rows(results.list_estimates("held_out"), "model"):
        held_out_row = next(row for row in rows if not row["takes_part"] and row["disease"] == "mean")
        values[f"held_out_auc_mean_{held_out_row['model']}"] = held_out_row["auc"]
        values[f"trained_on_auc_mean_{held_out_row['model']}"] = (average_seen(rows) or [None])[-1]
    return values
