"""Published ImageNet weights: where they are, and the digest that their host gives.

The files are PyTorch's, made for torchvision; a file's name ends with the first eight digits of its SHA-256. They are
kept where PyTorch keeps them, `$TORCH_HOME/hub/checkpoints`, so a file that is there already is used, and a machine
without a network can be given one.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from chestfed.core.errors import ConfigError, first_line
from chestfed.learning.models.declaration import IMAGENET

_HOST: Final = "https://download.pytorch.org/models"
#: Network -> published file.
_FILES: Final = {"densenet121": "densenet121-a639ec97.pth", "densenet161": "densenet161-8d451a50.pth"}
#: Advice for a study without them.
_WITHOUT: Final = (
    "Without it, set model.initial_weights=null: the network then starts from random weights, and its AUCs cannot be "
    "compared with published ones that started from ImageNet"
)


def find_initial_weights(initial_weights: str, network: str) -> Path:
    """The file that `model.initial_weights` names; ImageNet's is downloaded if it is not there.

    Raises
    ------
    ConfigError
        If there is no ImageNet file for the network, it cannot be downloaded, or its digest is another.
    """
    if initial_weights != IMAGENET:
        return Path(initial_weights)
    name = _FILES.get(network)
    if name is None:
        raise ConfigError(
            f"model.initial_weights: there is no known ImageNet file for network '{network}' ({', '.join(_FILES)} have "
            "one); give a file",
            kind="no ImageNet weights",
            network=network,
        )
    from torch import hub

    file = Path(hub.get_dir()) / "checkpoints" / name
    digits = file.stem.rpartition("-")[2]
    if not file.exists():
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            hub.download_url_to_file(f"{_HOST}/{name}", str(file), hash_prefix=digits, progress=False)
        except (OSError, RuntimeError) as error:  # RuntimeError: another digest
            raise ConfigError(
                f"model.initial_weights: {_HOST}/{name} cannot be downloaded: {first_line(error)}. Put the file into "
                f"{file.parent}. {_WITHOUT}",
                kind="weights not downloaded",
                network=network,
            ) from None
    with file.open("rb") as content:
        if not hashlib.file_digest(content, "sha256").hexdigest().startswith(digits):
            raise ConfigError(
                f"model.initial_weights: {file} is damaged: its SHA-256 does not begin with {digits}. Remove it. "
                f"{_WITHOUT}",
                kind="damaged weights",
                network=network,
            )
    return file
