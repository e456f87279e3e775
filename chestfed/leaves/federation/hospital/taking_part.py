"""`chestfed federation hospital`: keep connected, answer, and say what happens."""

from __future__ import annotations

import time
from collections.abc import Callable

from filelock import FileLock, Timeout

from chestfed.core.errors import ChestfedError, ConfigError
from chestfed.core.pseudonyms import PUBLISHED
from chestfed.data.sites import load_site_config, open_site
from chestfed.learning.engines.messages.wire import WireError
from chestfed.leaves.federation.description import LEAVES
from chestfed.leaves.federation.flower.node import LOST, REKEYED, Node
from chestfed.leaves.federation.hospital.local import names_key
from chestfed.leaves.federation.hospital.log import open_log
from chestfed.leaves.federation.hospital.participant import Participant
from chestfed.leaves.federation.keys import read_secret
from chestfed.leaves.federation.parcels import Parcel
from chestfed.leaves.federation.settings import Hospital

Say = Callable[[str], object]

#: Seconds between two starts of the node, once it has ended by itself.
_AGAIN = 5.0
#: Seconds without work after which the server is asked whether it counts this hospital as online, and how often in a
#: row it says no before the node is started again; twice as often after each start that did not help, up to `MOST`:
#: where a start takes longer than that, another one would not end either.
WATCH, TIMES, MOST = 30.0, 2, 32


def check_hospital(hospital: Hospital, say: Say, *, insecure: bool = False, connect: bool = False) -> None:
    """Read everything that taking part needs, except images; with `connect` also ask the server.

    Raises
    ------
    ChestfedError
        With what is wrong and what to do.
    """
    for key in ("authority", "key"):
        if not hospital.path(key).is_file():
            raise ConfigError(f"{key}: {hospital.path(key)} is missing; it is in the folder that you were sent")
    if not hospital.path("site").is_file():
        raise ConfigError(
            f"site: {hospital.path('site')} is missing; `chestfed site new` drafts it", kind="no site YAML"
        )
    read_secret(hospital.path("key"))
    config = load_site_config(hospital.path("site"))
    if config.site != hospital.file.hospital:
        raise ConfigError(f"{hospital.path('site')}: `site` is '{config.site}', not '{hospital.file.hospital}'")
    table = open_site(config, hospital.path("data_root"))
    say(f"{config.site}: {len(table.frame):,} images in the tables, labels of {', '.join(table.diseases)}")
    is_new = not hospital.path("names_key").exists()
    if names_key(hospital, public=table.phantoms) == PUBLISHED:
        say("keyed names: with the published key, because the site is a bundled synthetic hospital")
    else:
        made = " (new: keep a backup where you keep secrets)" if is_new else ""
        say(f"keyed names: with the secret key in {hospital.path('names_key')}{made}")
    leaves = hospital.file.leaves
    say(f"leaves of test images: {LEAVES[hospital.results]}")
    say(
        f"counts below {leaves.smallest_count} are reported as {leaves.smallest_count}"
        if leaves.smallest_count
        else "counts leave as they are"
    )
    limits = hospital.file.policy.model_dump(exclude_defaults=True)
    say(f"policy: {', '.join(f'{key} {value}' for key, value in limits.items()) or 'every study is answered'}")
    if connect:
        from chestfed.leaves.federation.flower.connection import check_connection

        for line in check_connection(hospital, insecure=insecure):
            say(line)
        say(f"{hospital.file.server} answers, and knows {config.site}")


