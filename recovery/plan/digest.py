"""SHA-256 of what is kept and written. The library behind it is loaded when it is first needed, which takes 3 ms."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import hashlib


def new_digest() -> hashlib._Hash:
    """Return a digest of nothing yet."""
    from hashlib import sha256  # noqa: PLC0415

    return sha256()


def sha256_of(data: bytes) -> str:
    """Return the digest of `data` in hex."""
    digest = new_digest()
    digest.update(data)
    return digest.hexdigest()
