"""The file that a method is submitted with: a zip archive of two parts, checked before anything is computed.

    submission.json     who, which studies and software, costs, digests; for `disclosure: aucs` the AUCs
    scores.csv          hospital, k, seed, image, and a score per disease; no label, no patient

The digests find what a copy or an edit has changed. They are no signature: whoever invents scores can digest them too.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import numpy as np
import pandas as pd
from pydantic import Field

from chestfed.core.checkpoint import write_atomically
from chestfed.core.config import StrictModel
from chestfed.core.errors import ChestfedError
from chestfed.core.provenance import Origin
from chestfed.leaves.leaderboard.benchmark import Benchmark
from chestfed.results.tables.frames import Row

HEADER, SCORES = "submission.json", "scores.csv"
#: Bytes of a part, unpacked: some 500,000 scored images.
LIMIT: Final = 64 << 20

_Count = Annotated[int, Field(ge=0, lt=1 << 60)]
_Word = Annotated[str, Field(max_length=120)]


class SubmittedMethod(StrictModel):
    """Statements of the submitter on the method; shown as they are."""

    name: str = Field(pattern=r"^\w[^\x00-\x1f\x7f]{0,79}$")
    authors: str = Field("", max_length=300)
    url: str = Field("", pattern=r"^(https?://[^\s<>\"']{1,300})?$")
    notes: str = Field("", max_length=2000)


class SubmittedRun(StrictModel):
    """A study with one training seed; `costs` are sums over clients and rounds by K."""

    seed: _Count
    digest: str = Field(pattern=r"^[0-9a-f]{12}$")
    results_version: _Count
    machine: dict[_Word, _Word | int]
    versions: dict[_Word, _Word]
    costs: dict[_Word, dict[_Word, _Count]]


class SubmittedResult(StrictModel):
    """AUCs as submitted: the content of a `result.json`."""

    hospital: str
    seed: _Count
    row: dict[str, Any]


class Header(StrictModel):
    """The content of `submission.json`, without its own digest."""

    format: int = Field(1, ge=1, le=1)
    benchmark: str
    splits: dict[str, str]
    data: Origin
    method: SubmittedMethod
    runs: list[SubmittedRun] = Field(min_length=1, max_length=1000)
    configuration: dict[str, Any]
    results: list[SubmittedResult] = []
    parts: dict[str, str] = {}

    @property
    def seeds(self) -> list[int]:
        """Seeds of the runs, rising."""
        return sorted(run.seed for run in self.runs)


@dataclass(frozen=True, eq=False)
class Submission:
    """A file that was read and checked; `scores` as in `scores.csv`, `rows` the AUCs where images have no scores."""

    file: str
    header: Header
    scores: pd.DataFrame
    rows: dict[tuple[str, int, int], Row]  #: hospital, K and seed -> AUCs

    def align_scores(self, hospital: str, k: int, seed: int, images: Sequence[str]) -> np.ndarray:
        """Scores `[n, J]` of these images, in their order; equal images have equal scores.

        Raises `ChestfedError` (`other images`) if the file has not exactly these.
        """
        rows = self.scores.query("hospital == @hospital and k == @k and seed == @seed").set_index("image")
        if count := len(rows.index.symmetric_difference(pd.Index(images).unique())):
            text = f"K={k}, seed {seed} at {hospital}: {count} images are missing, or not of the split"
            _refuse("other images", text, hospital=hospital, k=k, seed=seed, images=count)
        return rows.loc[list(images)].drop(columns=["hospital", "k", "seed"]).to_numpy(np.float64)


def write_submission(file: Path, header: Header, scores: pd.DataFrame) -> None:
    """Write the archive; the same content gives the same bytes."""
    parts = {} if scores.empty else {SCORES: scores.to_csv(index=False, lineterminator="\n").encode()}
    content = header.model_copy(update={"parts": _digest_parts(parts)}).model_dump(mode="json")
    parts[HEADER] = json.dumps(content | {"sha256": _digest(content)}, indent=1, sort_keys=True).encode()
    if (size := max(map(len, parts.values()))) > LIMIT:
        _refuse("too large", f"{file.name}: {size:,} bytes; at most {LIMIT:,}: submit fewer seeds")

    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, part in sorted(parts.items()):
                archive.writestr(zipfile.ZipInfo(name), part, zipfile.ZIP_DEFLATED)  # of 1980: no date leaves

    write_atomically(file, write)


def read_submission(file: Path, benchmark: Benchmark) -> Submission:
    """Read and check a file, without the benchmark's images.

    Raises `ChestfedError` of the kinds `not a submission`, `too large`, `changed`, `other benchmark`, `other split`,
    `other content`, `other images` and `not a score`.
    """
    parts = _unpack(file, [SCORES, HEADER] if benchmark.verifiable else [HEADER])
    try:
        plain = json.loads(parts.pop(HEADER), parse_constant=_refuse_constant)
        changed = plain.pop("sha256") != _digest(plain) or plain["parts"] != _digest_parts(parts)
        header = None if changed else Header.model_validate_json(json.dumps(plain))
        rows = [(part.hospital, part.seed, Row.from_plain(part.row)) for part in header.results] if header else []
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        _refuse("other content", f"{HEADER} is not as `chestfed submit` writes it: {type(error).__name__}")
    if header is None:
        _refuse("changed", "a digest does not fit: the file was changed after it was written. Submit it again")
    if header.benchmark != benchmark.name:
        _refuse("other benchmark", f"is for {header.benchmark[:60]!r}, not for {benchmark.name}")
    if header.splits != benchmark.digests:
        _refuse("other split", f"its test images are not those of {benchmark.name}")
    if len(set(header.seeds)) < len(header.seeds):
        _refuse("other content", "a training seed is there twice")
    scores = _read_scores(parts[SCORES], benchmark, header) if benchmark.verifiable else pd.DataFrame()
    results = {(hospital, row.k, seed): row for hospital, seed, row in rows}
    if not benchmark.verifiable and (len(results) < len(rows) or not _fit_results(results, benchmark, header)):
        _refuse("other content", "AUCs are missing, there twice, no shares, or of other numbers of images")
    return Submission(file.name, header, scores, results)


def _unpack(file: Path, expected: Sequence[str]) -> dict[str, bytes]:
    """The parts of the archive, none larger than the limit, whatever its directory says."""
    parts: dict[str, bytes] = {}
    try:
        if file.stat().st_size > LIMIT:
            _refuse("too large", f"{file.stat().st_size:,} bytes; at most {LIMIT:,}")
        with zipfile.ZipFile(file) as archive:
            names = sorted(part.filename for part in archive.infolist())
            if names != [*expected]:
                listed = ", ".join(ascii(name)[:60] for name in names[:3])
                _refuse("not a submission", f"holds {listed or 'nothing'}; expected {', '.join(expected)}")
            for name in names:
                with archive.open(name) as content:
                    parts[name] = content.read(LIMIT + 1)
                if len(parts[name]) > LIMIT:
                    _refuse("too large", f"{name} unpacks to more than {LIMIT:,} bytes")
    except ChestfedError:
        raise
    except Exception as error:  # a damaged archive gives errors of zipfile, zlib and struct, and RuntimeError
        _refuse("not a submission", f"cannot be unpacked: {type(error).__name__}")
    return parts


def _read_scores(part: bytes, benchmark: Benchmark, header: Header) -> pd.DataFrame:
    """The rows of `scores.csv`: finite, and none twice, for every hospital, K and seed."""
    kinds: dict[str, type] = {"hospital": str, "k": int, "seed": int, "image": str}
    keys, kinds = [*kinds], kinds | dict.fromkeys(benchmark.diseases, float)
    lines = part.splitlines()
    if lines[:1] != [",".join(kinds).encode()] or any(line.count(b",") != len(kinds) - 1 for line in lines):
        _refuse("other content", f"{SCORES}: its columns are not {', '.join(kinds)}")
    try:
        scores = pd.read_csv(io.BytesIO(part), dtype=kinds, index_col=False, na_filter=False)
    except (ValueError, OverflowError) as error:
        _refuse("not a score", f"{SCORES} cannot be read: {type(error).__name__}")
    if count := int((~np.isfinite(scores[benchmark.diseases])).any(axis=1).sum()):
        _refuse("not a score", f"{SCORES}: {count} rows with NaN or infinity", rows=count)
    if count := int(scores.duplicated(keys).sum()):
        _refuse("other images", f"{SCORES}: {count} rows are there twice", rows=count)
    places = set(scores[keys[:3]].itertuples(index=False, name=None))
    if places != set(product(benchmark.targets, benchmark.k, header.seeds)):
        _refuse("other images", f"{SCORES}: a hospital, K or seed is missing, or is not one of this submission")
    return scores


def _fit_results(rows: dict[tuple[str, int, int], Row], benchmark: Benchmark, header: Header) -> bool:
    """Whether there are AUCs for every hospital, K, seed and disease, each a share, over all images of the split."""
    fit = set(rows) == set(product(benchmark.targets, benchmark.k, header.seeds))
    for (hospital, *_), row in rows.items() if fit else ():
        fit &= [estimate.disease for estimate in row.aucs] == [*benchmark.diseases, "mean"]
        for estimate in row.aucs:
            numbers = (estimate.value, *(estimate.interval or ()))
            fit &= all(0 <= number <= 1 for number in numbers if number is not None)
        for estimate in row.diseases:
            counts = [-1 if count is None else count for count in estimate.counts.values()]
            fit &= min(counts) >= 0 and sum(counts) == benchmark.targets[hospital].images
    return fit


def _digest_parts(parts: dict[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(part).hexdigest() for name, part in parts.items()}


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _refuse_constant(name: str) -> NoReturn:
    """JSON has no NaN and no infinity, but Python reads them."""
    raise ValueError(name)


def _refuse(kind: str, text: str, **fields: object) -> NoReturn:
    raise ChestfedError(text, kind=kind, **fields) from None
