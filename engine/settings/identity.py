"""Who a log directory belongs to: `meta.properties`, made where it is missing; and the drawing of ids.

Source: Apache Kafka 4.3.0, MetaPropertiesEnsemble, Uuid.randomUuid.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Final

from checkpoint.markers import (
    META_PROPERTIES,
    MetaProperties,
    decode_meta_properties,
    encode_meta_properties,
    read,
)
from checkpoint.uuids import encode_uuid, is_reserved
from storage.base.errors import ConfigInvalid, FileVanished, ReadFault, printable
from storage.disk.fs import FileKind, Fs, ReadFs, replace_atomically

FIRST_NODE: Final = 1
"""The node id of log directories that belong to no broker yet."""

DrawId = Callable[[], bytes]


def draw_id() -> bytes:
    """Return a random id that Kafka would draw: none of those it keeps for itself, and no text that begins with `-`."""
    while True:
        drawn = uuid.uuid4().bytes
        if not is_reserved(drawn) and not encode_uuid(drawn).startswith("-"):
            return drawn


def make_log_dir(fs: Fs, log_dir: PurePath) -> None:
    """Make the directory and those above it where they are missing, durably; `ReadFault` if something else is there."""
    missing = []
    place = log_dir
    while True:
        try:
            if fs.stat(place).kind is not FileKind.DIRECTORY:
                fs.entries(place)  # which says what is wrong, or follows the link that an operator made
            break
        except FileVanished:
            missing.append(place)
            place = place.parent
    for directory in reversed(missing):
        fs.make_dir(directory)
        fs.sync_dir(directory.parent)


def read_identity(fs: ReadFs, log_dir: PurePath) -> MetaProperties | None:
    """Return who the log directory belongs to, None if it does not say.

    Raises `CheckpointCorrupt`, `UnsupportedFormat` and `ReadFault`.
    """
    try:
        return read(fs, log_dir / META_PROPERTIES, decode_meta_properties)
    except FileVanished:
        return None


def ensure_identities(fs: Fs, log_dirs: Sequence[PurePath], draw: DrawId) -> dict[PurePath, MetaProperties]:
    """Return the identity of each log directory; those without get one that fits the others.

    Raises `ConfigInvalid` if two of them belong to different brokers: a broker would not start on them either.
    """
    identities: dict[PurePath, MetaProperties] = {}
    missing = []
    for log_dir in log_dirs:
        identity = read_identity(fs, log_dir)
        if identity is None:
            missing.append(log_dir)
        else:
            identities[log_dir] = identity
    cluster, node = _owner(identities)
    cluster = encode_uuid(draw()) if cluster is None else cluster
    node = FIRST_NODE if node is None else node
    for log_dir in missing:
        identities[log_dir] = MetaProperties(1, cluster, node, draw())
        replace_atomically(fs, log_dir / META_PROPERTIES, encode_meta_properties(identities[log_dir]))
    return identities


def _owner(found: dict[PurePath, MetaProperties]) -> tuple[str | None, int | None]:
    owners: dict[tuple[str | None, int | None], PurePath] = {}
    for log_dir, identity in found.items():
        owners.setdefault((identity.cluster_id, identity.node_id), log_dir)
    if len(owners) > 1:
        places = "; ".join(
            f"{printable(log_dir)}: cluster {printable(cluster)}, node {node}"
            for (cluster, node), log_dir in owners.items()
        )
        raise ConfigInvalid(f"log directories of different brokers: {places}")
    return next(iter(owners), (None, None))


def is_absent(fs: ReadFs, path: PurePath) -> bool:
    """Tell whether no file has this name; one that cannot be read counts as present."""
    try:
        fs.stat(path)
    except FileVanished:
        return True
    except ReadFault:
        return False
    return False
