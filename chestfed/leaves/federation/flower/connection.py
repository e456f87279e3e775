"""One signed request to the server, to say in a sentence why a hospital cannot connect."""

from __future__ import annotations

import base64
import datetime
import json
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from chestfed._version import __version__
from chestfed.core.errors import ChestfedError, ConfigError
from chestfed.leaves.federation.flower.gate import HELLO, KEY_HEADER, SIGNATURE_HEADER, TIME_HEADER
from chestfed.leaves.federation.keys import public_bytes, read_key
from chestfed.leaves.federation.settings import Hospital

#: Seconds that the clocks may differ before it is reported, less than the server's tolerance.
SKEW = 3.0


class ConnectionFault(ChestfedError):
    """The hospital cannot connect: `kind` says why, the message what to do."""


def check_connection(hospital: Hospital, *, insecure: bool) -> list[str]:
    """Check a connection and return notes on one that works: three sentences at most.

    Raises
    ------
    ConnectionFault
        If the server is not reached, is another one, or does not know this hospital.
    """
    return _greet(hospital, insecure=insecure)[2]


def choose_key(hospital: Hospital, *, insecure: bool) -> Path:
    """The private key to connect with: the old one if, after `federation rekey`, the server knows only that one."""
    if hospital.old_key.exists():
        with suppress(ConnectionFault):
            return _greet(hospital, insecure=insecure)[0]
    return hospital.path("key")


def ask_status(hospital: Hospital, *, insecure: bool) -> str:
    """Ask the server for the state of this hospital's node, registered, online or offline; empty if that fails."""
    try:
        return str(_greet(hospital, insecure=insecure)[1].get("status", ""))
    except ConnectionFault:
        return ""


def _greet(hospital: Hospital, *, insecure: bool) -> tuple[Path, dict[str, Any], list[str]]:
    """The key that the server accepts, its answer, and notes; raises as `check_connection`.

    The old key, if there is one, is deleted once the server has accepted the new one.
    """
    key, old, name = hospital.path("key"), hospital.old_key, hospital.file.hospital
    try:
        about, notes = _say_hello(hospital, key, insecure=insecure)
    except ConnectionFault as refusal:
        if refusal.kind != "unknown key" or not old.exists():
            raise
        try:
            about, notes = _say_hello(hospital, old, insecure=insecure)
        except (ConnectionFault, ConfigError):
            raise refusal from None
        note = f"the server does not have the new key yet, so that the old one is used: {_ask_for_key(name)}"
        return old, about, [note, *notes]
    if about.get("name") == name:  # without TLS the server compares no keys
        old.unlink(missing_ok=True)
    return key, about, notes


def _say_hello(hospital: Hospital, key_file: Path, *, insecure: bool) -> tuple[dict[str, Any], list[str]]:
    """The server's answer to this key, and notes; raises as `check_connection`."""
    server, name = hospital.file.server, hospital.file.hospital
    now = datetime.datetime.now(datetime.UTC)
    stamp, key = now.isoformat(), read_key(key_file)
    signature = key.sign(stamp.encode(), ec.ECDSA(hashes.SHA256()))
    headers = {
        KEY_HEADER: base64.b64encode(public_bytes(key.public_key())).decode(),
        TIME_HEADER: stamp,
        SIGNATURE_HEADER: base64.b64encode(signature).decode(),
    }
    verify = True if insecure else ssl.create_default_context(cafile=str(hospital.path("authority")))
    url = f"{'http' if insecure else 'https'}://{server}{HELLO}"
    try:
        reply = httpx.get(url, headers=headers, verify=verify, timeout=20, trust_env=False)
    except (httpx.HTTPError, ssl.SSLError) as error:
        raise _explain_transport(str(error), server) from None
    try:
        about = reply.json()
        there = datetime.datetime.fromisoformat(about["time"])
    except (json.JSONDecodeError, KeyError, TypeError, ValueError):
        raise ConnectionFault(
            f"{server} answers, but is not a server of chestfed (HTTP {reply.status_code}): check `server` in "
            "hospital.yaml, and whether a proxy is in between",
            kind="another server",
        ) from None
    skew = (now - there).total_seconds()
    if reply.status_code != 200:
        raise _explain_refusal(about.get("reason", ""), name, skew)
    lines = []
    if about["version"] != __version__:
        lines.append(f"the server has chestfed {about['version']}, this is {__version__}: install the same version")
    if about.get("name") not in (None, name, "a node"):
        raise ConnectionFault(
            f"the server knows this key as '{about['name']}', and hospital.yaml says {name}: change one", kind="name"
        )
    if abs(skew) > SKEW:
        lines.append(f"this clock is {_skew(skew)} the server's; beyond 5 s ahead it refuses: set the clock (NTP)")
    return about, lines


def _explain_transport(text: str, server: str) -> ConnectionFault:
    cases = {
        "certificate has expired": (
            "certificate ended",
            "the server's certificate, or the authority's, has ended: its administrator runs `federation renew`",
        ),
        "not yet valid": ("clock", "the server's certificate is not valid yet: is this machine's clock behind?"),
        "mismatch": (
            "another name",
            f"the certificate is not for {server}: use the address in the server's federation.yaml",
        ),
        "CERTIFICATE_VERIFY_FAILED": (
            "another authority",
            "the server is not certified by authority.crt: ask its administrator for the present authority.crt, and "
            "compare it by telephone; somebody in between would look the same",
        ),
        "WRONG_VERSION_NUMBER": ("no TLS", f"{server} answers without TLS: is the server started with --insecure?"),
        "Name or service not known": ("name", f"{server}: no such host; check `server` in hospital.yaml and DNS"),
        "refused": (
            "not there",
            f"{server}: nothing listens there; is `chestfed federation server` running, and the port right?",
        ),
        "timed out": ("timeout", f"{server}: no answer; does a firewall let this machine out to that port?"),
        "unreachable": ("timeout", f"{server}: no route; does a firewall let this machine out to that port?"),
    }
    for part, (kind, advice) in cases.items():
        if part in text:
            return ConnectionFault(advice, kind=kind)
    return ConnectionFault(f"{server}: {text or 'the connection was closed'}", kind="transport")


def _explain_refusal(reason: str, name: str, skew: float) -> ConnectionFault:
    advice = {
        "unknown key": f"the server does not know the key of {name}: {_ask_for_key(name)}",
        "clock": f"this clock is {_skew(skew)} the server's, so that it refuses: set the clock (NTP)",
    }.get(reason, f"the server refuses: {reason}")
    return ConnectionFault(advice, kind=reason)


def _ask_for_key(name: str) -> str:
    return (
        f"send its administrator {name}.pub, for `chestfed federation add FOLDER {name} --key {name}.pub` (with "
        "--replace if it has another one of it)"
    )


def _skew(seconds: float) -> str:
    return f"{abs(seconds):,.0f} s {'ahead of' if seconds > 0 else 'behind'}"
