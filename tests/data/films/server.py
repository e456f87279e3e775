"""A web server on this machine, with ranges and tags, that can cut a connection; and tiny releases to serve."""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
from PIL import Image

from chestfed.data.films.registry import Release, releases


@dataclass
class Web:
    """What is served, and what was asked for: path and range."""

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    once: dict[str, bytes] = field(default_factory=dict)  #: what is served in place of `files` at the next request
    cut_after: int | None = None  #: bytes after which the next answer ends


@contextmanager
def served() -> Iterator[Web]:
    """Serve files from memory until the end of the block."""
    web = Web()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content, asked = web.once.pop(self.path, web.files.get(self.path)), self.headers.get("Range", "")
            web.asked.append((self.path, asked))
            if content is None:
                self.send_error(404)
                return
            tag = f'"{hashlib.md5(content).hexdigest()}"'
            start = int(asked.removeprefix("bytes=").rstrip("-") or 0) if self.headers.get("If-Range") == tag else 0
            self.send_response(206 if start else 200)
            self.send_header("ETag", tag)
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            end, web.cut_after = web.cut_after, None
            self.wfile.write(content[start:end])
            self.close_connection = True

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    web.address = f"http://127.0.0.1:{server.server_port}"
    try:
        yield web
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def film(number: int) -> bytes:
    """A tiny picture as JPEG."""
    out = io.BytesIO()
    Image.fromarray(np.random.default_rng(number).integers(0, 256, (32, 32), dtype=np.uint8)).save(out, "JPEG")
    return out.getvalue()


def zipped(files: Mapping[str, bytes]) -> bytes:
    """A zip archive."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


def tarred(files: Mapping[str, bytes], *more: tarfile.TarInfo) -> bytes:
    """A tar.gz archive; `more` are members without content."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for member in more:
            archive.addfile(member)
    return out.getvalue()


def make_release(web: Web, name: str, **changes: Any) -> Release:
    """A release of the registry whose only file is on the local server, with these other keys."""
    release = releases()[name]
    file = release.files[0].model_copy(update={"url": f"{web.address}/{name}", "git": {}, **changes})
    return release.model_copy(update={"files": [file]})


def sha256(content: bytes) -> str:
    """As the registry writes it."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
