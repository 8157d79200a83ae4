"""SHA-256 of what is kept and written."""

from __future__ import annotations

import hashlib


def new_digest() -> hashlib._Hash:
    """Return a digest of nothing yet."""
    return hashlib.sha256()


def sha256_of(data: bytes) -> str:
    """Return the digest of `data` in hex."""
    digest = new_digest()
    digest.update(data)
    return digest.hexdigest()
