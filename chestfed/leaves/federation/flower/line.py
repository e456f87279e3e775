"""Parcels by way of Flower: the study's side, and a hospital's."""

from __future__ import annotations

import ctypes
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import httpx
from flwr.app import Message
from flwr.serverapp import Grid

from chestfed.core.errors import ChestfedError
from chestfed.learning.engines.messages.wire import WireError
from chestfed.leaves.federation.flower.gate import OPERATOR_HEADER
from chestfed.leaves.federation.flower.interior import PATIENCE, Interfaces, TaskList, explain
from chestfed.leaves.federation.flower.records import from_record, to_record
from chestfed.leaves.federation.keys import read_secret
from chestfed.leaves.federation.parcels import LineLost, Parcel, Undelivered
from chestfed.leaves.federation.settings import Federation

#: Seconds between two looks for a message or a task; of a hospital without a question for `IDLE_AFTER`: `IDLE`.
POLL, IDLE, IDLE_AFTER = 0.25, 1.0, 5.0

_log = logging.getLogger("chestfed.leaves.federation")


def locate_server(federation: Federation, *, insecure: bool) -> Server:
    """The running server of this machine."""
    authority = None if insecure else federation.authority.read_bytes()
    return Server(federation.local_address, authority, read_secret(federation.operator_secret))


class Server:
    """The running server, as `chestfed federation run` and `status` see it."""

    def __init__(self, address: str, authority: bytes | None, secret: str) -> None:
        self._address, self._interfaces = address, Interfaces(address, authority, {OPERATOR_HEADER: secret})

    def nodes(self) -> dict[str, str]:
        """Status of each registered hospital, by name: registered, online or offline.

        Raises
        ------
        ChestfedError
            If the server does not answer.
        """
        with self._explain_no_answer():
            nodes = self._interfaces.list_nodes()
        return {node.name: node.status for node in nodes if node.status != "unregistered"}

    @contextmanager
    def run(self) -> Iterator[Any]:
        """A new run, and the grid that reaches its nodes; the run ends with the block."""
        with ExitStack() as stack:
            with self._explain_no_answer():
                grid = stack.enter_context(self._interfaces.hold(self._start(), PATIENCE))
            yield grid

    def _start(self) -> str:
        """The token of a new run's task on the server's side."""
        run = self._interfaces.start_run()
        with self._interfaces.tasks("flwr-serverapp") as tasks:
            for _ in range(40):
                if (token := tasks.take(run)) is not None:
                    return token
                time.sleep(POLL)
        raise ChestfedError(f"the server at {self._address} started no run. Is another federation run under way?")

    @contextmanager
    def _explain_no_answer(self) -> Iterator[None]:
        try:
            yield
        except httpx.HTTPError as error:
            raise ChestfedError(
                f"no server answers at {self._address} ({explain(error)}). Start it with `chestfed federation server`, "
                "from the same folder"
            ) from None


class FlowerLine:
    """Carries parcels over runs of the server, one after the other if it is stopped and started again."""

    def __init__(self, server: Server) -> None:
        self._server, self._run = server, ExitStack()
        self._grid: Any = None
        self._nodes: dict[str, int] = {}

    def online(self) -> dict[str, str]:
        with self._open_grid() as grid:
            nodes = [node for node in grid.get_nodes() if node.status == "online"]
        self._nodes = {node.name: node.node_id for node in nodes}
        return {node.name: node.last_activated_at for node in nodes}

    def send(self, name: str, parcel: Parcel, seconds: float) -> str:
        with self._open_grid() as grid:
            message = Message(to_record(parcel), self._nodes[name], "train", ttl=seconds)
            (ticket,) = grid.push_messages([message])
        return str(ticket)

    def receive(self, tickets: list[str]) -> dict[str, Parcel | ChestfedError]:
        replies = dict[str, Parcel | ChestfedError]()
        with self._open_grid() as grid:
            for ticket in tickets:  # each for itself: one whose parts do not come takes no other with it
                try:
                    for reply in grid.pull_messages([ticket]):
                        replies[ticket] = _read_reply(reply)
                except Undelivered as error:
                    replies[ticket] = error
        return replies

    def reconnect(self) -> None:
        self.close()
        try:
            self._grid = self._run.enter_context(self._server.run())
        except ChestfedError as error:
            raise LineLost(str(error)) from None

    def close(self) -> None:
        self._grid = None
        self._run.close()

    @contextmanager
    def _open_grid(self) -> Iterator[Any]:
        try:
            if self._grid is None:
                self._grid = self._run.enter_context(self._server.run())
            yield self._grid
        except httpx.HTTPError as error:
            raise LineLost(explain(error)) from None


def _read_reply(reply: Message) -> Parcel | ChestfedError:
    """A hospital's reply, or what prevented it: Flower answers for a hospital that is away or was killed."""
    if reply.has_error():
        return Undelivered(f"Flower reports error {reply.error.code}")
    try:
        return from_record(reply.content, "a hospital")
    except WireError as error:
        return error


def answer_messages(
    node: Interfaces, secret: bytes, answer: Callable[[Parcel | WireError], Parcel], stopped: Callable[[], bool]
) -> None:
    """Take each message that this hospital's node has received, and send the answer; until `stopped()`."""
    answered = time.monotonic()
    with node.tasks("flwr-clientapp", secret) as tasks:
        while not stopped():
            token = _take(tasks)
            if token is None:
                time.sleep(POLL if time.monotonic() - answered < IDLE_AFTER else IDLE)
                continue
            try:
                with _naming_losses(), node.hold(token, PATIENCE) as grid:
                    _answer_one(grid, answer)
            except Undelivered as error:
                logging.getLogger("chestfed.hospital").warning("an answer was not delivered: %s", error)
            answered = time.monotonic()
            with suppress(OSError, AttributeError, TypeError):  # glibc would keep what the message took for the next
                ctypes.CDLL(None).malloc_trim(0)


def _take(tasks: TaskList) -> str | None:
    try:
        return tasks.take()
    except httpx.HTTPError as error:  # the node is starting, or starting again
        _log.debug("the node does not answer: %s", explain(error))
        return None


def _answer_one(grid: Grid, answer: Callable[[Parcel | WireError], Parcel]) -> None:
    """Answer the message of a task, if it is still there; raises whatever Flower raises on the way."""
    for message in grid.pull_messages([]):
        if message.has_error():
            raise Undelivered(f"Flower reports error {message.error.code}")
        try:
            question: Parcel | WireError = from_record(message.content, "the server")
        except WireError as error:
            question = error
        grid.push_messages([Message(to_record(answer(question)), reply_to=message)])


@contextmanager
def _naming_losses() -> Iterator[None]:
    """Whatever Flower raises as `Undelivered`: the server asks again. Answers raise nothing of their own."""
    try:
        yield
    except Exception as error:
        raise Undelivered(f"{type(error).__name__}: {error}") from error
