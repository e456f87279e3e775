"""A secret divided so that `threshold` shares give it, and fewer tell nothing of it.

A. Shamir: How to share a secret. Communications of the ACM 22 (1979) 612-613.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Final

from chestfed.core.errors import TrainingError

#: A prime above all secrets of 32 bytes.
_PRIME: Final = 2**521 - 1
SECRET_BYTES: Final = 32
SHARE_BYTES: Final = 66


def divide_secret(secret: bytes, count: int, threshold: int) -> list[bytes]:
    """Shares for the members 1 to `count`: values of a random polynomial of degree `threshold` - 1 over a prime field.

    Raises `ValueError` unless 1 <= threshold <= count and the secret has 32 bytes.
    """
    if not 1 <= threshold <= count or len(secret) != SECRET_BYTES:
        raise ValueError(f"{count} shares of {len(secret)} bytes, of which {threshold} are enough")
    coefficients = [int.from_bytes(secret, "big"), *(secrets.randbelow(_PRIME) for _ in range(threshold - 1))]
    shares = []
    for place in range(1, count + 1):
        value = 0
        for coefficient in reversed(coefficients):
            value = (value * place + coefficient) % _PRIME
        shares.append(value.to_bytes(SHARE_BYTES, "big"))
    return shares


def join_shares(shares: Mapping[int, bytes]) -> bytes:
    """The secret of these shares by member (from 1), by Lagrange's interpolation at 0.

    Raises
    ------
    TrainingError
        If they are not shares of one secret of 32 bytes: too few, or a false one.
    """
    value = 0
    for place, share in shares.items():
        numerator = denominator = 1
        for other in shares:
            if other != place:
                numerator = numerator * other % _PRIME
                denominator = denominator * (other - place) % _PRIME
        value += int.from_bytes(share, "big") * numerator * pow(denominator, -1, _PRIME)
    value %= _PRIME
    if value >= 1 << (8 * SECRET_BYTES):
        raise TrainingError("secure sum: the shares do not belong together", kind="false shares")
    return value.to_bytes(SECRET_BYTES, "big")
