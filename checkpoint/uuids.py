"""Kafka's text of a UUID: 16 bytes in URL-safe base64. Source: Apache Kafka 4.3.0, Uuid."""

from __future__ import annotations

import binascii
import re
from typing import Final

from checkpoint.text import quoted
from storage.base.errors import CheckpointCorrupt

ZERO: Final = bytes(16)
METADATA_TOPIC_ID: Final = bytes(15) + b"\1"
"""The id of the topic `__cluster_metadata`."""

_TEXT: Final = re.compile(r"([A-Za-z0-9_-]{22})(?:==)?")
_TO_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")
_FROM_URL_SAFE: Final = bytes.maketrans(b"-_", b"+/")
_RESERVED: Final = 100


def decode_uuid(text: str) -> bytes:
    """Return the 16 bytes; `CheckpointCorrupt` for anything but 22 characters, padded to 24 or not."""
    match = _TEXT.fullmatch(text)
    if match is None:
        raise CheckpointCorrupt(f"{quoted(text)} is no Kafka UUID")
    return binascii.a2b_base64(match[1].encode().translate(_FROM_URL_SAFE) + b"==")


def encode_uuid(uuid: bytes) -> str:
    """Return the 22 characters for 16 bytes."""
    assert len(uuid) == 16, len(uuid)
    return binascii.b2a_base64(uuid, newline=False).translate(_TO_URL_SAFE).rstrip(b"=").decode()


def is_reserved(uuid: bytes) -> bool:
    """Tell whether Kafka keeps the id for itself: a high half of 0 and a low half below 100, signed."""
    return uuid[:8] == bytes(8) and int.from_bytes(uuid[8:], signed=True) < _RESERVED
