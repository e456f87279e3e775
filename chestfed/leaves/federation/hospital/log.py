"""`hospital.log`: requests and their outcomes as JSON lines, without a number of a model or a name of a patient."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from chestfed.core.errors import ChestfedError
from chestfed.learning.engines.messages.wire import Packed, WireError, peek
from chestfed.leaves.federation.allowance import Allowance
from chestfed.leaves.federation.hospital.audit import LOG, link, list_files
from chestfed.leaves.federation.parcels import Parcel, hash_request
from chestfed.leaves.federation.settings import Hospital

#: The kinds of requests that are answered; of them those that make ready, as often as a server asks.
KINDS = ("greet", "open", "pretrain", "begin", "ask", "score")
_READY = ("greet", "begin")
#: Patterns of a study's digest and a record's name, as the log quotes them from a question.
DIGEST, _RECORD = re.compile("[0-9a-f]{64}"), re.compile("[A-Za-z]{1,20}")

#: Characters of a text in a line, a number there that a server chose, fields of an answer that it names, and bytes of a
#: file.
LONGEST, LARGEST, MOST_FIELDS, FILE_BYTES = 500, 10**9, 40, 1_000_000
_TIME = "%Y-%m-%dT%H:%M:%S%z"


def hospital_log(hospital: Hospital) -> logging.Logger:
    """The logger of a hospital: texts, and a dictionary for each request."""
    return logging.getLogger(f"chestfed.hospital.{hospital.file.hospital}")


def request_entry(question: Parcel | WireError) -> dict[str, Any]:
    """Log entry of a request: kind, study, K, what the client does and at which turn, and bytes; no numbers."""
    if isinstance(question, WireError):
        return {"request": "unreadable", "received": 0}
    seen = question.values.get("log")
    values = question.values
    kind, study, k, test = (values.get(key) for key in ("kind", "study", "k", "test"))
    entry = {
        "request": kind if isinstance(kind, str) and kind in KINDS else "unknown",
        "study": study if isinstance(study, str) and DIGEST.fullmatch(study) else None,
        "k": k if _is_number(k) else None,
        "test": test if test in ("own", "study") else None,
        "received": question.size,
        "question": hash_parcel(question),
        "seen": seen if is_head(seen) else None,
    }
    if kind == "ask" and question.packed.header:
        with suppress(WireError):
            record, plain = peek(question.packed.header, "the server")
            turn = plain.get("after")
            entry |= {
                "record": record if _RECORD.fullmatch(record) else None,
                "turn": turn if _is_number(turn) else None,
            }
    return {key: value for key, value in entry.items() if value is not None}


def hash_parcel(parcel: Parcel) -> str:
    """SHA-256 of what was asked or answered: values, header and numbers."""
    return hash_request(
        Packed(json.dumps([parcel.values, parcel.packed.header.decode()]).encode(), parcel.packed.arrays)
    )


def fields_of(reply: Parcel) -> list[str]:
    """Fields of an answer: keys of its values, and the record with its tensors."""
    fields = [key for key in reply.values if key not in ("nonce", "kind", "log")]
    with suppress(ValueError, KeyError, TypeError):
        header = json.loads(reply.packed.header)
        fields += [f"{header['record']}.{name}" for name, *_ in header["tensors"]]
    return fields[:MOST_FIELDS]


class Chain(logging.Handler):
    """`hospital.log`, of which each line has its number and the SHA-256 of itself and the line before.

    A full file is renamed to `hospital.log.1`, the next one to `hospital.log.2`; none is ever removed. Requests of
    no study that was agreed upon, and of one those that are neither answered nor counted, or that make ready and
    compute nothing, are written down a hundred times an hour each, then counted: at the end of the hour, and when the
    log is closed. A line that was begun and not ended is replaced by one that says so. `failure` is why the last record
    could not be written.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.file, self.number, self.head = folder / LOG, 0, ""
        self.failure: OSError | None = None
        self._is_whole = False  # whether the file is known to end with a line
        self._allowances = {
            kind: Allowance() for kind in ("of no study", "not answered", "answered, to greet or begin")
        }
        for file in reversed([file for file in list_files(folder) if file.exists() and file.stat().st_size]):
            last, _ = _read_end(file)
            if last is not None:
                self.number, self.head = last
                break
        self.file.open("a", encoding="utf-8").close()

    def flush(self) -> None:
        """Write down how many requests were left out in an hour that is over; see `logging.Handler`."""
        self._write_missed([kind for kind, allowance in self._allowances.items() if allowance.is_over()])

    def close(self) -> None:
        """Write down how many requests were left out until now; see `logging.Handler`."""
        self._write_missed(self._allowances)
        super().close()

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`; the terminal still shows all messages."""
        about = record.msg if isinstance(record.msg, dict) else {"text": record.getMessage()}
        entry = {"time": time.strftime(_TIME, time.localtime(record.created)), **about}
        if record.exc_info:
            places = traceback.format_tb(record.exc_info[2])  # without the error's text, which may name files
            entry["traceback"] = "".join(places)[-LONGEST:]
        self.failure = None
        self.flush()
        if self._is_written(entry):
            self._write({key: _cut(value) for key, value in entry.items()})

    def _is_written(self, entry: dict[str, Any]) -> bool:
        agreed = entry.get("agreed", False)
        answered = agreed and entry["outcome"] == "answered"
        if "request" not in entry or "counted" in entry or (answered and entry["request"] not in _READY):
            return True
        kind = "answered, to greet or begin" if answered else "not answered" if agreed else "of no study"
        return self._allowances[kind].take()

    def _write_missed(self, kinds: Iterable[str]) -> None:
        for kind in kinds:
            if missed := self._allowances[kind].missed():
                self._write({"time": time.strftime(_TIME), "missed": missed, "kind": kind})

    def _write(self, entry: dict[str, Any]) -> None:
        """Add a line, after one that says what became of a torn one; a full disk is reported in one line."""
        try:
            torn = b"" if self._is_whole or not self.file.is_file() else _read_end(self.file)[1]
            self._is_whole = False
            if torn:
                os.truncate(self.file, self.file.stat().st_size - len(torn))
                text = f"line {self.number + 1} was begun and not ended, by a kill, without power or on a full disk: "
                self._add({"time": entry["time"], "text": _cut(text + torn.decode(errors="replace"))})
            self._add(entry)
            self._is_whole = True
        except OSError as error:
            self.failure = error
            sys.stderr.write(f"{self.file}: cannot be written: {error}\n")

    def _add(self, entry: dict[str, Any]) -> None:
        if self.file.exists() and self.file.stat().st_size > FILE_BYTES:
            full = [int(file.suffix[1:]) for file in list_files(self.file.parent) if file != self.file]
            self.file.rename(self.file.with_name(f"{LOG}.{max(full, default=0) + 1}"))
        line = {"line": self.number + 1, **entry}
        chain = link(self.head, line)
        with self.file.open("a", encoding="utf-8", newline="\n") as file:
            file.write(json.dumps({**line, "chain": chain}) + "\n")
        self.number, self.head = self.number + 1, chain


def _read_end(file: Path) -> tuple[tuple[int, str] | None, bytes]:
    """Number and hash of the last line of a file, if it has one, and what follows the last end of a line."""
    with file.open("rb") as opened:
        opened.seek(max(0, file.stat().st_size - FILE_BYTES))
        whole, _, rest = opened.read(FILE_BYTES).rpartition(b"\n")
    for text in reversed(whole.splitlines()):
        with suppress(ValueError, KeyError, TypeError):
            last = json.loads(text)
            return (int(last["line"]), str(last["chain"])), rest
    return None, rest


def _cut(value: Any) -> Any:
    return value if not isinstance(value, str) or len(value) <= LONGEST else f"{value[:LONGEST]} ..."


def count_logged(state: Path, study: str) -> dict[str, float]:
    """Sum up the lines of a study's requests: how many were counted as what, seconds, and bytes sent."""
    used = defaultdict[str, float](int)
    for file in list_files(state):
        for text in file.read_text(encoding="utf-8", errors="replace").splitlines() if file.exists() else ():
            if f'"{study}"' in text:
                with suppress(ValueError, KeyError, TypeError):  # a line that is damaged is the audit's business
                    entry = json.loads(text)
                    if entry["study"] == study and entry["agreed"]:
                        for key, amount in (("seconds", entry["seconds"]), ("sent", entry["sent"])):
                            used[key] += amount
                        used[entry.get("counted", "")] += 1
    return used


def open_log(hospital: Hospital) -> logging.Logger:
    """`hospital.log` in the state folder; see `Chain`."""
    folder, log = hospital.path("state"), hospital_log(hospital)
    for earlier in log.handlers:
        earlier.close()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handler = Chain(folder)
    except OSError as error:
        raise ChestfedError(f"{folder}: cannot be written: {error.strerror}") from None
    log.handlers, log.propagate = [handler], False
    log.setLevel(logging.INFO)
    return log


def file_of(log: logging.Logger) -> Chain | None:
    """The file of an open log."""
    return next((handler for handler in log.handlers if isinstance(handler, Chain)), None)


def is_head(value: object) -> bool:
    """Whether this is the number and the hash of a line."""
    if not isinstance(value, list | tuple) or len(value) != 2:
        return False
    number, chain = value
    return _is_number(number) and isinstance(chain, str) and DIGEST.fullmatch(chain) is not None


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value <= LARGEST