def take_part(hospital: Hospital, say: Say, *, insecure: bool) -> None:
    """Answer the server until a signal to end comes."""
    from chestfed.leaves.federation.flower.connection import ask_status
    from chestfed.leaves.federation.flower.interior import Interfaces
    from chestfed.leaves.federation.flower.line import answer_messages

    check_hospital(hospital, say)
    lock = locked(hospital)
    log = open_log(hospital)

    def report(text: str) -> None:
        log.info(text)
        say(text)

    if hospital.file.policy.most_memory is not None:
        limit_memory(hospital.file.policy.most_memory)
    node = Node(hospital, insecure=insecure)
    next_start = 0.0
    watchdog = Watchdog(lambda: ask_status(hospital, insecure=insecure))

    def stopped() -> bool:
        nonlocal next_start
        log.handlers[0].flush()  # an hour may be over
        if time.monotonic() >= next_start:
            ended = node.keep_alive()
            if ended is not None:
                report(f"not connected: {explain_end(hospital, ended, insecure=insecure)}; trying again")
                next_start = time.monotonic() + _AGAIN
                watchdog.reset()
            elif watchdog.bites():
                report("the server answers, and counts this hospital as offline: the node is started again")
                node.restart()
        return False

    try:
        report(f"{hospital.file.hospital}: connecting to {hospital.file.server}; Ctrl-C or SIGTERM ends")
        if hospital.old_key.exists():
            report(f"the old key, {hospital.old_key.name}, is used until the server has the new one")
        participant = Participant(hospital, report, say)

        def answer(question: Parcel | WireError) -> Parcel:
            reply = participant(question)
            watchdog.calm()
            return reply

        answer_messages(Interfaces(f"127.0.0.1:{node.port}", None), node.secret, answer, stopped)
    except KeyboardInterrupt:
        report("ended by a signal; what is finished is saved. Start it again at any time")
    finally:
        node.close()
        log.handlers[0].close()
        lock.release()


class Watchdog:
    """Watches work, not the process: bites if `ask` says several times in a row that the node is not online.

    Flower's node can live without a connection, after a fault of TLS or of a proxy, and says nothing.
    """

    def __init__(self, ask: Callable[[], str], clock: Callable[[], float] = time.monotonic) -> None:
        self._ask, self._clock = ask, clock
        self.calm()

    def calm(self) -> None:
        """The node works."""
        self._times = TIMES
        self.reset()

    def reset(self) -> None:
        """The node was started just now."""
        self._next, self._offline = self._clock() + WATCH, 0

    def bites(self) -> bool:
        """Whether the node is to be started again; asks at most every `WATCH` seconds."""
        if self._clock() < self._next:
            return False
        self._next = self._clock() + WATCH
        status = self._ask()
        if status == "online":
            self.calm()
        self._offline = self._offline + 1 if status in ("offline", "registered") else 0
        if self._offline < self._times:
            return False
        self._times = min(2 * self._times, MOST)
        self.reset()
        return True


def explain_end(hospital: Hospital, status: int, *, insecure: bool) -> str:
    """Why the node has ended, in a sentence, and what to do."""
    from chestfed.leaves.federation.flower.connection import ConnectionFault, check_connection

    try:
        notes = check_connection(hospital, insecure=insecure)
    except ConnectionFault as error:
        return str(error)
    if status == LOST:
        notes.append("a message was lost on the way; the server sends it again")
    elif status == REKEYED:
        if not hospital.old_key.exists():
            notes.append("the server now has the new key, and refuses the old one")
    elif status != 0:
        notes.append(
            "the server answers and knows this key, and refuses the connection: is another process, or another "
            "machine, connected with the same key? After a kill the server takes a minute to see it. node.log says more"
        )
    else:
        notes.append("the server was restarted")
    return "; ".join(notes)


def limit_memory(gib: float) -> None:
    """Let a request that needs more memory than this fail, in place of the machine.

    Raises
    ------
    ConfigError
        Where the system has no such limit.
    """
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (int(gib * 2**30), resource.getrlimit(resource.RLIMIT_DATA)[1]))
    except (ImportError, AttributeError, ValueError, OSError) as error:
        raise ConfigError(f"policy.most_memory: cannot be enforced here ({error}); set null", kind="no limit") from None


def locked(hospital: Hospital) -> FileLock:
    """The lock of the state folder: two processes would answer in turn, each with a state of its own."""
    lock = FileLock(hospital.path("state") / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        folder = hospital.path("state")
        text = f"{folder}: another process takes part with it; stop that one"
        raise ChestfedError(text, kind="in use", folder=folder) from None
    return lock
