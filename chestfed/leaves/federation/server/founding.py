"""Founding of a federation: certificates, the server's file, hospitals' folders, and the exchange of public keys.

Each hospital makes its own key; only the public half leaves it.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from cryptography import x509
from pydantic import TypeAdapter, ValidationError

from chestfed._version import __version__
from chestfed.core.bundled import bundled
from chestfed.core.errors import ConfigError
from chestfed.leaves.federation import keys
from chestfed.leaves.federation.settings import (
    HOSPITAL_FILE,
    SERVER_FILE,
    FederationFile,
    Name,
    is_loopback,
    read_federation,
    read_hospital,
    split_address,
)

_SERVER = """\
# The server of the federation "{name}". Keys: docs/deployment.md.
#
#   chestfed federation add {folder} NAME --key NAME.pub     (admits a hospital; keys/ has one file for each)
#   chestfed federation server {folder}                      (this machine; hospitals reach it at the address below)
#   chestfed federation status {folder}
#   chestfed federation run PIPELINE.yaml --federation {folder}
federation: {name}
address: {address}
listen: {listen}
faults:
  late_after: 600                # seconds; longer than a round of training
  give_up_after: 86400           # seconds; then the study stops; the same command resumes it
  least_hospitals: 1             # that a K and a round need
"""

_HOSPITAL = """\
# The hospital "{name}". Paths are relative to this file. Keys: docs/deployment.md.
#
#   chestfed federation hospital {folder} --check    (the site's YAML and labels, and the connection)
#   chestfed federation hospital {folder}
hospital: {name}
server: {address}
site: {site}
data_root: {data}
cache: cache                     # decoded images: about 100 kB each
state: state                     # state between rounds, and logs
device: auto
leaves:
  results: {results}                  # what leaves of test images: scores (probabilities), aucs (no rows) or nothing
  smallest_count: 0              # counts from 1 to this are reported as this
policy:
  approval: {approval}             # required: a study waits for `chestfed federation hospital {folder} --approve`
"""

_README = """\
# {name}: your part in a federation

`node.key` is this hospital's secret key: keep it readable only by you. Its public half, `{name}.pub`, goes to the
server's administrator.

1. Describe your images and labels in `site.yaml`, beside this file: `chestfed site new` drafts it, `chestfed site
   check` checks it. Its key `site` is `{name}`. Set `data_root` and `policy` in `hospital.yaml`.
2. `chestfed federation hospital {folder} --check` reads the labels and connects. It makes `names.key`, the secret key
   of the names under which images and patients leave: keep a backup. A study does not go on with another key.
3. `chestfed federation hospital {folder}` takes part until Ctrl-C. You can restart it at any time.
   `chestfed federation hospital {folder} --pending` describes the studies that wait for your approval.
4. `chestfed federation audit {folder}` says what was asked, and what left.

The machine needs one outgoing connection, HTTPS to {address}, and no incoming one. It runs no code from the
server, version {version} of chestfed as on the server. Images, patients' names, paths and the site's YAML never leave;
docs/privacy.md lists what does. `state/hospital.log` records requests and their outcomes; `state/STUDY/pipeline.yaml`
is the pipeline agreed upon.
"""


def sample_sites() -> dict[str, Path]:
    """The site YAMLs of the sample hospitals, by the site's name, in the order of the sample study."""
    folder = bundled("site_configs") / "synthetic"
    return {name: folder / f"{name}.yaml" for name in ("chexpert", "chestxray8", "padchest", "mimic_cxr", "vindr")}


def create(folder: Path, name: str, address: str, samples: Path | None = None) -> None:
    """Make the folder of a federation: certificates, the server's secrets, and its file.

    `samples` is a folder with the sample hospitals, which then join at once, with keys made here.

    Raises
    ------
    ConfigError
        If the folder has one already, the address or the name cannot be used, or there is no folder `samples`.
    """
    private = folder / "private"
    for file in (folder / SERVER_FILE, private):
        if file.exists():
            raise ConfigError(
                f"{file}: exists, and is kept: its keys are in use. Choose another folder",
                kind="exists",
                file=str(file),
            )
    if samples is not None and not samples.is_dir():
        text = f"{samples}: no such folder; `chestfed samples --out {samples}` writes the hospitals there"
        raise ConfigError(text, kind="no folder", file=str(samples))
    try:
        FederationFile(federation=name, address=address)
    except ValidationError as error:
        raise _as_config_error(error) from None
    host = split_address(address)[0]
    listen = "127.0.0.1" if is_loopback(host) else "0.0.0.0"  # noqa: S104 (hospitals elsewhere are to reach it)
    private.mkdir(parents=True, mode=0o700, exist_ok=True)
    authority_key = keys.new_key()
    authority = keys.authority(name, authority_key)
    keys.save_certificate(folder / "authority.crt", authority)
    keys.save_key(private / "authority.key", authority_key, tls=True)
    _certify_server(folder, host, authority, authority_key)
    keys.new_secret(private / "operator.secret")
    (folder / "keys").mkdir(exist_ok=True)
    text = _SERVER.format(name=name, folder=folder, address=address, listen=listen)
    (folder / SERVER_FILE).write_text(text, encoding="utf-8")
    for hospital in sample_sites() if samples is not None else ():
        home = folder / "hospitals" / hospital
        public, _ = join(home, hospital, address, folder / "authority.crt", samples)
        add(folder, hospital, public)


