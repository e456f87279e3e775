"""One frame per site: which row trains at which client, is scored, or is not used. Reads label files only."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from chestfed.core.config import expand_path
from chestfed.core.console import plural
from chestfed.core.diseases import nearest_hint
from chestfed.core.errors import ConfigError, nearest
from chestfed.core.randomness import numpy_stream
from chestfed.data.sites import load_site_config, open_site
from chestfed.data.sites.config import SiteConfig
from chestfed.data.sites.partition import (
    cut_into_clients,
    deal_by_age,
    deal_evenly,
    deal_patients,
    hold_out,
    permute_table_labels,
)
from chestfed.data.sites.stats import people, site_facts
from chestfed.data.sites.table import SiteTable
from chestfed.results.evaluation.protocols import list_views
from chestfed.studies.experiment.data import SiteEntry
from chestfed.studies.experiment.pipeline import AnyPipeline, Pipeline

#: Roles of a row. TEST: of the test set, scored in every evaluated round. OWN_TEST: scored by the finished models only,
#: as patients of the hospital's own. VALID: to choose settings on.
TRAIN, VALID, TEST, OWN_TEST, UNUSED = "train", "valid", "test", "own_test", "unused"
SCORED_ROLES: Final = (TEST, OWN_TEST, VALID)
_BLANK: Final = {"role": UNUSED, "client": "", "reason": ""}
_PLACE: Final = "#place"


@dataclass(frozen=True, eq=False)
class StudySite:
    """One site of a study.

    `table` has all rows of the site with the study's diseases, and three more columns: `role`; `client`, the name of
    the one that a row trains at, else empty; `reason`, why a row is unused, else empty. No patient has rows of two
    roles, unless some are unused.
    """

    entry: SiteEntry
    table: SiteTable
    seed: int  #: of the cut into clients and of negative controls
    labeled: tuple[str, ...]  #: diseases that the site labels
    clients: tuple[str, ...]  #: names of all clients that the site is cut into, in the order of addition
    facts: dict[str, Any]  #: participants and labels, see `sites.stats.site_facts`
    splits_file: str | None = None  #: the file that gives its patients' splits, if one does

    @property
    def name(self) -> str:
        return self.table.name

    def __getstate__(self) -> dict[str, Any]:
        """Without rows: they name patients, and stay in the process that has read them."""
        return self.__dict__ | {"table": self.table.with_frame(pd.DataFrame(columns=list(self.table.frame)))}

    def find(self, role: str, client: str = "") -> np.ndarray:
        """Places of the rows with a role, of one client if one is named: int `[n]`."""
        matches = (self.table.frame["role"] == role).to_numpy()
        if client:
            matches = matches & (self.table.frame["client"] == client).to_numpy()
        return np.flatnonzero(matches)

    def select(self, role: str, client: str = "") -> SiteTable:
        """The rows that `find` finds, as a table."""
        return self.table.with_frame(self.table.frame.iloc[self.find(role, client)].reset_index(drop=True))

    def name_split(self, role: str) -> str:
        """What the images of a role are, for captions: `test split`, or `held-out patients` by `test_fraction`."""
        if self.entry.test_fraction is not None:
            return "held-out patients"
        splits = self.table.frame["split"].iloc[self.find(role)].unique()
        return f"{' and '.join(map(str, splits))} split" if len(splits) else ""

    def is_control(self, client: str) -> bool:
        """Whether a client of the site is a negative control."""
        return self.entry.control is not None and client.endswith(_name_control(self.entry))

    @property
    def idle_test(self) -> str:
        """Words on the images of the site's own test split that `test_fraction` leaves unused; empty without any."""
        own = (self.table.frame["split"] == "test").to_numpy(dtype=bool) & ~self.in_use
        if self.entry.test_fraction is None or not own.any():
            return ""
        return (
            f"{plural(int(own.sum()), 'image')} of its own test split are not used: test_fraction draws other test "
            "patients from its training patients; without that key its own are tested"
        )

    @property
    def in_use(self) -> np.ndarray:
        """Which rows the study reads, bool `[n]`."""
        return (self.table.frame["role"] != UNUSED).to_numpy()

    def with_columns(self, **columns: Any) -> StudySite:
        """Copy of the site with other columns."""
        return replace(self, table=self.table.with_frame(self.table.frame.assign(**columns)))

    def move(self, roles: Sequence[str], to: str, reason: str = "") -> StudySite:
        """Copy of the site with the rows of some roles in another one; of UNUSED rows also why."""
        rows = self.table.frame["role"].isin(roles)
        if not rows.any():
            return self
        role, reasons = self.table.frame["role"].mask(rows, to), self.table.frame["reason"].mask(rows, reason)
        client = self.table.frame["client"] if to == TRAIN else self.table.frame["client"].mask(rows, "")
        return self.with_columns(role=role, client=client, reason=reasons)

    def leave_out(self, rows: np.ndarray, reason: str) -> StudySite:
        """Copy of the site that does not use these rows, int `[n]`; its facts count who is left."""
        columns = {name: self.table.frame[name].to_numpy(dtype=object, copy=True) for name in _BLANK}
        for name, value in (_BLANK | {"reason": reason}).items():
            columns[name][rows] = value
        site = self.with_columns(**columns)
        scored = site.table.frame["role"].isin((TEST, OWN_TEST))
        used = people(site.select(TRAIN), site.table.with_frame(site.table.frame[scored]))
        left_out = self.facts["left_out"] | {reason: len(rows)}
        return replace(site, facts=self.facts | {"people": used, "left_out": left_out})


