"""Reads whose a log directory is, for whatever shows it."""

from __future__ import annotations

import contextlib
from pathlib import PurePath

from daemon.status.model import Owner
from engine.settings.identity import read_identity
from storage.base.errors import CorruptData, EnvironmentFault
from storage.disk.fs import ReadFs


def read_owner(fs: ReadFs, log_dir: PurePath) -> Owner:
    """Return the cluster and the broker of a log directory, as far as it tells them."""
    with contextlib.suppress(CorruptData, EnvironmentFault):
        identity = read_identity(fs, log_dir)
        if identity is not None:
            return Owner(identity.cluster_id, identity.node_id)
    return Owner()
