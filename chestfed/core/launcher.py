"""The processes that torchrun, or another launcher of torch.distributed, started together with this one."""

from __future__ import annotations

import os

from chestfed.core.errors import ConfigError

#: What every such launcher sets for each of its processes.
_SET = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def launched() -> bool:
    """Whether a launcher started this process."""
    return all(name in os.environ for name in _SET)


def rank() -> int:
    """The number of this process among all; 0 without a launcher."""
    return _number("RANK", 0)


def place_here() -> int:
    """The number of this process among those of this machine."""
    return _number("LOCAL_RANK", 0)


def processes_here() -> int:
    """How many processes the launcher started on this machine."""
    return _number("LOCAL_WORLD_SIZE", 1)


def refuse_several(what: str) -> None:
    """Raise ConfigError if the launcher started several processes: this is for one."""
    if _number("WORLD_SIZE", 1) > 1:
        raise ConfigError(
            f"{what} is for one process, and a launcher started {os.environ['WORLD_SIZE']}: start it without torchrun"
        )


def _number(name: str, alone: int) -> int:
    try:
        return int(os.environ.get(name, alone)) if launched() else alone
    except ValueError:
        raise ConfigError(f"${name}: '{os.environ[name]}' is not a number; who set it?") from None
