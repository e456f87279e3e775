"""The device that a study runs on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pydantic import ValidationError

from chestfed.core.console import plural
from chestfed.core.errors import ConfigError
from chestfed.core.processes.workers import cores
from chestfed.studies.experiment.pipeline import Runtime

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Machine:
    """A torch device and how to use it."""

    device: torch.device
    threads: int
    autocast: bool
    channels_last: bool
    loader_workers: int
    compile: bool = False
    recompute: bool = False
    dtype: str = "float32"

    @property
    def is_here(self) -> bool:
        """Whether PyTorch finds the device; a study may be planned for, or sent to, another machine."""
        import torch

        return self.device.type != "cuda" or (self.device.index or 0) < torch.cuda.device_count()

    @property
    def name(self) -> str:
        """For people: the GPU's name, or the number of CPU threads."""
        import torch

        if not self.is_here:
            return f"{self.device} (not on this machine)"
        if self.device.type == "cuda":
            return torch.cuda.get_device_name(self.device)
        return f"CPU, {plural(self.threads, 'thread')}"

    @property
    def lacks_bf16(self) -> bool:
        """Whether a GPU that computes in bfloat16 is to run the network in float32."""
        import torch

        on_gpu = self.device.type == "cuda" and self.is_here and not self.autocast
        return on_gpu and torch.cuda.is_bf16_supported(including_emulation=False)

    def or_processor(self) -> Machine:
        """Machine with its processor in place of a device that it does not have; else itself."""
        import torch

        return self if self.is_here else replace(self, device=torch.device("cpu"), autocast=False, compile=False)

    def take(self) -> None:
        """Have this process work there: torch's threads, and its GPU as the current one."""
        import torch

        torch.set_num_threads(self.threads)
        if self.device.index is not None and self.is_here:
            torch.cuda.set_device(self.device)

    def at(self, place: int) -> Machine:
        """For the process with this number on the machine: where there are several GPUs, its own."""
        import torch

        if self.device.type != "cuda" or self.device.index is not None or not self.is_here:
            return self
        return replace(self, device=torch.device("cuda", place % torch.cuda.device_count()))


def machine_with(device: str) -> Machine:
    """Machine of `prepare_machine` for the name of a device: auto, cpu, cuda or cuda:N; raises the same."""
    try:
        runtime = Runtime(device=device)
    except ValidationError:
        raise ConfigError(
            f"'{device}' is not a device; use auto, cpu, cuda or cuda:N", kind="not a device", device=device
        ) from None
    return prepare_machine(runtime)


def prepare_machine(runtime: Runtime, at_once: int = 1, *, elsewhere: bool = False) -> Machine:
    """Resolve `auto`, set torch's threads; `at_once` studies share the CPU's cores.

    Raises `ConfigError` if the device is not here, unless training is to run `elsewhere`.
    """
    import torch

    name = runtime.device
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() and runtime.dtype == "float32" else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"runtime.device: '{name}' is not a torch device; use auto, cpu, cuda or cuda:N") from None
    if device.type == "cuda" and not elsewhere and not torch.cuda.is_available():
        raise ConfigError(
            "runtime.device: PyTorch finds no CUDA device; use --device cpu, or runtime.device: cpu in a YAML"
        )
    if device.type == "cuda" and not elsewhere and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"runtime.device: '{name}' is not there; PyTorch finds {torch.cuda.device_count()} of them",
            kind="no such device",
            device=name,
        )
    available = max(1, cores() // at_once)
    threads = runtime.threads or available
    workers = runtime.loader_workers
    if workers is None:
        workers = min(8, max(available - threads, available - 2, 0))
    steps = (runtime.bf16, runtime.channels_last, workers, runtime.compile, runtime.recompute, runtime.dtype)
    machine = Machine(device, threads, *steps)
    machine.take()
    return machine
