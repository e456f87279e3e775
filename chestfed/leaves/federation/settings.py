"""The two YAML files of a federation: the server's, which lists the hospitals, and each hospital's own."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from chestfed.core.config import StrictModel, expand_path, load_config
from chestfed.core.errors import ConfigError
from chestfed.data.sites.config import load_site_config
from chestfed.data.sites.phantoms import is_phantoms


def split_address(text: str) -> tuple[str, int]:
    """Host and port."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"'{text}': expected host:port, such as chestfed.hospital.example:9443")
    return host.strip("[]"), int(port)


def _address(text: str) -> str:
    split_address(text)
    return text


Address = Annotated[str, AfterValidator(_address)]
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,31}$")]

SERVER_FILE, HOSPITAL_FILE = "federation.yaml", "hospital.yaml"


class Faults(StrictModel):
    """Reaction of the server to a hospital that is late or gone, or to an unusable answer: it waits and asks again."""

    late_after: float = Field(
        600, gt=0, description="seconds after which it is said that a hospital is late; a round of training should fit"
    )
    give_up_after: float = Field(
        86400, gt=0, description="seconds after which the study stops; the same command resumes with the round"
    )
    tries: int = Field(
        3, ge=1, description="times that an answer that cannot be used is asked for before the study stops"
    )
    least_hospitals: int = Field(
        1, ge=1, description="hospitals that a K, and a round, need; with `run --without` fewer may be left over"
    )
    largest_norm: float = Field(
        100.0,
        gt=1,
        description="an update cannot be used if it is further from the round's start than this many times the median "
        "of the hospitals' distances",
    )


class FederationFile(StrictModel):
    """`federation.yaml`, the server's."""

    federation: Name = Field(description="what it is called, in logs and reports")
    address: Address = Field(description="host:port under which hospitals reach the server")
    listen: str = Field("127.0.0.1", description="address of this machine that the server binds; 0.0.0.0: all")
    largest_request: int = Field(
        64, ge=8, description="MiB; a larger HTTP request is refused (Flower sends tensors in pieces of 5 MiB)"
    )
    largest_clients: int = Field(
        256,
        ge=8,
        description="connections of hospitals at a time; further ones are answered 503 before a body is read. 128 "
        "others may be without a signature; beyond, the oldest is closed",
    )
    body_seconds: float = Field(120, gt=0, description="seconds in which a request must have arrived")
    faults: Faults = Faults()


class Leaves(StrictModel):
    """Data that may leave the hospital, besides what training needs (see docs/deployment.md)."""

    results: Literal["scores", "aucs", "nothing"] | None = Field(
        None,
        description="what leaves of test images. scores: scores and labels, under keyed names, from which curves and "
        "differences are computed; aucs: AUCs with their intervals, computed at the hospital, and counts; nothing: it "
        "is not scored, and takes no part as the target; null: scores of bundled synthetic hospitals, aucs of any "
        "other site",
    )
    smallest_count: int = Field(
        0,
        ge=0,
        description="a count of positive, negative or unlabeled images of fewer distinct patients than this is "
        "reported as this, and the disease's largest count smaller by as many, before ratios are made of them; with "
        "fewer patients of a class there is no AUC (`results: aucs`); 0: as they are",
    )


_SPAN = r"^([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d$"


class Policy(StrictModel):
    """Demands of the hospital on a study; enforced here, whatever the server sends."""

    approval: Literal["none", "required"] = Field(
        "none",
        description="required: a study waits until somebody here approves it (`federation hospital --pending`, "
        "`--approve`), as `federation join` writes it; none: every study within the limits is answered",
    )
    least_batch_size: int = Field(1, ge=1, description="images per step, in both stages")
    least_window: int = Field(1, ge=1, description="local steps per round: with 1 an update is one gradient")
    least_patients: int = Field(
        1,
        ge=1,
        description="distinct patients of this hospital's training images, and of those with and without each disease "
        "that is labeled here, where there is any",
    )
    least_members: int = Field(
        2,
        ge=1,
        description="hospitals in stage 2, this one included, if K is at least as much: with fewer, after others have "
        "left, the mean of K is that of few",
    )
    most_epochs: float | None = Field(None, ge=0, description="epochs of stage 1")
    most_rounds: int | None = Field(None, ge=1, description="rounds of stage 2 per number of hospitals")
    most_rounds_answered: int | None = Field(
        None,
        ge=1,
        description="rounds of a study that are answered in all, for every number of hospitals, repeated ones "
        "included; null: three times those of the pipeline, and ten",
    )
    most_models_scored: int | None = Field(
        None,
        ge=1,
        description="models of a study that are scored here in all; null: three times those of the pipeline, and ten",
    )
    most_studies: int = Field(
        1000, ge=1, description="studies that have a folder in `state`; move old ones away before there are more"
    )
    most_hours: float | None = Field(
        None,
        gt=0,
        description="hours that are computed for a study in all; a request that takes longer is broken off "
        "(cannot be set on Windows)",
    )
    most_megabytes: float | None = Field(
        None, gt=0, description="10^6 bytes that are sent for a study in all; an answer beyond that is not sent"
    )
    most_memory: float | None = Field(
        None, gt=0, description="GiB of data that the process may hold; a request that needs more fails (Linux)"
    )
    times: tuple[Annotated[str, Field(pattern=_SPAN)], ...] = Field(
        (),
        strict=False,
        description="times of day at which it computes, as 20:00-06:00 (local time); a request under way at their "
        "end is broken off, and asked again later (cannot be set on Windows); empty: always",
    )
    image_scores: bool = Field(
        False, description="whether an algorithm may send scores of single training images (fedxl1, fedxl2)"
    )
    own_weights: bool = Field(
        True,
        description="whether a study may need weights of this hospital alone (personal algorithms, algorithms "
        "without a server)",
    )
    noise: Literal["local"] | None = Field(
        None, description="local: updates are clipped and noised here, before they leave; needs the extra `privacy`"
    )
    noise_clip: float = Field(1.0, gt=0, description="largest norm of this hospital's change in a round (noise: local)")
    noise_multiplier: float = Field(
        1.0, gt=0, description="standard deviation of the noise in every number, in units of noise_clip (noise: local)"
    )
    noise_delta: float = Field(1e-5, gt=0, lt=1, description="the delta for which epsilon is counted (noise: local)")
    most_epsilon: float | None = Field(
        None, gt=0, description="epsilon that the rounds of a study may spend in all (noise: local)"
    )
    require: tuple[Literal["clipping", "noise"], ...] = Field(
        (),
        strict=False,
        description="what the pipeline must have. clipping: `aggregation: norm_clipping` or "
        "`privacy`; noise: `privacy`, with secret noise",
    )


