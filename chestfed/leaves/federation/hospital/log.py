"""`hospital.log`: every request and its outcome as a JSON line, without a number of a model or a name of a patient."""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from contextlib import suppress
from logging.handlers import RotatingFileHandler
from typing import Any

from chestfed.core.errors import ChestfedError
from chestfed.learning.engines.messages.wire import WireError, peek
from chestfed.leaves.federation.hospital.audit import LOG
from chestfed.leaves.federation.parcels import Parcel
from chestfed.leaves.federation.settings import Hospital

#: The kinds of requests that are answered.
KINDS = ("greet", "open", "pretrain", "begin", "ask", "sum", "score")
#: Of a study and of a record, as the log of requests quotes them from a question.
DIGEST, _RECORD = re.compile("[0-9a-f]{64}"), re.compile("[A-Za-z]{1,20}")


def hospital_log(hospital: Hospital) -> logging.Logger:
    """The logger of a hospital: texts, and a dictionary for each request."""
    return logging.getLogger(f"chestfed.hospital.{hospital.file.hospital}")


def request_entry(question: Parcel | WireError) -> dict[str, Any]:
    """What the log says of a request: kind, study, K, what the client does and at which turn, and bytes; no numbers."""
    if isinstance(question, WireError):
        return {"request": "unreadable", "received": 0}
    values = question.values
    kind, study, k, test = (values.get(key) for key in ("kind", "study", "k", "test"))
    entry = {
        "request": kind if isinstance(kind, str) and kind in KINDS else "unknown",
        "study": study if isinstance(study, str) and DIGEST.fullmatch(study) else None,
        "k": k if type(k) is int else None,
        "test": test if test in ("own", "study") else None,
        "received": question.size,
    }
    if kind in ("ask", "sum") and question.packed.header:
        with suppress(WireError):
            record, plain = peek(question.packed.header, "the server")
            turn = plain.get("after")
            entry |= {
                "record": record if _RECORD.fullmatch(record) else None,
                "turn": turn if type(turn) is int else None,
            }
    return {key: value for key, value in entry.items() if value is not None}


class _Log(RotatingFileHandler):
    """A log that reports a full disk in one line; the terminal still shows all messages."""

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
        handler = _Log(folder / LOG, maxBytes=1_000_000, backupCount=10, encoding="utf-8")
    except OSError as error:
        raise ChestfedError(f"{folder}: cannot be written: {error.strerror}") from None
    handler.setFormatter(_JsonLines())
    log = hospital_log(hospital)
    log.handlers, log.propagate = [handler], False
    log.setLevel(logging.INFO)
    return log
