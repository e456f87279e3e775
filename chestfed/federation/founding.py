"""`chestfed federation init`: everything a server and its hospitals need to know each other, in one folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from chestfed.core.bundled import bundled
from chestfed.core.errors import ConfigError
from chestfed.federation import keys
from chestfed.federation.settings import (
    HOSPITAL_FILE,
    SERVER_FILE,
    FederationFile,
    Member,
    is_loopback,
    split_address,
)

_SERVER = """\
# The server of the federation "{name}". Keys: docs/deployment.md.
#
#   chestfed federation server {folder}            (this machine; hospitals reach it at the address below)
#   chestfed federation status {folder}
#   chestfed federation run PIPELINE.yaml --federation {folder}
federation: {name}
address: {address}
listen: {listen}
hospitals:                       # who may take part; to exclude one, remove its line and restart the server
{members}
faults:
  late_after: 600                # seconds; longer than a round of training
  give_up_after: 86400           # seconds; then the study stops; the same command resumes it
"""

_HOSPITAL = """\
# The hospital "{name}" in the federation "{federation}". Paths are relative to this file. Keys: docs/deployment.md.
#
#   chestfed federation hospital {name} --check    (reads the site's YAML and labels, does not connect)
#   chestfed federation hospital {name}
hospital: {name}
server: {address}
site: {site}
data_root: {data}
cache: cache                     # decoded images: about 100 kB each
state: state                     # state between rounds, and logs
device: auto
leaves:
  results: scores                # of test images, under keyed names; or aucs (computed here); or nothing
  smallest_count: 0              # counts from 1 to this are reported as this
"""

_README = """\
# {name}: your part in the federation "{federation}"

This folder was created by the server's administrator. It contains a secret (`node.key`): send it over a secure channel,
keep it readable only by you, and delete other copies.

1. Install version {version} of chestfed, as on the server, with Flower: in a checkout `python3 bootstrap.py install
   federation`.
2. Describe your images and labels in `site.yaml`, beside this file: `chestfed site new` drafts it, `chestfed site
   check` checks it. Its key `site` is `{name}`. Set `data_root` in `hospital.yaml`.
3. `chestfed federation hospital {folder} --check` reads the labels without connecting. It makes `names.key`, the secret
   key of the names under which images and patients leave: keep a backup. A study does not go on with another key.
4. `chestfed federation hospital {folder}` takes part until you press Ctrl-C. You can restart it at any time.

The machine needs one outgoing connection, HTTPS to {address}, and no incoming one. It runs no code from the
server. Images, patients' names, paths and the site's YAML never leave; docs/deployment.md lists what does, and
`state/hospital.log` records every request and its outcome; `state/STUDY/pipeline.yaml` is the pipeline agreed upon.
"""


def sample_sites() -> dict[str, Path]:
    """The site YAMLs of the sample hospitals, by the site's name, in the order of the sample study."""
    folder = bundled("site_configs") / "synthetic"
    return {name: folder / f"{name}.yaml" for name in ("chexpert", "chestxray8", "padchest", "mimic_cxr", "vindr")}


def found(
    folder: Path, name: str, address: str, hospitals: Sequence[str], version: str, samples: Path | None = None
) -> None:
    """Make the folder of a federation: certificates, keys, the server's file, and one folder per hospital to hand over.

    `samples` is a folder with the sample hospitals, to which the hospitals' files are then pointed.

    Raises
    ------
    ConfigError
        If the folder has one already, the address or a name cannot be used, or there is no folder `samples`.
    """
    private = folder / "private"
    for file in (folder / SERVER_FILE, private):
        if file.exists():
            raise ConfigError(f"{file}: exists, and is kept: its keys are in use. Choose another folder")
    if samples is not None and not samples.is_dir():
        raise ConfigError(f"{samples}: no such folder; `chestfed samples --out {samples}` writes the hospitals there")
    try:
        keys_of = [Member(name=hospital, key=f"keys/{hospital}.pub") for hospital in hospitals]
        FederationFile(federation=name, address=address, hospitals=keys_of)
    except ValidationError as error:
        first = error.errors()[0]
        what = f"'{first['input']}'" if isinstance(first["input"], str) else "the command"
        raise ConfigError(f"{what}: {first['msg'].removeprefix('Value error, ')}") from None
    host = split_address(address)[0]
    listen = "127.0.0.1" if is_loopback(host) else "0.0.0.0"  # noqa: S104 (hospitals elsewhere are to reach it)
    private.mkdir(parents=True, mode=0o700, exist_ok=True)
    authority_key, server_key = keys.new_key(), keys.new_key()
    authority = keys.authority(name, authority_key)
    keys.save_certificate(folder / "authority.crt", authority)
    keys.save_certificate(folder / "server.crt", keys.server_certificate(host, server_key, authority, authority_key))
    keys.save_key(private / "server.key", server_key, tls=True)
    keys.save_key(private / "authority.key", authority_key, tls=True)
    keys.new_secret(private / "operator.secret")
    (folder / "keys").mkdir(exist_ok=True)
    for hospital in hospitals:
        _hand_over(folder, hospital, name, address, version, samples)
    members = "\n".join(f"  - {{name: {hospital}, key: keys/{hospital}.pub}}" for hospital in hospitals)
    text = _SERVER.format(name=name, folder=folder, address=address, listen=listen, members=members)
    (folder / SERVER_FILE).write_text(text, encoding="utf-8")


def _hand_over(folder: Path, hospital: str, federation: str, address: str, version: str, samples: Path | None) -> None:
    own, key = folder / "hospitals" / hospital, keys.new_key()
    own.mkdir(parents=True, mode=0o700)
    keys.save_key(own / "node.key", key)
    keys.save_public_key(folder / "keys" / f"{hospital}.pub", key)
    shutil.copy(folder / "authority.crt", own / "authority.crt")
    site, data = "site.yaml                  # this hospital's images and labels: `chestfed site new` drafts it", "data"
    if samples is not None:
        site, data = json.dumps(str(sample_sites()[hospital])), json.dumps(str(samples.absolute()))
    settings = _HOSPITAL.format(name=hospital, federation=federation, address=address, site=site, data=data)
    (own / HOSPITAL_FILE).write_text(settings, encoding="utf-8")
    text = _README.format(name=hospital, folder=hospital, federation=federation, address=address, version=version)
    (own / "README.md").write_text(text, encoding="utf-8")
