"""Images on their way from the threads that read them to a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor


class Uploads:
    """A ring of buffers in pinned memory, from which a GPU copies while the CPU goes on.

    A buffer is filled anew only when the last copy from it is done.

    Parameters
    ----------
    event
        Makes what is recorded behind a copy, and waited for: `torch.cuda.Event`.
    """

    def __init__(self, count: int, device: torch.device, event: Callable[[], Any] = torch.cuda.Event) -> None:
        self._device, self._event = device, event
        self._buffers: list[list[Tensor]] = [[] for _ in range(count)]
        self._copied: list[Any] = [None] * count

    def pack(self, slot: int, arrays: Sequence[np.ndarray]) -> None:
        """Fill a buffer with arrays, whose shapes are the same each time; in any thread."""
        if self._copied[slot] is not None:
            self._copied[slot].synchronize()
        tensors = [torch.from_numpy(array) for array in arrays]
        if not self._buffers[slot]:
            pinned = self._device.type == "cuda"
            self._buffers[slot] = [torch.empty_like(tensor, pin_memory=pinned) for tensor in tensors]
        for buffer, tensor in zip(self._buffers[slot], tensors, strict=True):
            buffer.copy_(tensor)

    def send(self, slot: int) -> list[Tensor]:
        """What was packed, on the device: the copy is queued there, and nothing waits for it."""
        sent = [buffer.to(self._device, non_blocking=True) for buffer in self._buffers[slot]]
        self._copied[slot] = self._event()
        self._copied[slot].record()
        return sent