def limit_training(site: StudySite, images: int, seed: int, client: str = "") -> StudySite:
    """The site with at most so many training images: those of whole patients, in an order drawn by `seed`.

    With `client` that of its clients has at most so many, and the others keep theirs. Fewer images are a part of more.
    Rows that are not used any more are counted under their reason.

    Raises `ConfigError` if there are not so many: the limit would change nothing.
    """
    rows, name = site.find(TRAIN, client), client or site.name
    if images > len(rows):
        text = (
            f"training_images: {name} has only {len(rows):,}, so {images:,} changes nothing; leave the number "
            "out, or write null"
        )
        raise ConfigError(text, kind="too many training images", site=site.name, images=len(rows))
    beyond = _find_beyond(site, rows, images, numpy_stream(seed, "training images", name))
    return site.leave_out(beyond, f"beyond {images} training images")


def limit_scored(site: StudySite, images: int) -> StudySite:
    """The site with at most so many test images, and as many of its own, of whole patients.

    The draw is that of the cut into clients. Rows that are not used any more are counted under their reason.
    """
    for role in (TEST, OWN_TEST):
        if len(rows := site.find(role)) > images:
            beyond = _find_beyond(site, rows, images, numpy_stream(site.seed, "scored images", site.name))
            site = site.leave_out(beyond, f"beyond {images} scored images")
    return site


def _find_beyond(site: StudySite, rows: np.ndarray, images: int, stream: np.random.Generator) -> np.ndarray:
    """Of these rows those that exceed so many images if whole patients are taken in a drawn order."""
    names, numbers = np.unique(site.table.frame["patient"].to_numpy(dtype=str)[rows], return_inverse=True)
    order = stream.permutation(len(names))
    within = np.bincount(numbers, minlength=len(names))[order].cumsum() <= images
    return rows[~np.isin(numbers, order[within])]


def resolve_data_root(pipeline: Pipeline, override: Path | None) -> Path:
    """The folder of the sites' roots: the override, else the pipeline's, else $CHESTFED_DATA.

    Raises `ConfigError` if none is given, or the override does not exist and no sample hospitals are written there.
    """
    if override is not None:
        if pipeline.samples is None and not override.is_dir():
            raise ConfigError(f"--data {override}: no such folder; give the one that contains the sites' folders")
        return override
    if pipeline.data_root is not None:
        return expand_path(pipeline.data_root, Path.cwd())
    variable = os.environ.get("CHESTFED_DATA")
    if not variable:
        raise ConfigError(
            "where are the sites' files? Give their folder with --data DIR, or set CHESTFED_DATA, "
            "or data_root in the pipeline"
        )
    return Path(variable).expanduser()