def join(folder: Path, name: str, address: str, authority: Path, samples: Path | None = None) -> tuple[Path, str]:
    """Make a hospital's folder with its key; the file with the public half, and its fingerprint.

    Raises
    ------
    ConfigError
        If the folder has a hospital already, a name or address cannot be used, or `authority` is not a certificate.
    """
    if (folder / HOSPITAL_FILE).exists():
        text = f"{folder / HOSPITAL_FILE}: exists; `chestfed federation rekey {folder}` makes a new key"
        raise ConfigError(text, kind="exists", file=str(folder / HOSPITAL_FILE))
    _check_name(name)
    try:
        split_address(address)
    except ValueError as error:
        raise ConfigError(f"--server {error}", kind="address") from None
    keys.read_certificate(authority)
    folder.mkdir(parents=True, mode=0o700, exist_ok=True)
    shutil.copy(authority, folder / "authority.crt")
    site, data = "site.yaml                  # this hospital's images and labels: `chestfed site new` drafts it", "data"
    results, approval = "aucs  ", "required"
    if samples is not None:
        site, data = json.dumps(str(sample_sites()[name])), json.dumps(str(samples.absolute()))
        results, approval = "scores", "none    "
    about = {"name": name, "folder": folder.name, "address": address}
    settings = {"site": site, "data": data, "results": results, "approval": approval}
    (folder / HOSPITAL_FILE).write_text(_HOSPITAL.format(**about, **settings), encoding="utf-8")
    text = _README.format(**about, version=__version__)
    (folder / "README.md").write_text(text, encoding="utf-8")
    return _new_key(folder / "node.key", folder / f"{name}.pub")


def rekey(folder: Path) -> tuple[Path, str]:
    """Replace a hospital's key; the old one is kept as `node.key.old` until the server has accepted the new one.

    Raises
    ------
    ConfigError
        If an old key is kept already: it may be the only one that the server accepts.
    """
    hospital = read_hospital(folder)
    key, old, name = hospital.path("key"), hospital.old_key, hospital.file.hospital
    if old.exists():
        raise ConfigError(
            f"{old}: exists, and may be the only key that the server accepts. Send {name}.pub to the server's "
            f"administrator, for `chestfed federation add FOLDER {name} --key {name}.pub --replace`; the hospital "
            f"deletes {old.name} when it connects with the new key. For yet another key, rename {old.name} to "
            f"{key.name} first",
            kind="old key",
            file=str(old),
        )
    if key.exists():
        key.replace(old)
    return _new_key(key, hospital.folder / f"{name}.pub")


def _new_key(file: Path, public: Path) -> tuple[Path, str]:
    key = keys.new_key()
    keys.save_key(file, key)
    keys.save_public_key(public, key)
    return public, keys.fingerprint(key.public_key())


def add(folder: Path, name: str, public: Path, *, replace: bool = False) -> tuple[bool, str]:
    """Admit a hospital by its public key; whether it replaced another key, and the fingerprint.

    Raises
    ------
    ConfigError
        If the name cannot be used, the file is not a public key, another hospital has this key, or this one has
        another key that is not to be replaced.
    """
    federation = read_federation(folder)
    _check_name(name)
    key = keys.read_public_key(public)
    for member in federation.members:
        if member != name and keys.read_public_key(federation.keys / f"{member}.pub") == key:
            raise ConfigError(f"{public}: is the key of {member}; each hospital has its own", kind="key in use")
    federation.keys.mkdir(exist_ok=True)
    file, temporary = federation.keys / f"{name}.pub", federation.keys / f".{name}.new"
    replaced = file.exists() and keys.read_public_key(file) != key
    if replaced and not replace:
        text = f"{name} has another key already: if its key is new, say --replace; if this is a mistake, another name"
        raise ConfigError(f"{public}: {text}", kind="another key", file=str(public))
    shutil.copyfile(public, temporary)
    temporary.replace(file)
    return replaced, keys.fingerprint(key)


def remove(folder: Path, name: str) -> None:
    """Exclude a hospital; raises ConfigError if it is not a member."""
    federation = read_federation(folder)
    if name not in federation.members:
        members = ", ".join(federation.members) or "none"
        raise ConfigError(f"'{name}' is not a member of {federation.file.federation}: {members}", kind="no member")
    (federation.keys / f"{name}.pub").unlink()


def renew(folder: Path) -> int:
    """Replace the server's key and certificate; the days that it is valid.

    Raises
    ------
    ConfigError
        If the authority's key is not in `private`, or is not that of `authority.crt`.
    """
    federation = read_federation(folder)
    key_file, authority = folder / "private" / "authority.key", keys.read_certificate(federation.authority)
    if not key_file.exists():
        raise ConfigError(f"{key_file}: put it back from where you keep it", kind="no file", file=str(key_file))
    key = keys.read_key(key_file)
    if key.public_key() != authority.public_key():
        raise ConfigError(f"{key_file}: not the key of {federation.authority}", kind="another key", file=str(key_file))
    (folder / "private" / "server.key").unlink(missing_ok=True)
    _certify_server(federation.folder, split_address(federation.file.address)[0], authority, key)
    return keys.days_left(folder / "server.crt")


def _certify_server(folder: Path, host: str, authority: x509.Certificate, authority_key: keys.Key) -> None:
    key = keys.new_key()
    keys.save_certificate(folder / "server.crt", keys.server_certificate(host, key, authority, authority_key))
    keys.save_key(folder / "private" / "server.key", key, tls=True)


def _check_name(name: str) -> None:
    try:
        TypeAdapter(Name).validate_python(name)
    except ValidationError as error:
        raise _as_config_error(error) from None


def _as_config_error(error: ValidationError) -> ConfigError:
    first = error.errors()[0]
    return ConfigError(f"'{first['input']}': {first['msg'].removeprefix('Value error, ')}", kind="name or address")
