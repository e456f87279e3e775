"""The federation's certificates and keys: one authority, one server certificate, one key pair per hospital."""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from chestfed.core.errors import ConfigError

#: Days that the authority's and the server's certificates are valid. Hospitals hold a copy of the authority's.
AUTHORITY_DAYS, SERVER_DAYS = 3650, 730

Key = ec.EllipticCurvePrivateKey


def new_key() -> Key:
    """A private key on NIST P-384, the curve that Flower takes for nodes."""
    return ec.generate_private_key(ec.SECP384R1())


def authority(name: str, key: Key) -> x509.Certificate:
    """A self-signed certificate that signs the server's, and nothing below it."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{name} authority")])
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        _unsigned(subject, subject, key, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA384())
    )


def server_certificate(host: str, key: Key, issuer: x509.Certificate, issuer_key: Key) -> x509.Certificate:
    """The server's certificate, for this host name or address, and for the loopback addresses of its own machine."""
    names = dict.fromkeys([_general_name(host), *map(_general_name, ("localhost", "127.0.0.1", "::1"))])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host[:64])])
    return (
        _unsigned(subject, issuer.subject, key, SERVER_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(list(names)), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
        .sign(issuer_key, hashes.SHA384())
    )


def save_key(path: Path, key: Key, *, tls: bool = False) -> None:
    """Write a private key, readable by its owner only, in the form that Flower reads, or that TLS reads."""
    form = serialization.PrivateFormat.PKCS8 if tls else serialization.PrivateFormat.OpenSSH
    _save_secret(path, key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))


def save_certificate(path: Path, certificate: x509.Certificate) -> None:
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def save_public_key(path: Path, key: Key) -> None:
    """Write the public half, one line of text, as OpenSSH does."""
    text = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    path.write_bytes(text + b"\n")


def read_public_key(path: Path) -> ec.EllipticCurvePublicKey:
    """A hospital's public key.

    Raises
    ------
    ConfigError
        If the file is not one of this curve.
    """
    try:
        key = serialization.load_ssh_public_key(path.read_bytes())
    except (OSError, ValueError, UnsupportedAlgorithm, NotImplementedError) as error:  # the last: a compressed point
        raise ConfigError(
            f"{path}: not a public key of `chestfed federation join` ({error})", kind="not a key", file=str(path)
        ) from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP384R1):
        raise ConfigError(
            f"{path}: not a key on P-384; `chestfed federation join` makes the right kind",
            kind="not a key",
            file=str(path),
        )
    return key


def refuse_twins(folder: Path, names: Sequence[str]) -> None:
    """Raise `ConfigError` if two of the hospitals with a file NAME.pub in a folder have one key."""
    known = dict[bytes, str]()
    for name in names:
        twin = known.setdefault(public_bytes(read_public_key(folder / f"{name}.pub")), name)
        if twin != name:
            raise ConfigError(
                f"{folder / name}.pub: is the key of {twin}; each hospital has its own", kind="key in use", name=name
            )


def public_bytes(key: ec.EllipticCurvePublicKey) -> bytes:
    """A public key as PEM, by which Flower names nodes."""
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def read_key(path: Path) -> Key:
    """A private key that `save_key` wrote, in either form; raises ConfigError if it is not one."""
    text = read_secret(path).encode()
    load = serialization.load_ssh_private_key if b"OPENSSH" in text else serialization.load_pem_private_key
    try:
        key = load(text + b"\n", None)
    except ValueError as error:
        raise ConfigError(f"{path}: not a private key ({error})", kind="not a key", file=str(path)) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError(f"{path}: not an ECDSA key", kind="not a key", file=str(path))
    return key


def read_certificate(path: Path) -> x509.Certificate:
    """A certificate; raises ConfigError if the file is not one."""
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: not a certificate ({error})", kind="not a certificate", file=str(path)) from None


def days_left(path: Path) -> int:
    """Days for which a certificate is still valid; negative if it has ended."""
    return (read_certificate(path).not_valid_after_utc - datetime.datetime.now(datetime.UTC)).days


def fingerprint(key: ec.EllipticCurvePublicKey) -> str:
    """24 hexadecimal digits in groups of four, to be compared by telephone."""
    text = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    digits = hashlib.sha256(text).hexdigest()[:24]
    return " ".join(digits[place : place + 4] for place in range(0, 24, 4))


def new_secret(path: Path) -> None:
    """Write 32 random bytes in hexadecimal digits, readable by their owner only."""
    _save_secret(path, os.urandom(32).hex().encode())


def read_secret(path: Path) -> str:
    """Read what `new_secret` or `save_key` wrote."""
    try:
        mode = path.stat().st_mode
        text = path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read ({error})") from None
    if os.name != "nt" and mode & 0o077:
        raise ConfigError(f"{path}: others may read this secret: chmod 600 {path}")
    return text.strip()


def _save_secret(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def _unsigned(subject: x509.Name, issuer: x509.Name, key: Key, days: int) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))  # clocks of hospitals differ
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
