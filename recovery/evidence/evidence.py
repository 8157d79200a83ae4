"""A manifest of evidence: what was in a log directory, file by file, so that a copy can be held against it later.

One line of JSON for the directory, one for each file, one that ends it with the digest of all before, so that a
manifest that was cut short is no manifest. Of a `.log` it says besides size and SHA-256 what its batches are, and a
digest for each block of 4,096 offsets, so that a change is narrowed down to the batches of a block. Each file is read
once. docs/operate/evidence.md says what is promised.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Final, NamedTuple, Self

from recovery.evidence.manifest import is_plain_name
from storage.base.errors import BatchCorrupt, CheckpointCorrupt, FileVanished, UnsupportedFormat
from storage.base.names import FileRole, FileState, parse_file_name
from storage.base.units import INT64_MAX
from storage.disk.buffers import page_aligned
from storage.disk.fs import FileKind, ReadFile, ReadFs
from storage.kernel.fold import SegmentFold
from storage.reading.log_reader import LogReader
from storage.reading.segment_walk import walk_places

SCHEMA_VERSION: Final = 1
BLOCK_OFFSETS: Final = 4096
LONGEST_LINE: Final = 64 << 20
_CHUNK: Final = 1 << 20
_OURS: Final = (".logmend", ".logmend.json", ".tmp")
_LEFT_OUT: Final = (".lock",)
_BLOCK_WIDTH: Final = 7
_HEX: Final = frozenset("0123456789abcdef")


class Block(NamedTuple):
    """The batches that begin in one block of offsets."""

    number: int
    digest: int
    batches: int
    size: int
    first_offset: int
    last_offset: int
    max_epoch: int


@dataclass(frozen=True, slots=True)
class FileEvidence:
    """One file, by its name below the log directory. What a `.log` alone has is None, or empty, for any other."""

    file: str
    size: int
    sha256: str
    base_offset: int | None = None
    first_offset: int | None = None
    next_offset: int | None = None
    sound_size: int | None = None
    batches: int | None = None
    records: int | None = None
    digest: str = ""
    epochs: tuple[tuple[int, int], ...] = ()
    blocks: tuple[Block, ...] = ()


@dataclass(frozen=True, slots=True)
class Difference:
    """What is not as the manifest says: `missing`, `extra` or `changed`. Offsets are inclusive, None where unknown."""

    file: str
    what: str
    evidence: str
    first_offset: int | None = None
    last_offset: int | None = None


# ---- taking it


class _Hashed:
    """A file that is read from front to back, and what was read of it goes into a digest on the way."""

    def __init__(self, file: ReadFile) -> None:
        self._file, self._done = file, 0
        self.digest = hashlib.sha256()

    def read_into(self, position: int, target: memoryview) -> int:
        count = self._file.read_into(position, target)
        if position <= self._done < position + count:
            self.digest.update(target[self._done - position : count])
            self._done = position + count
        return count

    def rest(self, size: int) -> str:
        """Read what is left of `size` bytes; return the digest of all."""
        buffer = page_aligned(_CHUNK)
        while self._done < size:
            if not self.read_into(self._done, buffer[: min(_CHUNK, size - self._done)]):
                break
        return self.digest.hexdigest()

    def close(self) -> None: ...
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None: ...


def take_evidence(fs: ReadFs, log_dir: PurePath, reader: LogReader) -> Iterator[FileEvidence]:
    """Yield what there is to say of every plain file of a log directory and its partitions, in order of names.

    Left out are `.lock`, temporary files, and what recoveries set aside. Raises `ReadFault`; a file that vanishes
    meanwhile is left out.
    """
    for name, path, size in _files(fs, log_dir):
        try:
            yield file_evidence(fs, name, path, size, reader)
        except FileVanished:
            continue


def _files(fs: ReadFs, log_dir: PurePath) -> Iterator[tuple[str, PurePath, int]]:
    for name, stat in fs.entries(log_dir).items():
        if stat.kind is FileKind.DIRECTORY:
            for inner, found in fs.entries(log_dir / name).items():
                if found.kind is FileKind.FILE and not inner.endswith(_OURS):
                    yield f"{name}/{inner}", log_dir / name / inner, found.size
        elif stat.kind is FileKind.FILE and name not in _LEFT_OUT and not name.endswith(_OURS):
            yield name, log_dir / name, stat.size


def file_evidence(fs: ReadFs, name: str, path: PurePath, size: int, reader: LogReader) -> FileEvidence:
    """Return what there is to say of one file; raises `ReadFault` and `FileVanished`."""
    parsed = parse_file_name(path.name)
    is_log = "/" in name and parsed is not None and parsed.role is FileRole.LOG and parsed.state is FileState.LIVE
    with fs.open_read(path) as file:
        hashed = _Hashed(file)
        if not is_log or parsed is None or parsed.base_offset is None:
            return FileEvidence(name, size, hashed.rest(size))
        base = int(parsed.base_offset)
        fold = SegmentFold(base, block_offsets=BLOCK_OFFSETS)
        scan = reader.fold(hashed, path, size, base, fold, lambda _: None)
        return FileEvidence(
            name, size, hashed.rest(size), base, fold.first_offset, fold.next_offset, scan.valid_size,
            fold.batch_count, fold.record_count, f"{fold.digest & (1 << 64) - 1:016x}", tuple(fold.epochs),
            tuple(_blocks(fold.blocks())),
        )  # fmt: skip


def _blocks(packed: bytes) -> Iterator[Block]:
    numbers = array("q")
    numbers.frombytes(packed)
    for at in range(0, len(numbers), _BLOCK_WIDTH):
        yield Block(*numbers[at : at + _BLOCK_WIDTH])


# ---- as lines


def encode_manifest(log_dir: PurePath, version: str, files: Iterable[FileEvidence]) -> Iterator[str]:
    """Yield the lines of a manifest, each with its line end."""
    digest, count = hashlib.sha256(), 0
    head = {"document": "evidence", "schema_version": SCHEMA_VERSION, "logmend": version, "log_dir": str(log_dir)}
    for line in _lines(head, files):
        digest.update(line.encode())
        count += 1
        yield line
    yield json.dumps({"end": count, "sha256": digest.hexdigest()}) + "\n"


def _lines(head: dict[str, Any], files: Iterable[FileEvidence]) -> Iterator[str]:
    yield json.dumps(head) + "\n"
    for file in files:
        fields = {name: getattr(file, name) for name in file.__slots__}
        yield json.dumps({name: value for name, value in fields.items() if value not in (None, "", ())}) + "\n"


def decode_manifest(lines: Iterable[bytes]) -> dict[str, dict[str, FileEvidence]]:
    """Return the files by name for each log directory that the lines speak of.

    Strict: raises `CheckpointCorrupt` for anything that `encode_manifest` does not write, for a manifest that was cut
    short or changed, and `UnsupportedFormat` for one of a later release.
    """
    log_dirs: dict[str, dict[str, FileEvidence]] = {}
    digest, count = hashlib.sha256(), 0
    files: dict[str, FileEvidence] | None = None
    for line in lines:
        plain = _parsed(line)
        if "end" in plain:
            if files is None or plain != {"end": count, "sha256": digest.hexdigest()}:
                raise CheckpointCorrupt("the manifest was changed, or lines of it are missing")
            files, count, digest = None, 0, hashlib.sha256()
            continue
        digest.update(line)
        count += 1
        if files is None:
            files = log_dirs.setdefault(_head(plain), {})
            continue
        evidence = _file(plain)
        if evidence.file in files:
            raise CheckpointCorrupt(f"{evidence.file!r:.80} stands twice")
        files[evidence.file] = evidence
    if files is not None or not log_dirs:
        raise CheckpointCorrupt("the manifest has no end: it was cut short")
    return log_dirs


def _parsed(line: bytes) -> dict[str, Any]:
    if len(line) > LONGEST_LINE:
        raise CheckpointCorrupt("a line is too long")
    try:
        plain = json.loads(line)
    except (ValueError, RecursionError):
        raise CheckpointCorrupt("not a manifest: a line is no JSON") from None
    if not isinstance(plain, dict):
        raise CheckpointCorrupt("not a manifest: a line is no object")
    return plain


def _head(plain: dict[str, Any]) -> str:
    if plain.get("document") != "evidence" or not isinstance(plain.get("log_dir"), str):
        raise CheckpointCorrupt("not a manifest of evidence")
    if plain.get("schema_version") != SCHEMA_VERSION:
        raise UnsupportedFormat(f"schema version {plain.get('schema_version')!r:.20}; {SCHEMA_VERSION} is known")
    return str(plain["log_dir"])


def _file(plain: dict[str, Any]) -> FileEvidence:
    try:
        blocks = tuple(Block(*map(_number, block)) for block in plain.pop("blocks", ()))
        epochs = tuple((_number(epoch), _number(start)) for epoch, start in plain.pop("epochs", ()))
        evidence = FileEvidence(**plain, blocks=blocks, epochs=epochs)
    except (TypeError, ValueError):
        raise CheckpointCorrupt("a line is not about a file as a manifest has it") from None
    numbers = (evidence.size, evidence.base_offset, evidence.first_offset, evidence.next_offset, evidence.batches)
    parts = evidence.file.split("/") if isinstance(evidence.file, str) else []
    if not 1 <= len(parts) <= 2 or not all(is_plain_name(part) for part in parts):
        raise CheckpointCorrupt(f"{evidence.file!r:.80} is no name below a log directory")
    if any(number is not None and (type(number) is not int or number < 0) for number in numbers):
        raise CheckpointCorrupt(f"{evidence.file!r:.80}: a number is no whole number")
    if not isinstance(evidence.sha256, str) or len(evidence.sha256) != 64 or not set(evidence.sha256) <= _HEX:
        raise CheckpointCorrupt(f"{evidence.file!r:.80}: no SHA-256")
    return evidence


def _number(value: object) -> int:
    if type(value) is not int or not -(INT64_MAX + 1) <= value <= INT64_MAX:
        raise ValueError(value)
    return value


# ---- holding a directory against it


def compare(fs: ReadFs, log_dir: PurePath, files: dict[str, FileEvidence], reader: LogReader) -> Iterator[Difference]:
    """Yield what of a log directory is not as the manifest says, in order of names. Raises `ReadFault`."""
    there = set()
    for found in take_evidence(fs, log_dir, reader):
        there.add(found.file)
        wanted = files.get(found.file)
        if wanted is None:
            yield Difference(found.file, "extra", f"{found.size} bytes that the manifest does not know")
        elif (found.size, found.sha256) != (wanted.size, wanted.sha256):
            yield from _changes(fs, log_dir / found.file, wanted, found)
    for name in sorted(files.keys() - there):
        yield Difference(name, "missing", f"{files[name].size} bytes", *_range(files[name]))


def _range(evidence: FileEvidence) -> tuple[int | None, int | None]:
    if evidence.first_offset is None or evidence.next_offset is None:
        return None, None
    return evidence.first_offset, evidence.next_offset - 1


def _changes(fs: ReadFs, path: PurePath, wanted: FileEvidence, actual: FileEvidence) -> Iterator[Difference]:
    size = "" if actual.size == wanted.size else f"{actual.size} bytes, {wanted.size} in the manifest; "
    then, now = ({block.number: block for block in each.blocks} for each in (wanted, actual))
    if not then and not now:
        yield Difference(wanted.file, "changed", f"{size}its SHA-256 is another")
        return
    is_reported = False
    for number in sorted(then.keys() | now.keys()):
        if then.get(number) == now.get(number):
            continue
        is_reported = True
        block = then.get(number) or now[number]
        evidence = f"{size}{_batches(fs, path, block, actual)}"
        yield Difference(wanted.file, "changed", evidence, block.first_offset, block.last_offset)
    if not is_reported:
        yield Difference(wanted.file, "changed", f"{size}the batches are the same, other bytes are not")


def _batches(fs: ReadFs, path: PurePath, block: Block, found: FileEvidence) -> str:
    """Name the batch that no longer holds, or those among which the changed one is."""
    if found.sound_size is not None and found.sound_size < found.size:
        return f"the batch at {found.sound_size}, offset {found.next_offset}, is no longer sound"
    named: list[str] = []
    with fs.open_read(path) as file:
        try:
            for place in walk_places(file, 0, found.size):
                if block.first_offset <= place.base_offset <= block.last_offset:
                    named.append(f"{place.base_offset} to {place.last_offset} at {place.position}")
                if len(named) > 8:
                    named[-1] = "…"
                    break
        except BatchCorrupt as error:
            return f"its headers cannot be followed: {error.reason}"
    return f"a batch of these: {', '.join(named)}" if named else "its batches are gone"
