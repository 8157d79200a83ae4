"""A real file system on a loop device, of which the power can be cut (as root)."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from support.needs import impossible, need, need_mounts

IOC_SHUTDOWN = 0x8004587D
CLONE_NEWNS = 0x00020000
KINDS = {"ext4": (64, ["mkfs.ext4", "-q", "-F"]), "xfs": (320, ["mkfs.xfs", "-q", "-f"])}


def call(*words: object) -> None:
    subprocess.run([str(word) for word in words], check=True, capture_output=True)


@contextlib.contextmanager
def own_mounts() -> Iterator[None]:
    """Give this thread, and what it starts, mounts that no other process sees.

    A process that copies all mounts, as every container does when it starts, keeps a file system alive that is
    unmounted here; mounting its image again would give the dead one.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    home, before = os.getcwd(), os.open("/proc/thread-self/ns/mnt", os.O_RDONLY)
    try:
        if libc.unshare(CLONE_NEWNS):
            raise OSError(ctypes.get_errno(), "unshare failed")
        call("mount", "--make-rprivate", "/")
        try:
            yield
        finally:
            if libc.setns(before, CLONE_NEWNS):
                raise OSError(ctypes.get_errno(), "setns failed")
            os.chdir(home)
    finally:
        os.close(before)


def need_disk(kind: str, directory: Path) -> None:
    """Skip the test where no power can be cut on this kind of file system."""
    need("mount", "losetup", "strace", KINDS[kind][1][0], root=True)
    need_mounts(directory / "probe")
    if not Path("/dev/loop-control").exists():
        impossible("there are no loop devices")


@dataclass
class Disk:
    """A file system in an image, mounted by a loop device at `place`."""

    kind: str
    image: Path
    place: Path

    def make(self) -> None:
        size, command = KINDS[self.kind]
        with self.image.open("wb") as image:
            image.truncate(size << 20)
        call(*command, self.image)
        self.place.mkdir(exist_ok=True)
        self.mount()

    def mount(self) -> None:
        call("mount", "-o", "loop", self.image, self.place)

    def unmount(self) -> None:
        call("umount", self.place)

    def cut_power(self, flag: int) -> None:
        """Shut down: 2 loses what is not on the disk, 1 writes the journal first but no data."""
        descriptor = os.open(self.place, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, IOC_SHUTDOWN, struct.pack("I", flag))
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def mounted(kind: str, directory: Path) -> Iterator[Disk]:
    """Give a new file system for as long as the context lasts."""
    disk = Disk(kind, directory / f"{kind}.img", directory / kind)
    with own_mounts():
        disk.make()
        try:
            yield disk
        finally:
            call("umount", "-l", disk.place)
