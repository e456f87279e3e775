"""Downloads that continue where they stopped; pooch checks the digest before a file gets its name."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from chestfed.core.disk import size_text, writing_to
from chestfed.core.errors import ChestfedError, DamagedError

Progress = Callable[[int, int], None]

_CHUNK: Final = 1 << 20
_SECONDS: Final = 60.0


def download(url: str, target: Path, digest: str | None, size: int, progress: Progress) -> str:
    """Download a file, or find it complete; returns its digest, `sha256:...` if none is given.

    What a broken download leaves is in `target.part`, where the next one continues.

    Raises
    ------
    ChestfedError
        If the server cannot be reached or refuses, the file is more than twice as large as `size`, or the folder cannot
        be written.
    DamagedError
        If the file has another digest: it is removed.
    """
    import pooch
    from requests import RequestException

    pooch.get_logger().setLevel(logging.WARNING)
    downloader = _Resuming(target.with_name(f"{target.name}.part"), size, progress)
    try:
        with writing_to(target.parent):
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                pooch.retrieve(url, digest, target.name, target.parent, downloader=downloader)
            except RequestException as error:
                reason = getattr(getattr(error, "response", None), "reason", None) or type(error).__name__
                advice = "What is there is kept: run the same command again to continue"
                raise ChestfedError(
                    f"{target.name}: {url} cannot be downloaded ({reason}). {advice}",
                    kind="cannot be downloaded",
                    reason=reason,
                    file=target.name,
                ) from None
            return digest or f"sha256:{pooch.file_hash(str(target))}"
    except ValueError:  # of pooch, for a digest
        text = f"{target.name}: {url} is not the file that was expected: its digest is not {digest}. It was removed"
        raise DamagedError(f"{text}: try again; if that does not help, the release has changed") from None


class _Resuming:
    """A downloader for pooch that writes to `part` first and continues it, if the server's file is still the same."""

    def __init__(self, part: Path, size: int, progress: Progress) -> None:
        self._part, self._size, self._progress = part, size, progress
        self._tag = part.with_name(f"{part.name}.etag")

    def __call__(self, url: str, output_file: str, pooch: Any = None, check_only: bool = False) -> None:
        import requests

        done = self._part.stat().st_size if self._part.exists() and self._tag.exists() else 0
        headers = {"Accept-Encoding": "identity"}
        if done:
            headers |= {"Range": f"bytes={done}-", "If-Range": self._tag.read_text(encoding="utf-8")}
        with requests.get(url, headers=headers, stream=True, timeout=_SECONDS) as answer:
            finished = answer.status_code == 416 and answer.headers.get("Content-Range") == f"bytes */{done}"
            if not finished:
                answer.raise_for_status()
                self._receive(answer, done if answer.status_code == 206 else 0)
        self._part.replace(output_file)
        self._tag.unlink(missing_ok=True)

    def _receive(self, answer: Any, done: int) -> None:
        total = done + int(answer.headers.get("Content-Length") or 0)
        self._refuse_large(answer.url, total)
        self._tag.unlink(missing_ok=True)
        if tag := answer.headers.get("ETag"):
            self._tag.write_text(tag, encoding="utf-8")
        with self._part.open("ab" if done else "wb") as file:
            for chunk in answer.iter_content(_CHUNK):
                file.write(chunk)
                done += len(chunk)
                self._refuse_large(answer.url, done)
                self._progress(done, max(total, done))

    def _refuse_large(self, url: str, size: int) -> None:
        if size > 2 * self._size:
            raise ChestfedError(
                f"{url}: sends {size_text(size)} or more, and the release has {size_text(self._size)}",
                kind="larger than the release",
            )
