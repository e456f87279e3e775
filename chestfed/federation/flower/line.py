"""What is used of Flower's interior: a run without an app bundle's code, and a node whose answers are given here.

Flower hands each message to a new process that unpacks and runs code sent by the server. Here the bundle is empty: a
hospital answers from the chestfed that it installed itself, in one process that keeps its images open, and the server's
side of a run is `chestfed federation run`. Everything that is not Flower's public interface is in this file.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
from flwr.app import Message
from flwr.cli.build import build_fab_from_files
from flwr.common.constant import ErrorCode, SubStatus
from flwr.common.serde import run_from_proto
from flwr.proto.control_pb2 import StartRunRequest
from flwr.proto.fab_pb2 import Fab
from flwr.proto.runtime_pb2 import (
    AcquireTaskRequest,
    PullTaskInputRequest,
    PushTaskOutputRequest,
    SendTaskHeartbeatRequest,
)
from flwr.supercore.constant import TaskType
from flwr.supercore.control.control_http_client import ControlHttpClient
from flwr.supercore.heartbeat import HeartbeatSender
from flwr.supercore.inflatable.inflatable_utils import ObjectPullError, ObjectPushError
from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor, RuntimeVersionHttpInterceptor
from flwr.supercore.interceptors.http import SuperExecAuthHttpInterceptor
from flwr.supercore.protobuf.client import ProtobufCall, ProtobufRequestContext
from flwr.supercore.run import RunNotRunningException
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid import HttpGrid
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

from chestfed._version import __version__
from chestfed.core.errors import ChestfedError
from chestfed.engines.messages.wire import WireError
from chestfed.federation.flower.gate import OPERATOR_HEADER
from chestfed.federation.flower.records import from_record, to_record
from chestfed.federation.keys import read_secret
from chestfed.federation.parcels import LineLost, Parcel, Undelivered
from chestfed.federation.settings import Federation

#: Seconds between two looks for a message or a task; of a hospital that nobody has asked for `IDLE_AFTER`: `IDLE`.
POLL, IDLE, IDLE_AFTER = 0.25, 1.0, 5.0

_UNDELIVERED = {
    ErrorCode.MESSAGE_UNAVAILABLE,
    ErrorCode.REPLY_MESSAGE_UNAVAILABLE,
    ErrorCode.NODE_UNAVAILABLE,
    ErrorCode.CLIENT_APP_CRASHED,  # so its node says of a hospital that has not shown a sign of life for a while
}

_BUNDLE = f"""[project]
name = "chestfed"
version = "{__version__}"
description = "Without code: each side runs its own chestfed"
license = "Apache-2.0"
dependencies = []
[tool.flwr.app]
publisher = "chestfed"
[tool.flwr.app.components]
serverapp = "chestfed:none"
clientapp = "chestfed:none"
"""

_log = logging.getLogger("chestfed.federation")


def server_of(federation: Federation, *, insecure: bool) -> Server:
    """The running server of this machine."""
    authority = None if insecure else federation.authority
    return Server(federation.local_address, authority, read_secret(federation.operator_secret))


class _Operator:
    """Puts the operator's secret into requests."""

    def __init__(self, secret: str) -> None:
        self._secret = secret

    def intercept(self, context: ProtobufRequestContext, call_next: ProtobufCall) -> httpx.Response:
        context.request.headers[OPERATOR_HEADER] = self._secret
        return call_next(context)


class Server:
    """The running server, as `chestfed federation run` and `status` see it."""

    def __init__(self, address: str, authority: Path | None, secret: str) -> None:
        self._address = address
        self._authority = None if authority is None else authority.read_bytes()
        self._operator = _Operator(secret)

    def nodes(self) -> dict[str, str]:
        """Status of each registered hospital, by name: registered, online or offline.

        Raises
        ------
        ChestfedError
            If the server does not answer.
        """
        from flwr.proto.control_pb2 import ListNodesRequest

        with self._reached(), self._control() as control:
            nodes = control.ListNodes(ListNodesRequest()).nodes_info
            return {node.name: node.status for node in nodes if node.status != "unregistered"}

    @contextmanager
    def run(self) -> Iterator[HttpGrid]:
        """A new run, and the grid that reaches its nodes; the run ends with the block."""
        with self._reached():
            token = self._start()
        grid = HttpGrid(self._address, self._authority is None, self._authority, token=token)
        client = self._runtime(RuntimeTokenHttpInterceptor(token))
        grid._client = client  # the grid's own would not carry the operator's secret
        heart = _heart_of(client)
        try:
            with self._reached():
                given = client.PullTaskInput(PullTaskInputRequest())
            grid.set_run(run_from_proto(given.run))
            TaskIdentity.task_id, TaskIdentity.run_id = given.task_id, given.run.run_id
            TaskIdentity.node_id = given.context.node_id
            heart.start()
            yield grid
        finally:
            if heart.is_running:
                heart.stop()
            try:
                client.PushTaskOutput(PushTaskOutputRequest(sub_status=SubStatus.COMPLETED, details=""))
            except httpx.HTTPError as error:
                _log.debug("the server did not hear of the run's end: %s", _reason(error))
            grid.close()

    def _start(self) -> str:
        """The token of a new run's task on the server's side."""
        content = build_fab_from_files({"pyproject.toml": _BUNDLE.encode()})[0]
        fab = Fab(hash_str=hashlib.sha256(content).hexdigest(), content=content)
        with self._control() as control:
            run_id = control.StartRun(StartRunRequest(fab=fab)).run_id
        client = self._runtime()
        try:
            for _ in range(40):
                got = client.AcquireTask(AcquireTaskRequest(supported_task_types=[TaskType.SERVER_APP]))
                if got.token and got.task.run_id == run_id:
                    return got.token
                time.sleep(POLL)
        finally:
            client.close()
        raise ChestfedError(f"the server at {self._address} started no run. Is another federation run under way?")

    def _control(self) -> ControlHttpClient:
        return ControlHttpClient.from_server_address(
            self._address, self._authority is None, self._authority, interceptors=[self._operator]
        )

    def _runtime(self, *further: RuntimeTokenHttpInterceptor) -> RuntimeHttpClient:
        version = RuntimeVersionHttpInterceptor(component_name="flwr-serverapp")
        return RuntimeHttpClient.from_server_address(
            self._address, self._authority is None, self._authority, interceptors=[version, *further, self._operator]
        )

    @contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except httpx.HTTPError as error:
            raise ChestfedError(
                f"no server answers at {self._address} ({_reason(error)}). Start it with `chestfed federation server`, "
                "from the same folder"
            ) from None


