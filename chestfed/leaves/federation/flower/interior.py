"""All that is used of Flower's interior; what of it is public is imported where it is used.

Flower hands each message to a new process that unpacks and runs code sent by the server. Here the bundle is empty: a
hospital answers from the chestfed that it installed itself, in one process that keeps its images open, and the server's
side of a run is `chestfed federation run`. Both are to Flower a task: the token of a task admits to its messages.
"""

from __future__ import annotations

import hashlib
import io
import logging
import os
import signal
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from typing import Any

import httpx
from flwr.common import constant
from flwr.proto.control_pb2 import ListNodesRequest, StartRunRequest
from flwr.proto.fleet_pb2 import PushMessagesRequest
from flwr.proto.runtime_pb2 import (
    AcquireTaskRequest,
    PullTaskInputRequest,
    PushTaskOutputRequest,
    SendTaskHeartbeatRequest,
)
from flwr.supercore.control.control_http_client import ControlHttpClient
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid import HttpGrid
from google.protobuf.message import DecodeError

from chestfed._version import __version__

#: Seconds in which a further part of a message must come, to a hospital from its node, or to a study; and the longest
#: between two tries for one.
PATIENCE, BETWEEN = 60.0, 15.0
#: Seconds between two signs of life of a task, which the other side gives up after a minute.
BEAT = 10.0
#: The bundle that Flower demands of a run.
_PROJECT = f"""[project]
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

_log = logging.getLogger("chestfed.leaves.federation")


class Interfaces:
    """The interfaces that Flower serves at an address; `headers` go with every request.

    Without `authority`, the certificate that signs the server's, it is reached without TLS.
    """

    def __init__(self, address: str, authority: bytes | None, headers: dict[str, str] | None = None) -> None:
        self._where, self._headers = (address, authority is None, authority), headers or {}

    def list_nodes(self) -> list[Any]:
        """The registered nodes, each with `name`, `status`, `node_id` and `last_activated_at`."""
        with self._control() as control:
            return list(control.ListNodes(ListNodesRequest()).nodes_info)

    def start_run(self) -> int:
        """The number of a new run."""
        bundle = io.BytesIO()
        with zipfile.ZipFile(bundle, "w") as archive:
            archive.writestr(zipfile.ZipInfo("pyproject.toml"), _PROJECT)
        fab = {"hash_str": hashlib.sha256(bundle.getvalue()).hexdigest(), "content": bundle.getvalue()}
        with self._control() as control:
            return int(control.StartRun(StartRunRequest(fab=fab)).run_id)

    @contextmanager
    def tasks(self, kind: str, secret: bytes | None = None) -> Iterator[TaskList]:
        """The tasks of a kind, `flwr-serverapp` or `flwr-clientapp`, that wait; a node's ask for its `secret`."""
        methods = frozenset({"/flwr.proto.Runtime/AcquireTask"})
        proof = (
            [] if secret is None else [SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods=methods)]
        )
        client = self._runtime(*proof)
        try:
            yield TaskList(client, kind)
        finally:
            client.close()

    @contextmanager
    def hold(self, token: str, patience: float | None = None) -> Iterator[HttpGrid]:
        """The grid of a task, by which its messages come and go; the task ends with the block.

        With `patience` a message is given up of which no further part came for so many seconds.

        Raises
        ------
        httpx.HTTPError
            If the task is not there any more.
        """
        client, ended = self._runtime(RuntimeTokenHttpInterceptor(token)), threading.Event()
        if patience is not None:
            limit_patience(client, patience)
        grid = HttpGrid(*self._where, token=token)
        grid._client = client  # the grid's own would not carry the headers, and waits for ever for a server
        heart = threading.Thread(target=_beat, args=(client, ended), daemon=True)
        output = PushTaskOutputRequest(sub_status=constant.SubStatus.FAILED)
        try:
            task = client.PullTaskInput(PullTaskInputRequest())
            grid._run = task.run
            TaskIdentity.task_id, TaskIdentity.run_id = task.task_id, task.run.run_id
            TaskIdentity.node_id = task.context.node_id
            heart.start()
            yield grid
            output.sub_status = constant.SubStatus.COMPLETED
        finally:
            ended.set()
            if heart.is_alive():
                heart.join()
            try:
                client.PushTaskOutput(output)
            except httpx.HTTPError as error:
                _log.debug("the end of a task did not arrive: %s", explain(error))
            grid.close()

    def _control(self) -> ControlHttpClient:
        return self._with_headers(ControlHttpClient.from_server_address(*self._where, interceptors=[]))

    def _runtime(self, *interceptors: object) -> RuntimeHttpClient:
        version = RuntimeVersionHttpInterceptor(component_name="chestfed")
        return self._with_headers(
            RuntimeHttpClient.from_server_address(*self._where, interceptors=[version, *interceptors])
        )

    def _with_headers(self, client: Any) -> Any:
        client._client.headers.update(self._headers)
        return client