def open_sites(
    pipeline: Pipeline, pipeline_file: Path, data_root: Path, *, target_first: bool = True
) -> tuple[StudySite, ...]:
    """Read every site's label files, and give each row its role and client as far as no single study decides on it.

    `target_first`: the first site is the target of the study; False if the target is elsewhere. Raises as
    `open_splits`.
    """
    return open_splits(pipeline, pipeline_file, data_root, (pipeline.split,), target_first=target_first)[pipeline.split]


def open_splits(
    pipeline: Pipeline, pipeline_file: Path, data_root: Path, splits: Iterable[int], *, target_first: bool = True
) -> dict[int, tuple[StudySite, ...]]:
    """The sites of each split of the patients; their label files are read once.

    Raises
    ------
    SiteError
        All problems of a site's tables in one report.
    ConfigError
        If two sites have the same name, or a client would have nothing to train on.
    """
    configs = [load_site_config(pipeline_file.parent / entry.config) for entry in pipeline.sites]
    _refuse_duplicate_names([config.site for config in configs])
    if target_first:  # a hospital alone need not label all of them
        labeled = [disease for config in configs for disease in config.diseases]
        refuse_unlabeled(pipeline.diseases, labeled, f"{pipeline_file}: 'diseases': ")
    placed = [
        config if entry.root is None else config.model_copy(update={"root": entry.root, "other_roots": []})
        for entry, config in zip(pipeline.sites, configs, strict=True)
    ]
    _refuse_missing_folders(placed, data_root)
    splits = list(dict.fromkeys(splits))
    sites: dict[int, list[StudySite]] = {split: [] for split in splits}
    for entry, config in zip(pipeline.sites, placed, strict=True):
        if not set(config.diseases) & set(pipeline.diseases):
            raise ConfigError(
                f"site '{config.site}' labels {', '.join(config.diseases)}: none of the study's diseases, which are "
                f"{', '.join(pipeline.diseases)}{nearest_hint(pipeline.diseases, config.diseases)}. Nothing could be "
                "learned from it: leave it out, or change 'diseases'",
                kind="no disease of the study",
                site=config.site,
                suggestion=nearest(pipeline.diseases, config.diseases),
            )
        table = open_site(config, data_root)
        for part, of_part in _divide(table, entry, pipeline.seed):
            for split, opened in sites.items():
                of_split = pipeline.model_copy(update={"split": split})
                site, test_rows = _assign_roles(part, of_part, of_split, target=target_first and not opened)
                training, test = (part.with_frame(part.frame.iloc[rows]) for rows in (site.find(TRAIN), test_rows))
                facts = site_facts(config, part, training, test)
                opened.append(replace(site, entry=entry, facts=facts, splits_file=config.splits.file))
    for opened in sites.values():
        _check_clients(opened, pipeline.diseases)
    return {split: tuple(opened) for split, opened in sites.items()}


def refuse_unlabeled(diseases: Sequence[str], labeled: Iterable[str], place: str = "") -> None:
    """Refuse a disease that no site labels: it is most likely misspelled. The message begins with `place`."""
    provided = list(dict.fromkeys(labeled))
    if lacking := [disease for disease in diseases if disease not in provided]:
        raise ConfigError(
            f"{place}no site of the study labels {', '.join(lacking)}{nearest_hint(lacking, provided)}. The sites "
            f"label {', '.join(provided)}: change 'diseases' in the pipeline, or in a site's YAML",
            kind="disease of no site",
            diseases=lacking,
            suggestion=nearest(lacking, provided),
        )


def _refuse_missing_folders(configs: Sequence[SiteConfig], data_root: Path) -> None:
    """Name all sites without a folder, if there are several, before the label files of any are read."""
    missing = {config.site: config.folder(data_root) for config in configs}
    missing = {name: folder for name, folder in missing.items() if not folder.is_dir()}
    if len(missing) > 1:
        listed = "\n".join(f"  {name}: {folder}" for name, folder in missing.items())
        raise ConfigError(
            f"{len(missing)} of {len(configs)} sites have no folder:\n{listed}\nGive the folder that contains them "
            "with --data or $CHESTFED_DATA, or set 'root' in their YAML",
            kind="missing folders",
            sites=list(missing),
        )


