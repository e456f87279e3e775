"""Names that leave a hospital: keyed hashes of what must not leave.

A plain digest of a patient's number is found by trying all numbers, and that of an image by anybody who holds the
image. Keyed BLAKE2b (RFC 7693) can't be tried without the key: 32 random bytes in a file of the site. The same key
gives the same names, so predictions of one site match each other; who must not match them gets no key.

The key is, in this order,

1. the published one, where all files are those of bundled phantoms, by digest (`chestfed/data/sites/phantoms.py`), or
   of a collection without patients: no person is to be protected, and results must be the same on every machine;
2. for a hospital of a federation the file `names_key` of its `hospital.yaml` (`chestfed/leaves/federation/local.py`);
3. the file that `$CHESTFED_KEY_FILE` names, which must be there;
4. a file of the user, made when it is first needed (`default_file`).

A key file is one line of 64 hexadecimal digits. What is written with names is the key's fingerprint, which tells two
keys apart and does not help to guess one.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import stat
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from chestfed.core.errors import ChestfedError

if TYPE_CHECKING:
    from hashlib import blake2b

#: The variable that names a key file.
VARIABLE: Final = "CHESTFED_KEY_FILE"
#: Subject of a name; names of different purposes never agree. At most 16 letters.
Purpose = Literal["image", "study", "patient", "trained patient", "data set", "shared patient", "fingerprint"]

_BYTES: Final = 32


@dataclass(frozen=True, repr=False)
class SiteKey:
    """A secret that names are made with. It is never shown; `fingerprint` stands for it."""

    secret: bytes

    def __post_init__(self) -> None:
        if len(self.secret) != _BYTES:
            raise ValueError(f"a key has {_BYTES} bytes, not {len(self.secret)}")

    def __repr__(self) -> str:
        return f"<SiteKey {self.fingerprint}>"

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that tell keys apart."""
        return self.name("fingerprint", b"")[:16]

    def name(self, purpose: Purpose, *parts: str | bytes) -> str:
        """32 hexadecimal digits for these parts; the same parts in the same order have the same, for each purpose."""
        digest = self.hasher(purpose)
        for part in parts:
            data = part.encode() if isinstance(part, str) else bytes(part)
            digest.update(len(data).to_bytes(8, "big") + data)
        return digest.hexdigest()

    def name_patients(self, site: str, patients: Iterable[object]) -> tuple[str, ...]:
        """Keyed name of each row's patient; two sites' patients have different names."""
        return tuple(self.name("patient", site, str(patient)) for patient in patients)

    def hasher(self, purpose: Purpose) -> blake2b:
        """A keyed hash of 16 bytes to update with what is long."""
        return hashlib.blake2b(key=self.secret, person=purpose.encode(), digest_size=16)


#: Key of data without patients. Everybody can know it.
PUBLISHED: Final = SiteKey(hashlib.sha256(b"chestfed: names of synthetic hospitals and public collections").digest())


def key_for(*, public: bool) -> SiteKey:
    """The key of this machine, or the published one if all data are bundled phantoms, or a collection without patients.

    Raises
    ------
    ChestfedError
        If the key file is not there, not a key, open to others, or can't be made.
    """
    if public:
        return PUBLISHED
    given = os.environ.get(VARIABLE)
    if given:
        return read_key(Path(given).expanduser())
    file = default_file()
    if not file.exists() and make_key(file):
        print(
            f"made a new key for the names of patients and images: {file}\n"
            "Keep it: names made with another key cannot be matched with these.",
            file=sys.stderr,
            flush=True,
        )
    return read_key(file)


def refuse_key_within(folder: Path, fingerprint: str) -> None:
    """Refuse to write results into a folder that holds the secret key of their names: it may be zipped and shared.

    `fingerprint` is that of the results' key.

    Raises
    ------
    ChestfedError
        If this machine's key file lies in the folder.
    """
    file = Path(os.environ.get(VARIABLE) or default_file()).expanduser()
    if fingerprint != PUBLISHED.fingerprint and file.exists() and file.resolve().is_relative_to(folder.resolve()):
        raise ChestfedError(
            f"{file}: this secret key lies in the folder of the results ({folder}), which may be shared. Move it to a "
            f"folder of its own and set ${VARIABLE} to it, or choose another --out",
            kind="key among results",
        )


def default_file() -> Path:
    """Where the user's key is: `chestfed/key` in the folder that the system has for settings."""
    from platformdirs import user_config_path

    return user_config_path("chestfed", appauthor=False) / "key"


def read_key(file: Path) -> SiteKey:
    """The key of a file.

    Raises
    ------
    ChestfedError
        If it does not exist, is not a key, or others may read it.
    """
    try:
        mode, content = file.stat().st_mode, file.read_bytes()
    except FileNotFoundError:
        raise ChestfedError(
            f"{file}: no such key file. Make one with `chestfed key --new {file}`, or unset ${VARIABLE} to use yours",
            kind="no key file",
        ) from None
    except OSError as error:
        raise ChestfedError(f"{file}: the key cannot be read: {error.strerror}") from None
    if os.name != "nt" and mode & (stat.S_IROTH | stat.S_IWOTH):
        raise ChestfedError(
            f"{file}: other users of this machine can read or change this key. Run `chmod 600 {file}`",
            kind="key readable by others",
        )
    if not re.fullmatch(rb"[0-9a-f]{64}\s*", content):
        raise ChestfedError(
            f"{file}: not a key: one line of 64 hexadecimal digits is expected. If it is damaged, restore it from "
            f"your backup: names made with another key cannot be matched with the old ones",
            kind="damaged key",
        )
    return SiteKey(bytes.fromhex(content.decode("ascii").strip()))


def make_key(file: Path) -> bool:
    """Write a new random key that only its owner can read; False if there is a file already, which stays.

    Raises
    ------
    ChestfedError
        If it can't be written.
    """
    from filelock import FileLock

    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(file.with_name(f".{file.name}.lock")):
            if file.exists():
                return False
            handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")  # 0600 from the start
            try:
                with os.fdopen(handle, "wb") as out:
                    out.write(secrets.token_bytes(_BYTES).hex().encode() + b"\n")
                    out.flush()
                    os.fsync(out.fileno())
                Path(temporary).replace(file)
            finally:
                Path(temporary).unlink(missing_ok=True)
            return True
    except OSError as error:
        raise ChestfedError(
            f"{file}: the key cannot be written: {error.strerror}. Make one elsewhere with `chestfed key --new "
            f"FILE`, and set ${VARIABLE} to that file",
            kind="key cannot be written",
        ) from None