class TaskList:
    """Tasks that wait for somebody to take them."""

    def __init__(self, client: RuntimeHttpClient, kind: str) -> None:
        self._client, self._request = client, AcquireTaskRequest(supported_task_types=[kind])

    def take(self, run: int | None = None) -> str | None:
        """The token of the next task, of a run if one is named; None: none waits."""
        got = self._client.AcquireTask(self._request)
        return got.token if got.token and run in (None, got.task.run_id) else None


def make_superlink(*, signed: bool) -> Any:
    """Flower's server as an ASGI application, its messages in memory; `signed`: nodes have keys."""
    from flwr.superlink.main import create_app

    app = create_app()
    app.state.enable_supernode_auth = signed
    return app


class Nodes:
    """The nodes that a server's application knows."""

    def __init__(self, app: Any) -> None:
        self._state = app.state.linkstate_factory.state()

    def register(self, key: bytes, name: str) -> int:
        """Admit the node with this public key; its number."""
        number = self._state.create_node(constant.NOOP_FLWR_AID, constant.NOOP_ACCOUNT_NAME, key, 0, name=name)
        return int(number)

    def unregister(self, number: int, key: bytes) -> None:
        """Refuse a node from now on. Flower would never take its key again: a hospital that comes back has the same."""
        self._state.delete_node(constant.NOOP_FLWR_AID, number)
        self._state.node_public_key_to_node_id.pop(key, None)

    def statuses(self, numbers: list[int]) -> dict[str, str]:
        """`registered`, `online` or `offline`, by name."""
        return {node.name: node.status for node in self._state.get_node_info(node_ids=numbers)}


def names_sender(body: bytes, number: int) -> bool:
    """Whether the answers in a node's request say that they are of the node of this number, as Flower does not ask."""
    try:
        answers = PushMessagesRequest.FromString(body).messages_list
    except DecodeError:
        return False
    return all(answer.metadata.src_node_id == number for answer in answers)


class EndWithLostMessage(logging.Handler):
    """Ends this process, by SIGTERM, once Flower gives a message up; `lost` says so.

    It would go on, counted as online, and the server wait for an answer to what never arrived. Of a node that was
    started again the server knows, and asks again.
    """

    lost = False
    #: Beginnings of Flower's log lines then; nothing else tells it.
    TEXTS = ("Failed to receive message", "Failed to send message")

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`."""
        if str(record.msg).startswith(self.TEXTS):
            EndWithLostMessage.lost = True
            os.kill(os.getpid(), signal.SIGTERM)  # Flower tells the server


def run_supernode(sign_of_life: int) -> None:
    """Run the program `flower-supernode` in this process, with so many seconds between its signs of life."""
    logging.getLogger("flwr").addHandler(EndWithLostMessage())
    constant.HEARTBEAT_DEFAULT_INTERVAL = sign_of_life  # before the modules that copy it are imported
    (program,) = entry_points(group="console_scripts", name="flower-supernode")
    program.load()()


def limit_patience(client: Any, seconds: float) -> None:
    """Let a client raise `Undelivered` if no part of a message came for so many seconds.

    If a run ends while its message arrives, a node keeps the task, of which the parts never come; and so does the
    server's side if a hospital ends while it sends. Between two tries for a part Flower waits `BETWEEN` at most: after
    a longer time another message is pulled.
    """
    from chestfed.leaves.federation.parcels import Undelivered  # with PyTorch, which a node does without

    pull, moved, asked = client.PullObject, time.monotonic(), 0.0

    def pull_in_time(request: object) -> Any:
        nonlocal moved, asked
        if time.monotonic() - asked > BETWEEN:
            moved = time.monotonic()
        reply = pull(request)
        asked = time.monotonic()
        if reply.object_available:
            moved = time.monotonic()
        elif time.monotonic() - moved > seconds:
            raise Undelivered("the parts of a message did not come; its run has ended, or the connection is slow")
        return reply

    client.PullObject = pull_in_time


def explain(error: Exception) -> str:
    """An error of the connection in a few words."""
    if isinstance(error, httpx.HTTPStatusError):
        return f"HTTP {error.response.status_code}"
    return str(error) or type(error).__name__


def _beat(client: RuntimeHttpClient, ended: threading.Event) -> None:
    """Say that a task is alive. Flower's own would interrupt this process if the server has forgotten the task."""
    while not ended.wait(BEAT):
        try:
            client.SendTaskHeartbeat(SendTaskHeartbeatRequest())
        except httpx.HTTPError as error:
            _log.debug("heartbeat: %s", explain(error))
