"""Published ImageNet weights: where they are, and whether they are what was published.

The files are PyTorch's; a file's name ends with the first eight digits of its SHA-256. Downloaded ones are kept where
PyTorch keeps them, `$TORCH_HOME/hub/checkpoints`, so a file that is there already is used, and a machine without a
network can be given one. Others are a part of a distribution that pip installs.
"""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from chestfed.core.errors import ConfigError, first_line
from chestfed.learning.models.declaration import IMAGENET, ModelSpec, Published

#: Advice for a study without them.
_WITHOUT: Final = (
    "Without it, set model.initial_weights=null: the network then starts from random weights, and its AUCs cannot be "
    "compared with published ones that started from ImageNet"
)


def find_initial_weights(initial_weights: str, spec: ModelSpec) -> Path:
    """The file that `model.initial_weights` names; ImageNet's is downloaded if it is not there.

    Raises
    ------
    ConfigError
        If there is no ImageNet file for the network, it cannot be had, or its digest is another.
    """
    if initial_weights != IMAGENET:
        return Path(initial_weights)
    if spec.imagenet is None:
        raise ConfigError(
            f"model.initial_weights: there is no known ImageNet file for network '{spec.name}'; give a file",
            kind="no ImageNet weights",
            network=spec.name,
        )
    find = _find_installed if spec.imagenet.package else _find_downloaded
    file, advice = find(spec.imagenet, spec.name)
    with file.open("rb") as content:
        digits = _read_digits(spec.imagenet)
        if not hashlib.file_digest(content, "sha256").hexdigest().startswith(digits):
            raise ConfigError(
                f"model.initial_weights: {file} is damaged: its SHA-256 does not begin with {digits}. {advice}. "
                f"{_WITHOUT}",
                kind="damaged weights",
                network=spec.name,
            )
    return file


def is_present(published: Published) -> bool:
    """Whether the file is on this machine; nothing is downloaded, and nothing read."""
    return bool(_list_installed(published)) if published.package else place_downloaded(published).is_file()


def _read_digits(published: Published) -> str:
    """The first digits of the file's SHA-256."""
    return Path(published.name).stem.rpartition("-")[2]


def _find_installed(published: Published, network: str) -> tuple[Path, str]:
    """The file in its distribution, and what to do if it is damaged."""
    advice = f"pip install --force-reinstall {published.package}"
    files = _list_installed(published)
    if not files:
        raise ConfigError(
            f"model.initial_weights: the weights of {network} are in the package {published.package}, which is not "
            f"installed: pip install {published.package}. {_WITHOUT}",
            kind="weights not installed",
            network=network,
        )
    return files[0], advice


def _list_installed(published: Published) -> list[Path]:
    """The file in its distribution, if that is installed; nothing of the distribution is run."""
    try:
        installed = find_spec(published.package)
    except (ImportError, ValueError):
        installed = None
    folders = (installed and installed.submodule_search_locations) or ()
    return [file for folder in folders if (file := Path(folder) / published.name).is_file()]


def place_downloaded(published: Published) -> Path:
    """Where PyTorch keeps the file once it is downloaded."""
    from torch import hub

    return Path(hub.get_dir()) / "checkpoints" / published.name


def _find_downloaded(published: Published, network: str) -> tuple[Path, str]:
    """The downloaded file, and what to do if it is damaged."""
    from torch import hub

    file, url = place_downloaded(published), f"{published.url}/{published.name}"
    if not file.exists():
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            hub.download_url_to_file(url, str(file), hash_prefix=_read_digits(published), progress=False)
        except (OSError, RuntimeError) as error:  # RuntimeError: another digest
            raise ConfigError(
                f"model.initial_weights: {url} cannot be downloaded: {first_line(error)}. Put the file into "
                f"{file.parent}. {_WITHOUT}",
                kind="weights not downloaded",
                network=network,
            ) from None
    return file, "Remove it"