def _assign_roles(
    table: SiteTable, entry: SiteEntry, pipeline: Pipeline, *, target: bool
) -> tuple[StudySite, np.ndarray]:
    """A site with the roles that it has in any study of the pipeline, and the rows of its own AUC, int `[n]`.

    Those are scored rows of the target and with `test_fraction`; else the test split, or the valid split without one.
    """
    training, test, validation = _set_aside(table, entry, pipeline.seed, pipeline.split)
    views = list_views(pipeline.evaluation.protocol)
    scored = _place(table).select(pipeline.evaluation.split) if entry.test_fraction is None else test
    scored = test_rows = scored.select(views=views)
    if not target and entry.test_fraction is None:
        splits = (_place(table).select(split, views) for split in ("test", "valid"))
        test_rows = next((rows for rows in splits if len(rows.frame)), scored)
    clients = _cut(table.name, training, entry, pipeline.seed, target=target)
    columns = {name: np.full(len(table.frame), value, object) for name, value in _BLANK.items()}
    for name, part in clients:
        columns["client"][_places(part)], columns["role"][_places(part)] = name, TRAIN
    rows = scored if pipeline.held_out is not None else test_rows
    columns["role"][_places(rows)] = TEST if target or entry.test_fraction is not None else OWN_TEST
    columns["role"][_places(validation.select(views=views))] = VALID
    columns["reason"][columns["role"] == UNUSED] = "no role in this study: its split or view"
    study = table.about(pipeline.diseases)
    study = study.with_frame(study.frame.reset_index(drop=True).assign(**columns))
    names = tuple(name for name, _ in clients)
    return StudySite(entry, study, pipeline.seed, table.diseases, names, {}), _places(test_rows)


def with_validation(pipeline: AnyPipeline, fraction: float, *, everywhere: bool = False) -> AnyPipeline:
    """The pipeline with this `validation_fraction` at every scored site, or every site, that has none of its own."""
    sites = [
        entry.model_copy(update={"validation_fraction": fraction})
        if entry.validation_fraction is None and (everywhere or place == 0 or entry.test_fraction is not None)
        else entry
        for place, entry in enumerate(pipeline.sites)
    ]
    return pipeline.model_copy(update={"sites": sites})


def left_out_views(table: SiteTable, split: str | None) -> str:
    """Why a split (None: all) is empty under its protocol, if it is for its views; otherwise an empty string."""
    views = table.select(split=split).frame["view"].value_counts()
    counts = ", ".join(f"{view} {count:,}" for view, count in views.items() if count)
    if not counts:
        return ""
    return f". It leaves out the images there for their views ({counts}): if they are frontal, take protocol all-image"


def client_tables(
    table: SiteTable, entry: SiteEntry, seed: int, split: int, *, target: bool
) -> list[tuple[str, SiteTable]]:
    """The training rows of each client of a site, by name, as a study with this seed and split cuts them."""
    whole = [(_set_aside(part, of_part, seed, split)[0], of_part) for part, of_part in _divide(table, entry, seed)]
    parts = [cut for part, of_part in whole for cut in _cut(part.name, part, of_part, seed, target=target)]
    return [(name, table.with_frame(part.frame.drop(columns=_PLACE))) for name, part in parts]


def permute_labels(site: StudySite) -> StudySite:
    """The site with the labels of each client's rows dealt to its images at random: a negative control."""
    frame, columns = site.table.frame.copy(), [*site.labeled, "repeats"]
    columns = [name for name in columns if name in frame]
    whole = replace(site.table, diseases=site.labeled)
    for name in filter(site.is_control, site.clients):
        places = site.find(TRAIN, name)
        part = permute_table_labels(whole.with_frame(frame.iloc[places].reset_index(drop=True)), site.seed)
        for column in columns:
            frame.iloc[places, frame.columns.get_loc(column)] = part.frame[column].to_numpy()  # type: ignore[index]
    return replace(site, table=site.table.with_frame(frame))


