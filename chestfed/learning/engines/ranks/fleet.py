"""The clients as rank 0 asks them, which is the server and hosts its share, and what the other ranks answer.

What arrives is checked like everything that is sent (`messages/wire.py`). Updates are gathered and summed in the order
of the clients: the bits are those of one process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from chestfed.learning.algorithms.variables import byte_count, find_norm, from_named_tensors, is_finite, named_tensors
from chestfed.learning.engines.fleet import Fleet, Route
from chestfed.learning.engines.host import Host
from chestfed.learning.engines.messages.requests import Answer, Request
from chestfed.learning.engines.messages.shapes import Shapes
from chestfed.learning.engines.messages.wire import (
    Piece,
    WireError,
    check_header,
    count_by_type,
    count_pieces,
    flatten,
    peek,
    rebuild,
)
from chestfed.learning.engines.ranks.link import LONG, Link


class RankFleet(Fleet):
    """The clients as rank 0 sees them: some of its own, the others by their ranks.

    `teams` are the ranks that compute each client; the first of them answers.
    """

    carries = True

    def __init__(
        self,
        link: Link,
        names: Sequence[str],
        hosts: Mapping[int, Host],
        shapes: Sequence[Shapes],
        teams: Sequence[Sequence[int]],
    ) -> None:
        self.names = tuple(names)
        self._link, self._hosts, self._shapes, self._teams = link, hosts, shapes, teams

    def ask(self, requests: Mapping[int, Request[Answer]], enough: int | None = None) -> dict[int, Answer]:
        """See `Fleet.ask`; the other ranks work while this one does, and none is gone without."""
        works = self._send({number: request for number, request in requests.items() if any(self._teams[number])})
        answers = {
            number: self._hosts[number].answer(request) for number, request in requests.items() if number in self._hosts
        }
        for number, request in requests.items():
            if number not in answers:
                answers[number] = self._receive(number, request)
        for work in works:
            self._link.finish(work, "a rank that was sent something")
        return {number: answers[number] for number in requests}

    def carry(self, turns: Sequence[int], routes: Sequence[Route]) -> list[tuple[float, int]]:
        """See `Fleet.carry`: from rank to rank, all at once."""
        self._link.announce({"do": "carry", "turns": turns, "routes": routes})
        sizes = _carry(self._link, turns, routes, self._hosts, self._shapes, self._teams)
        for rank in sorted({self._teams[source][0] for source, *_ in routes} - {0}):
            note = self._link.fetch(rank, f"rank {rank}")
            sizes |= {number: (norm, count) for number, norm, count in note["sizes"]}
        return [sizes[number] for number in range(len(routes))]

    def close(self) -> None:
        """Release the batches' threads and files; the other ranks do so when the next clients are announced."""
        for host in self._hosts.values():
            host.client.close()

    def _send(self, requests: Mapping[int, Request[Answer]]) -> list[dist.Work]:
        """Requests to other ranks; tensors that several share are sent once, those for several ranks to all."""
        described: list[tuple[int, str, int]] = []
        parcels: dict[tuple[int, ...], tuple[list[Tensor], set[int]]] = {}
        for number, request in requests.items():
            header, tensors = flatten(request)
            key = tuple(id(tensor) for tensor in tensors)
            parcels.setdefault(key, (tensors, set()))[1].update(rank for rank in self._teams[number] if rank)
            described.append((number, header.decode(), list(parcels).index(key)))
        if not requests:
            return []
        about = [(count_pieces(tensors), sorted(ranks)) for tensors, ranks in parcels.values()]
        self._link.announce({"do": "ask", "requests": described, "parcels": about})
        works: list[dist.Work] = []
        for tensors, ranks in parcels.values():
            works += self._link.spread(tensors) if len(ranks) > 1 else self._link.push(next(iter(ranks)), tensors)
        return works

    def _receive(self, number: int, request: Request[Answer]) -> Answer:
        link, rank = self._link, self._teams[number][0]
        what = f"client '{self.names[number]}' on rank {rank}"
        note = link.fetch(rank, what)
        like = self._shapes[number].reply(request)
        header = str(note["header"]).encode()
        return rebuild(header, link.pull(rank, check_header(header, like, what), what), like, what)


