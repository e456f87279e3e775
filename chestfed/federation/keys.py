"""The federation's certificates and keys: one authority, one server certificate, one key pair per hospital."""

from __future__ import annotations

import datetime
import ipaddress
import os
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from chestfed.core.errors import ConfigError

#: Days that certificates are valid. Browsers would refuse more than 398; hospitals' clocks and audits do not.
VALID_DAYS = 730

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
        _unsigned(subject, subject, key)
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
        _unsigned(subject, issuer.subject, key)
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


def read_public_key(path: Path) -> bytes:
    """A hospital's public key, as Flower names nodes by it."""
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes

    try:
        key = serialization.load_ssh_public_key(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: not a public key of `chestfed federation init` ({error})") from None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise ConfigError(f"{path}: not an ECDSA key; `chestfed federation init` makes the right kind")
    return public_key_to_bytes(key)


def new_secret(path: Path) -> None:
    """Write 32 random bytes in hexadecimal digits, readable by their owner only."""
    _save_secret(path, os.urandom(32).hex().encode())


def read_secret(path: Path) -> str:
    """What `new_secret` or `save_key` wrote."""
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


def _unsigned(subject: x509.Name, issuer: x509.Name, key: Key) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))  # clocks of hospitals differ
        .not_valid_after(now + datetime.timedelta(days=VALID_DAYS))
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