def _divide(table: SiteTable, entry: SiteEntry, seed: int) -> list[tuple[SiteTable, SiteEntry]]:
    """The hospitals that `partition` makes of a site, each with its entry; without that key the site itself.

    Training patients are dealt as the key says, those of other splits evenly; by age, all are.
    """
    how, count = entry.partition, entry.clients
    if how is None:
        return [(table, entry)]
    fractions = [share for share in (entry.test_fraction, entry.validation_fraction) if share is not None]
    least = max((math.ceil(1 / min(share, 1 - share)) + 2 for share in fractions), default=1)
    owner, split, discarded = np.zeros(len(table.frame), np.int64), table.frame["split"].to_numpy(), 0
    for name in np.unique(split.astype(str)):
        rows = np.flatnonzero(split == name)
        part = table.with_frame(table.frame.iloc[rows].reset_index(drop=True))
        if how.ages is not None:
            dealt = deal_by_age(part, how.ages, least if name == "train" else 0)
        elif name == "train":
            dealt, discarded = deal_patients(part, count, seed, how.dirichlet, how.shards, how.quantity, least=least)
        else:
            dealt = deal_evenly(part, count, seed)
        owner[rows] = dealt
    alone = entry.model_copy(update={"clients": 1, "partition": None})
    return [
        (
            replace(
                table.with_frame(table.frame[owner == number].reset_index(drop=True)),
                name=f"{table.name}-{number + 1}",
                title=f"{table.title}, part {number + 1}",
                part_of=table.name,
                draws_discarded=discarded,
            ),
            alone,
        )
        for number in range(count)
    ]


def _set_aside(table: SiteTable, entry: SiteEntry, seed: int, split: int) -> tuple[SiteTable, SiteTable, SiteTable]:
    """Training rows without patients held out, those of `test_fraction` and of `validation_fraction`; with `_PLACE`.

    Without a `test_fraction` the test patients are the same in every split, and validation patients rotate as those of
    a `test_fraction` would; with one they are drawn from what each split leaves.
    """
    training = _place(table).select(split="train")
    test = validation = training.with_frame(training.frame[:0])
    if entry.test_fraction is not None:
        training, test = hold_out(training, entry.test_fraction, seed, split=split)
    if entry.validation_fraction is not None:
        fold = split if entry.test_fraction is None else 0
        training, validation = hold_out(training, entry.validation_fraction, seed, "validation", fold)
    return training, test, validation


def _cut(name: str, training: SiteTable, entry: SiteEntry, seed: int, *, target: bool) -> list[tuple[str, SiteTable]]:
    """The clients that a site's training rows are cut into, by name; a negative control's says so everywhere.

    The first client of the target is no control.
    """
    parts = [training] if entry.clients == 1 else cut_into_clients(training, entry.clients, seed, entry.cut)
    names = [name] if entry.clients == 1 else [f"{name}-{number}" for number in range(1, len(parts) + 1)]
    names = [name if target and number == 0 else f"{name}{_name_control(entry)}" for number, name in enumerate(names)]
    return list(zip(names, parts, strict=True))


def _name_control(entry: SiteEntry) -> str:
    """What the name of a negative control of this entry ends with."""
    return "" if entry.control is None else f" ({entry.control.replace('_', ' ')})"


def _place(table: SiteTable) -> SiteTable:
    """The table with the number of each row, which its parts keep."""
    return table.with_frame(table.frame.assign(**{_PLACE: np.arange(len(table.frame))}))


def _places(part: SiteTable) -> np.ndarray:
    return part.frame[_PLACE].to_numpy()


def _check_clients(sites: Sequence[StudySite], diseases: Sequence[str]) -> None:
    """Refuse clients without images, without labels, or of the same name."""
    clients = [(name, site.select(TRAIN, name)) for site in sites for name in site.clients]
    empty = [name for name, part in clients if len(part.frame) == 0]
    if empty:
        raise ConfigError(
            f"no training image at: {', '.join(empty)}. The split 'train' of its table, with the views that its YAML "
            "keeps, is empty: see `chestfed site stats`",
            kind="no training image",
            clients=empty,
        )
    _refuse_duplicate_names([name for name, _ in clients])
    silent = [name for name, part in clients if np.isnan(part.labels()).all()]
    if silent:
        raise ConfigError(
            f"no training image at {', '.join(silent)} has a label of {', '.join(diseases)}: see `labels`, "
            "`uncertain` and `blank` in the site's YAML"
        )


def _refuse_duplicate_names(names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        text = f"two sites have the same name: {', '.join(names)}. Change 'site' in one of their YAMLs."
        raise ConfigError(text, kind="duplicate site", sites=list(names))