class HospitalFile(StrictModel):
    """`hospital.yaml`, a hospital's own. Paths are relative to it."""

    hospital: Name = Field(description="as `site` in the site YAML, and as the server lists it")
    server: Address = Field(description="host:port of the server")
    authority: str = Field("authority.crt", description="certificate by which the server is known")
    key: str = Field("node.key", description="this hospital's private node key")
    site: str = Field("site.yaml", description="the site YAML: where images and labels are, and what they mean")
    names_key: str = Field(
        "names.key",
        description="secret key of the keyed names of images and patients, made when first needed; keep a backup",
    )
    data_root: str = Field("data", description="folder that contains the site's folder")
    cache: str = Field("cache", description="decoded images")
    state: str = Field("state", description="what this hospital keeps between rounds")
    device: str = Field("auto", description="auto: CUDA if there is one, else the CPU; or cpu, cuda, cuda:1")
    threads: int | None = Field(None, ge=1, description="CPU threads; null: as the study says")
    port: int = Field(0, ge=0, le=65535, description="loopback port between the two local processes; 0: any")
    leaves: Leaves = Leaves()
    policy: Policy = Policy()
    imagenet: bool = Field(
        False,
        description="whether a study may begin with the published ImageNet weights (initial_weights: imagenet), where "
        "they lie on this machine already; none are downloaded",
    )
    plugins: list[str] = Field(
        [],
        description="package.module:Name of each part that a study may name besides what is built in or installed as "
        "an entry point; its code is run here, with options that the server chooses",
    )


@dataclass(frozen=True)
class Federation:
    """A federation's file, and the folder that it is in."""

    folder: Path
    file: FederationFile

    @property
    def authority(self) -> Path:
        return self.folder / "authority.crt"

    @property
    def keys(self) -> Path:
        """Folder of the hospitals' public keys, NAME.pub: who may take part."""
        return self.folder / "keys"

    @property
    def members(self) -> tuple[str, ...]:
        """The hospitals that may take part."""
        return tuple(sorted(file.stem for file in self.keys.glob("*.pub")))

    @property
    def operator_secret(self) -> Path:
        """File whose content proves that a request comes from who runs the server."""
        return self.folder / "private" / "operator.secret"

    @property
    def local_address(self) -> str:
        """Where the server is for processes on its own machine."""
        host = self.file.listen
        port = split_address(self.file.address)[1]
        return f"{'127.0.0.1' if host in ('0.0.0.0', '::') else host}:{port}"  # noqa: S104 (compared, not bound)


#: The keys of `hospital.yaml` that are files and folders.
Place = Literal["authority", "key", "names_key", "site", "data_root", "cache", "state"]


@dataclass(frozen=True)
class Hospital:
    """A hospital's file, and the folder that its paths are relative to."""

    folder: Path
    file: HospitalFile

    def path(self, key: Place) -> Path:
        return expand_path(getattr(self.file, key), self.folder)

    @property
    def old_key(self) -> Path:
        """The key before `federation rekey`, which is there until the server has accepted the new one."""
        key = self.path("key")
        return key.with_name(f"{key.name}.old")

    @property
    def results(self) -> Literal["scores", "aucs", "nothing"]:
        """Results of test images that leave; raises ConfigError if the site YAML, with the default, cannot be read."""
        if self.file.leaves.results is not None:
            return self.file.leaves.results
        folder = load_site_config(self.path("site")).folder(self.path("data_root"))
        return "scores" if is_phantoms(folder) else "aucs"

    @property
    def what_leaves(self) -> str:
        """Data that this hospital chose to send of images that are not trained on, and of counts; and its noise."""
        policy = self.file.policy
        noise = {key: value for key, value in policy.model_dump().items() if "noise" in key or key == "most_epsilon"}
        chosen = f"results {self.results}, smallest_count {self.file.leaves.smallest_count}"
        return chosen if policy.noise is None else f"{chosen}, {', '.join(f'{key} {noise[key]}' for key in noise)}"


def read_federation(path: Path) -> Federation:
    """The federation in a folder, or of a file."""
    file = path / SERVER_FILE if path.is_dir() else path
    return Federation(file.parent, load_config(file, FederationFile))


def read_hospital(path: Path) -> Hospital:
    """The hospital in a folder, or of a file."""
    file = path / HOSPITAL_FILE if path.is_dir() else path
    return Hospital(file.parent, load_config(file, HospitalFile))


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def refuse_open_network(host: str) -> None:
    """Raise ConfigError for going without TLS and keys on anything but loopback."""
    if not is_loopback(host):
        raise ConfigError(
            f"--insecure is for loopback only, and {host} is not: leave it out; `chestfed federation init` made "
            "certificates and keys"
        )