def answer_requests(
    link: Link,
    note: Mapping[str, Any],
    hosts: Mapping[int, Host],
    shapes: Sequence[Shapes],
    teams: Sequence[Sequence[int]],
) -> None:
    """Carry out what rank 0 asks of the clients of this rank; the first rank of a client's team answers."""
    parcels = [_open_parcel(link, pieces, ranks) for pieces, ranks in note["parcels"]]
    works: list[dist.Work] = []
    answers: list[list[Tensor]] = []  # they must stay until they are sent
    for number, text, parcel in note["requests"]:
        if number not in hosts:
            continue
        header = text.encode()
        like = shapes[number].request(*peek(header, "rank 0"), "rank 0")
        if count_by_type(check_header(header, like, "rank 0")) != {
            kind: len(run) for kind, run in parcels[parcel].items()
        }:
            raise WireError("rank 0 sent other arrays than it announced", kind="other arrays", sender="rank 0")
        answer, tensors = flatten(hosts[number].answer(rebuild(header, parcels[parcel], like, "rank 0")))
        if teams[number][0] != link.rank:
            continue
        works += link.post(0, {"header": answer.decode()})
        works += link.push(0, tensors)
        answers.append(tensors)
    for work in works:
        link.finish(work, "rank 0", LONG)  # which first does its own clients' work


def _open_parcel(link: Link, pieces: Sequence[Piece], ranks: Sequence[int]) -> dict[str, Tensor]:
    """Tensors that rank 0 sends to these ranks: to all, if there are several, so that every rank takes part."""
    if len(ranks) > 1:
        return link.take(0, pieces, "rank 0")
    return link.pull(0, pieces, "rank 0") if ranks == [link.rank] else {}


def carry_messages(
    link: Link,
    note: Mapping[str, Any],
    hosts: Mapping[int, Host],
    shapes: Sequence[Shapes],
    teams: Sequence[Sequence[int]],
) -> None:
    """Send and take this rank's share of the messages that rank 0 announced, and report to it what was sent."""
    sizes = _carry(link, note["turns"], note["routes"], hosts, shapes, teams)
    if sizes:
        for work in link.post(0, {"sizes": [(number, *size) for number, size in sizes.items()]}):
            link.finish(work, "rank 0")


def _carry(
    link: Link,
    turns: Sequence[int],
    routes: Sequence[Route],
    hosts: Mapping[int, Host],
    shapes: Sequence[Shapes],
    teams: Sequence[Sequence[int]],
) -> dict[int, tuple[float, int]]:
    """Give messages to the hosts that take them; norm and bytes of those that this rank answers for, by route."""
    sizes: dict[int, tuple[float, int]] = {}
    sent: list[tuple[int, Tensor]] = []
    due: list[tuple[int, Tensor]] = []
    arriving: list[tuple[Route, dict[str, Tensor]]] = []
    for number, (source, edge, target, place) in enumerate(routes):
        first = teams[source][0]
        if source in hosts:
            host = hosts[source]
            message = host.rule.message(host.stepped[turns[source]].state, edge)
            if link.rank == first:
                sizes[number] = find_norm(message), byte_count(message)
                others = [rank for rank in teams[target] if rank not in teams[source]]
                sent += [(rank, part) for rank in others for part in named_tensors(message).values()]
            if target in hosts:
                hosts[target].arrived[place] = message
        elif target in hosts:
            hosts[target].arrived[place] = like = shapes[target].edge_message  # its place in the order, for now
            parts = {name: torch.empty_like(part, device=link.place) for name, part in named_tensors(like).items()}
            due += [(first, part) for part in parts.values()]
            arriving.append(((source, edge, target, place), parts))
    link.swap(sent, due, "a rank with a neighbor")
    for (source, _, target, place), parts in arriving:
        if not all(map(is_finite, parts.values())):
            sender = f"rank {teams[source][0]}"
            raise WireError(f"{sender}: a message has NaN or infinity", kind="not finite", sender=sender)
        tensors = {name: part.to(link.device) for name, part in parts.items()}
        hosts[target].arrived[place] = from_named_tensors(hosts[target].arrived[place], tensors)
    return sizes
