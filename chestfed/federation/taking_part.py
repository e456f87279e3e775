"""`chestfed federation hospital`: keep connected, answer, and say what happens."""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable
from logging.handlers import RotatingFileHandler
from types import FrameType

from filelock import FileLock, Timeout

from chestfed.core.errors import ChestfedError, ConfigError
from chestfed.core.pseudonyms import PUBLISHED
from chestfed.federation.flower.node import Node
from chestfed.federation.keys import read_secret
from chestfed.federation.local import names_key
from chestfed.federation.participant import Participant, hospital_log
from chestfed.federation.settings import Hospital
from chestfed.sites import load_site_config, open_site

Say = Callable[[str], object]

_LEAVES = {
    "scores": "scores and labels, under keyed names",
    "aucs": "AUCs with intervals, and counts",
    "nothing": "nothing; it cannot be the target",
}
#: Seconds between two starts of the node, once it has ended by itself.
_AGAIN = 5.0


def check_hospital(hospital: Hospital, say: Say) -> None:
    """Read everything that taking part needs, except images and the network."""
    for key in ("authority", "key"):
        if not hospital.path(key).is_file():
            raise ConfigError(f"{key}: {hospital.path(key)} is missing; it is in the folder that you were sent")
    read_secret(hospital.path("key"))
    config = load_site_config(hospital.path("site"))
    if config.site != hospital.file.hospital:
        raise ConfigError(f"{hospital.path('site')}: `site` is '{config.site}', not '{hospital.file.hospital}'")
    table = open_site(config, hospital.path("data_root"))
    say(f"{config.site}: {len(table.frame):,} images in the tables, labels of {', '.join(table.diseases)}")
    is_new = not hospital.path("names_key").exists()
    if names_key(hospital, synthetic=table.synthetic) == PUBLISHED:
        say("keyed names: with the published key, because the site is synthetic")
    else:
        made = " (new: keep a backup where you keep secrets)" if is_new else ""
        say(f"keyed names: with the secret key in {hospital.path('names_key')}{made}")
    leaves = hospital.file.leaves
    say(f"leaves of test images: {_LEAVES[leaves.results]}")
    say(
        f"counts below {leaves.smallest_count} are reported as {leaves.smallest_count}"
        if leaves.smallest_count
        else "counts leave as they are"
    )


def take_part(hospital: Hospital, say: Say, *, insecure: bool) -> None:
    """Answer the server until a signal to end comes."""
    from chestfed.federation.flower.line import answer_messages

    check_hospital(hospital, say)
    log = open_log(hospital)
    lock = locked(hospital)

    def told(text: str) -> None:
        log.info(text)
        say(text)

    stop = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, end)
    node = Node(hospital, insecure=insecure)
    next_start = 0.0

    def stopped() -> bool:
        nonlocal next_start
        if time.monotonic() >= next_start:
            ended = node.keep_alive()
            if ended is not None:
                told(f"the connection ended (status {ended}; see {node.log_name}); reconnecting")
                next_start = time.monotonic() + _AGAIN
        return stop.is_set()

    try:
        told(f"{hospital.file.hospital}: connecting to {hospital.file.server}; Ctrl-C ends")
        answer_messages(node.port, node.secret, Participant(hospital, told), stopped)
    except KeyboardInterrupt:
        told("ended by Ctrl-C; start it again at any time")
    finally:
        node.close()
        lock.release()


def locked(hospital: Hospital) -> FileLock:
    """The lock of the state folder: two processes would answer in turn, each with a state of its own."""
    lock = FileLock(hospital.path("state") / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise ChestfedError(f"{hospital.path('state')}: another process takes part with it; stop that one") from None
    return lock


class _Log(RotatingFileHandler):
    """A log that tells of a full disk in a line; what is said is on the terminal all the same."""

    def handleError(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`, which prints a traceback for each line."""
        sys.stderr.write(f"{self.baseFilename}: cannot be written: {sys.exc_info()[1]}\n")


class _JsonLines(logging.Formatter):
    """One JSON object per line: `time`, and a request with its outcome, or `text`."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        about = record.msg if isinstance(record.msg, dict) else {"text": record.getMessage()}
        entry = {"time": time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(record.created)), **about}
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry)


def open_log(hospital: Hospital) -> logging.Logger:
    """`hospital.log` in the state folder: every request and its outcome, eleven files of a megabyte at most."""
    folder = hospital.path("state")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handler = _Log(folder / "hospital.log", maxBytes=1_000_000, backupCount=10, encoding="utf-8")
    except OSError as error:
        raise ChestfedError(f"{folder}: cannot be written: {error.strerror}") from None
    handler.setFormatter(_JsonLines())
    log = hospital_log(hospital)
    log.handlers, log.propagate = [handler], False
    log.setLevel(logging.INFO)
    return log