class FlowerLine:
    """Carries parcels over runs of the server, one after the other if it is stopped and started again."""

    def __init__(self, server: Server) -> None:
        self._server, self._run = server, ExitStack()
        self._grid: HttpGrid | None = None
        self._nodes: dict[str, int] = {}

    def online(self) -> dict[str, str]:
        with self._carried() as grid:
            nodes = [node for node in grid.get_nodes() if node.status == "online"]
        self._nodes = {node.name: node.node_id for node in nodes}
        return {node.name: node.last_activated_at for node in nodes}

    def send(self, name: str, parcel: Parcel, seconds: float) -> str:
        with self._carried() as grid:
            message = Message(to_record(parcel), self._nodes[name], "train", ttl=seconds)
            (ticket,) = grid.push_messages([message])
        return str(ticket)

    def receive(self, tickets: list[str]) -> dict[str, Parcel | ChestfedError]:
        with self._carried() as grid:
            return {reply.metadata.reply_to_message_id: _parcel_of(reply) for reply in grid.pull_messages(tickets)}

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
    def _carried(self) -> Iterator[HttpGrid]:
        try:
            if self._grid is None:
                self._grid = self._run.enter_context(self._server.run())
            yield self._grid
        except (httpx.HTTPError, RunNotRunningException) as error:
            raise LineLost(_reason(error)) from None


def _parcel_of(reply: Message) -> Parcel | ChestfedError:
    if reply.has_error():
        kind = Undelivered if reply.error.code in _UNDELIVERED else WireError
        return kind(f"Flower reports error {reply.error.code}")
    try:
        return from_record(reply.content, "a hospital")
    except WireError as error:
        return error


def answer_messages(
    port: int, secret: bytes, answer: Callable[[Parcel | WireError], Parcel], stopped: Callable[[], bool]
) -> None:
    """Take each message that the node on this loopback port receives, and send the answer; until `stopped()`."""
    address = f"127.0.0.1:{port}"
    version = RuntimeVersionHttpInterceptor(component_name="SuperExec")
    proof = SuperExecAuthHttpInterceptor(
        master_secret=secret, protected_methods=frozenset({"/flwr.proto.Runtime/AcquireTask"})
    )
    client = RuntimeHttpClient.from_server_address(address, True, None, interceptors=[version, proof])
    answered = time.monotonic()
    try:
        while not stopped():
            try:
                got = client.AcquireTask(AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP]))
                if got.HasField("task") and got.token:
                    _answer_one(address, got.token, answer)
                    answered = time.monotonic()
                    continue
            except _Undone as error:
                logging.getLogger("chestfed.hospital").warning("an answer was not delivered: %s", error)
            except httpx.HTTPError as error:  # the node is starting, or starting again
                _log.debug("the node does not answer: %s", _reason(error))
            time.sleep(POLL if time.monotonic() - answered < IDLE_AFTER else IDLE)
    finally:
        client.close()


def _answer_one(address: str, token: str, answer: Callable[[Parcel | WireError], Parcel]) -> None:
    """Answer the task of a token.

    Raises
    ------
    _Undone
        If Flower cannot carry the message, or the answer; the server asks again.
    """
    interceptors = [RuntimeVersionHttpInterceptor(component_name="flwr-clientapp"), RuntimeTokenHttpInterceptor(token)]
    client = RuntimeHttpClient.from_server_address(address, True, None, interceptors=interceptors)
    heart = _heart_of(client)
    status, context = SubStatus.FAILED, None
    try:
        heart.start()
        try:
            message, context, _, _ = pull_task_input(client)
            try:
                question: Parcel | WireError = from_record(message.content, "the server")
            except WireError as error:
                question = error
            push_message(client, Message(to_record(answer(question)), reply_to=message), context)
            status = SubStatus.COMPLETED
        finally:
            push_task_output(client, context, status, "")
    except (httpx.HTTPError, ObjectPullError, ObjectPushError, RuntimeError) as error:  # the last: no message is there
        raise _Undone(f"{type(error).__name__}: {error}") from error
    finally:
        heart.stop()
        client.close()


class _Undone(Exception):
    """A task that Flower has given up, or lost the connection of."""


def _heart_of(client: RuntimeHttpClient) -> HeartbeatSender:
    """Says that a task is alive. Flower's own would interrupt this process if the server has forgotten the task."""

    def beat() -> bool:
        try:
            client.SendTaskHeartbeat(SendTaskHeartbeatRequest())
        except httpx.HTTPError as error:
            _log.debug("heartbeat: %s", _reason(error))
        return True

    return HeartbeatSender(beat)


def _reason(error: Exception) -> str:
    if isinstance(error, httpx.HTTPStatusError):
        return f"HTTP {error.response.status_code}"
    return str(error) or type(error).__name__
