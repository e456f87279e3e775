"""The releases that `releases.yaml` describes: what is in them, where their files are, and how these are checked."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Annotated

from pydantic import Field

from chestfed.core.bundled import advise_name
from chestfed.core.config import StrictModel
from chestfed.core.diseases import DiseaseName
from chestfed.core.disk import size_text
from chestfed.core.errors import ConfigError
from chestfed.data.sites.published import load_published

#: A file or folder directly below another.
_Entry = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]


class ReleaseFile(StrictModel):
    """One file to download: an archive, which is unpacked, or a label file."""

    name: _Entry = Field(description="its name on this disk")
    url: str = Field(pattern=r"^https?://")
    size: int = Field(gt=0, description="bytes, nearly; a file of more than twice as many is refused")
    digest: str | None = Field(None, pattern=r"^(md5:[0-9a-f]{32}|sha256:[0-9a-f]{64})$")
    git: dict[_Entry, Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]] = Field(
        {}, description="path in the release -> git's identifier of that file or folder, where no archive has a digest"
    )
    listed: _Entry | None = Field(
        None, description="a list in this package: git's identifier and name of each file that is unpacked, no others"
    )
    part: int | None = Field(None, ge=1, description="which part of the release this is, if parts can be had alone")
    into: _Entry | None = Field(None, description="folder below the release's that an archive is unpacked into")
    strip: int = Field(0, ge=0, description="leading folders of an archive that are dropped")
    keep: list[str] = Field(["*"], description="patterns of the files of an archive that are unpacked, after `strip`")
    most: int = Field(0, ge=0, description="bytes that an archive may unpack to; 0: not an archive")
    verified: bool = Field(False, description="whether chestfed's authors checked the digest on the release's files")

    @property
    def is_checked(self) -> bool:
        """Whether something says what the file should be."""
        return self.digest is not None or bool(self.git) or self.listed is not None

    @property
    def identifiers(self) -> dict[str, str]:
        """Path in the release -> git's identifier; those of the list besides `git`."""
        if self.listed is None:
            return dict(self.git)
        text = resources.files(__package__).joinpath(self.listed).read_text(encoding="utf-8")
        names = {name: identifier for identifier, name in map(str.split, text.splitlines())}
        return {**self.git, **names}

    @property
    def patterns(self) -> list[str]:
        """Patterns of the files that are unpacked."""
        return self.keep if self.listed is None else list(self.identifiers)


class Release(StrictModel):
    """An open release of films."""

    title: str
    hospital: str
    country: str
    films: int = Field(gt=0)
    patients: str = Field(description="their number, and how the files name them")
    findings: list[DiseaseName] = Field(min_length=1)
    labels: str = Field(description="who made them, and how")
    license: str
    license_source: str = Field(description="where that is written")
    citation: str
    cite: str = Field(description="the citation in a few words")
    home: str
    folder: str = Field(pattern=r"^[a-z][a-z0-9_]*$", description="where `datasets get` puts it below the data root")
    site: str = Field(description="the site's YAML below site_configs")
    note: str = ""
    files: list[ReleaseFile] = Field([], description="none: the release has to be brought by hand, as `note` says")

    @property
    def size(self) -> int:
        """Bytes to download."""
        return sum(file.size for file in self.files)

    @property
    def check(self) -> str:
        """Check of a download, in a few words."""
        if not self.files:
            return "by hand"
        if not all(file.is_checked for file in self.files):
            return "no digest"
        return "verified" if all(file.verified for file in self.files) else "digest"

    def select_files(self, part: int | None) -> list[ReleaseFile]:
        """The files of one part, with those that belong to all; all files without a part.

        Raises `ConfigError` if there is no such part.
        """
        parts = [file.part for file in self.files if file.part is not None]
        if part is None or part in parts:
            return [file for file in self.files if part is None or file.part in (None, part)]
        known = f"it has parts 1 to {max(parts)}" if parts else "it has no parts"
        raise ConfigError(f"--part {part}: {self.title}: {known}", kind="unknown part", part=part)


@cache
def releases() -> dict[str, Release]:
    """Name -> release, in the order of the list."""
    import yaml

    text = resources.files(__package__).joinpath("releases.yaml").read_text(encoding="utf-8")
    return {name: Release.model_validate(plain) for name, plain in yaml.safe_load(text).items()}


def find_release(name: str) -> Release:
    """The release of a name.

    Raises `ConfigError` if there is none.
    """
    if name not in releases():
        advice, close = advise_name(name, "data set")
        if published := load_published().get(name):
            size = f"{published.images:,} images, {size_text(published.size)}"
            advice = f"'{name}' is a site whose files are to be had from their owner: {published.page} ({size})"
        raise ConfigError(f"no data set '{name}'. {advice}", kind="unknown release", suggestion=close)
    return releases()[name]
