"""A study that a hospital takes part in, and what its questions say of stage 2."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chestfed.core.plugins.loading import codes_in_use
from chestfed.learning.engines.host import Host
from chestfed.learning.engines.messages.requests import Request
from chestfed.learning.engines.messages.shapes import Shapes
from chestfed.learning.engines.messages.wire import LARGEST_COUNT, peek, unpack
from chestfed.learning.models import FlatModule
from chestfed.leaves.federation import handshake
from chestfed.leaves.federation.hospital.local import OwnData
from chestfed.leaves.federation.hospital.plan import History
from chestfed.leaves.federation.hospital.policy import Usage
from chestfed.leaves.federation.parcels import UNKNOWN, Parcel, Refused
from chestfed.leaves.federation.records import Counts
from chestfed.studies.experiment.device import Machine
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.training.assemble import Federation


@dataclass
class StageTwo:
    """Stage 2 with the first `k` hospitals."""

    k: int
    host: Host
    shapes: Shapes
    file: Path
    cohort: Federation
    number: int  #: of this hospital in the cohort
    history: History


@dataclass
class Study:
    """A study that this hospital takes part in; `data` once it is open, `stage_2` in stage 2.

    `approval` is the digest by which it is approved, `place` that of the hospital in the order of addition,
    `code` that of `read_code` with which it was agreed upon.
    """

    pipeline: Pipeline
    approval: str
    place: int
    local_pipeline: Pipeline
    machine: Machine
    folder: Path
    network: FlatModule
    usage: Usage
    code: dict[str, str]
    data: OwnData | None = None
    disclosure: tuple[dict[str, Any], Counts] | None = None
    stage_2: StageTwo | None = None

    def check_code(self) -> None:
        """Refuse to go on once the files of a plug-in are others than were agreed upon; raises `Refused`.

        One that is imported only now would run as it is now, and a greeting may have imported all anew.
        """
        now = read_code(self.pipeline)
        if any(now.get(part) != code for part, code in self.code.items()):
            raise Refused(f"{UNKNOWN}the code of a plug-in has changed since the study was agreed upon", kind="code")

    @property
    def target(self) -> bool:
        return self.place == 0

    def opened(self) -> OwnData:
        if self.data is None:
            raise Refused(f"{UNKNOWN}the study is not open here", kind="unknown study")
        return self.data


def read_code(pipeline: Pipeline) -> dict[str, str]:
    """The identity of each plug-in's module as it was imported, and the digest of its files as they are now."""
    return codes_in_use() | handshake.hash_code(pipeline)


def require_stage_2(study: Study, question: Parcel) -> StageTwo:
    """Stage 2 with as many hospitals as a question says."""
    if study.stage_2 is None or study.stage_2.k != question.values.get("k"):
        raise Refused(f"{UNKNOWN}stage 2 with this many hospitals has not begun here", kind="unknown study")
    return study.stage_2


def read_request(study: Study, question: Parcel) -> tuple[StageTwo, Request[Any]]:
    """The request in a question, checked."""
    stage_2 = require_stage_2(study, question)
    like = stage_2.shapes.request(*peek(question.packed.header, "the server"), "the server")
    return stage_2, unpack(question.packed, like, "the server", study.machine.device)


def read_members(values: dict[str, Any], names: Sequence[str]) -> tuple[int, dict[str, int]]:
    """K and, by hospital of stage 2, its number of training rows: of the first K in their order, some may be missing.

    Raises `Refused` if anything else was sent.
    """
    k, rows = values.get("k"), values.get("rows")
    try:
        counts = dict(rows)  # type: ignore[arg-type]
        sound = (
            type(k) is int and 0 < k <= len(names) and list(counts) == [name for name in names[:k] if name in counts]
        )
        sound = sound and len(counts) == len(rows)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        sound = False
    if not sound:
        raise Refused("the hospitals of stage 2 are not listed as they should be", kind="hospitals of stage 2")
    if not all(type(count) is int and 0 < count <= LARGEST_COUNT for count in counts.values()):
        raise Refused("the hospitals' numbers of rows are invalid", kind="hospitals of stage 2")
    assert isinstance(k, int)
    return k, counts
