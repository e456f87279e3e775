"""The clients as rank 0 asks them, which is the server and hosts its share, and what the other ranks answer.

What arrives is checked like everything that is sent (`messages/wire.py`). Updates are gathered and summed in the order
of the clients: the bits are those of one process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch.distributed as dist
from torch import Tensor

from chestfed.learning.algorithms.variables import Record
from chestfed.learning.engines.fleet import Fleet
from chestfed.learning.engines.host import Host
from chestfed.learning.engines.messages.requests import Answer, Request
from chestfed.learning.engines.messages.shapes import Shapes
from chestfed.learning.engines.messages.wire import check_header, flatten, peek, rebuild
from chestfed.learning.engines.ranks.link import LONG, Link


def find_host_rank(number: int, clients: int, ranks: int) -> int:
    """The rank that hosts a client: they are dealt out, rank 0 comes last, for it is the server too."""
    return (number + 1) % ranks if clients > 1 else 0


class RankFleet(Fleet):
    """The clients as rank 0 sees them: some of its own, the others by their ranks."""

    def __init__(self, link: Link, names: Sequence[str], hosts: Mapping[int, Host], shapes: Sequence[Shapes]) -> None:
        self.names = tuple(names)
        self._link, self._hosts, self._shapes = link, hosts, shapes

    def ask(self, requests: Mapping[int, Request[Answer]], enough: int | None = None) -> dict[int, Answer]:
        """See `Fleet.ask`; the other ranks work while this one does, and none is gone without."""
        by_rank: dict[int, dict[int, Request[Answer]]] = {}
        for number, request in requests.items():
            if number not in self._hosts:
                by_rank.setdefault(self._rank(number), {})[number] = request
        works = self._send(by_rank)
        local_requests = {number: request for number, request in requests.items() if number in self._hosts}
        answers = {number: self._hosts[number].answer(request) for number, request in local_requests.items()}
        for rank, remote in by_rank.items():
            for number, request in remote.items():
                answers[number] = self._receive(rank, number, request)
        for work in works:
            self._link.finish(work, "a rank that was sent something")
        return {number: answers[number] for number in requests}

    def close(self) -> None:
        """Release the batches' threads and files; the other ranks do so when the next clients are announced."""
        for host in self._hosts.values():
            host.client.close()

    def _rank(self, number: int) -> int:
        return find_host_rank(number, len(self.names), self._link.size)

    def _send(self, by_rank: Mapping[int, Mapping[int, Request[Answer]]]) -> list[dist.Work]:
        """Requests to other ranks; tensors that several share are sent once to each rank."""
        works: list[dist.Work] = []
        for rank, requests in by_rank.items():
            described: list[tuple[int, str, int]] = []
            parcels: dict[tuple[int, ...], list[Tensor]] = {}
            for number, request in requests.items():
                header, tensors = flatten(request)
                key = tuple(id(tensor) for tensor in tensors)
                parcels.setdefault(key, tensors)
                described.append((number, header.decode(), list(parcels).index(key)))
            self._link.post(rank, {"do": "ask", "requests": described})
            works += [work for tensors in parcels.values() for work in self._link.push(rank, tensors)]
        return works

    def _receive(self, rank: int, number: int, request: Request[Answer]) -> Answer:
        link, what = self._link, f"client '{self.names[number]}' on rank {rank}"
        note = link.fetch(rank, link.timeout, what)
        like = self._shapes[number].reply(request)
        header = str(note["header"]).encode()
        return rebuild(header, link.pull(rank, check_header(header, like, what), what), like, what)


def answer_requests(link: Link, note: Mapping[str, Any], hosts: Mapping[int, Host], shapes: Sequence[Shapes]) -> None:
    """Answer what rank 0 asks of the clients of this rank."""
    sent: list[tuple[int, str, int]] = note["requests"]
    requests: list[tuple[int, Request[Record], bytes, int]] = []
    parcels: dict[int, dict[str, Tensor]] = {}
    for number, text, parcel in sent:
        header = text.encode()
        like = shapes[number].request(*peek(header, "rank 0"), "rank 0")
        pieces = check_header(header, like, "rank 0")
        if parcel not in parcels:
            parcels[parcel] = link.pull(0, pieces, "rank 0")
        requests.append((number, like, header, parcel))
    works: list[dist.Work] = []
    answers: list[list[Tensor]] = []  # they must stay until they are sent
    for number, like, header, parcel in requests:
        answer, tensors = flatten(hosts[number].answer(rebuild(header, parcels[parcel], like, "rank 0")))
        link.post(0, {"header": answer.decode()})
        works += link.push(0, tensors)
        answers.append(tensors)
    for work in works:
        link.finish(work, "rank 0", LONG)  # which first does its own clients' work
