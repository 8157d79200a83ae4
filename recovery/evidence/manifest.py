"""The manifest: what one plan set aside in one directory, and everything needed to put it back.

A JSON file `<plan id>.logmend.json` beside the kept bytes. It is durable before anything it lists is changed, so it may
speak of steps that a crash prevented; a reader compares it with the files. Names in it are plain file names,
never paths: a manifest cannot make anybody write outside its directory.
"""

from __future__ import annotations

import json
from pathlib import PurePath
from typing import Any, Final, NamedTuple

from recovery.plan.digest import sha256_of
from storage.base.errors import CheckpointCorrupt, UnsupportedFormat
from storage.base.units import INT64_MAX

SCHEMA_VERSION: Final = 1
SUFFIX: Final = ".logmend"
MANIFEST_SUFFIX: Final = ".logmend.json"
KEPT_PREFIX: Final = "kept."
"""Before every name of ours: a broker that finishes an interrupted compaction removes each file whose name begins with
an offset in its range, whatever the name ends with."""
_ID_LENGTH: Final = 12
_LONGEST_NAME: Final = 255
_DIGEST_LENGTH: Final = 16
MANIFEST_LIMIT: Final = 64 << 20


class Item(NamedTuple):
    """One thing that was done to the file called `name`.

    `step` is one of cut (`size` bytes from `position` on were taken off and are in `kept`, unless `zeroes`), copied
    (they are in `kept`, and stayed where they were), aside (the file itself is now called `kept`), renamed (it is now
    called `result_name`), replaced (the old file is called `kept`; empty if there was no room to keep a derived file)
    and created (it was not there before). `first_offset` is that of the first record concerned. `mtime_ns` is that
    of the file before, `mode` as well where the file itself is gone. `kept_size` is that of `kept` where it lacks the
    zeroes that the file ends with. `sha256` is of the kept bytes, those zeroes included, `result_size` and
    `result_sha256` of what stands there instead.
    """

    step: str
    name: str
    reason: str
    kept: str = ""
    position: int = 0
    size: int = 0
    zeroes: bool = False
    sha256: str = ""
    mtime_ns: int = 0
    result_name: str = ""
    result_size: int = 0
    result_sha256: str = ""
    first_offset: int | None = None
    mode: int = 0o644
    kept_size: int | None = None


class Manifest(NamedTuple):
    """What one plan did in one directory, in the order in which it was done.

    With `copies_in` it is the record of a log directory that copies of this plan lie below that directory instead.
    """

    plan_id: str
    directory: str
    created_ms: int
    logmend_version: str
    items: tuple[Item, ...]
    schema_version: int = SCHEMA_VERSION
    copies_in: str = ""

    @property
    def kept_bytes(self) -> int:
        """Bytes of records and files that stand under names of ours."""
        return sum(item.size if item.kept_size is None else item.kept_size for item in self.items if item.kept)


def manifest_name(plan_id: str) -> str:
    """Return the file name of the manifest of a plan."""
    return plan_id + MANIFEST_SUFFIX


def kept_name(name: str, plan_id: str, position: int | None = None) -> str:
    """Return the name under which a whole file, or its bytes from `position` on, are kept.

    At most 255 bytes long, as all names of files are: of a longer one only the beginning and a digest are in it.
    """
    rest = ("" if position is None else f".{position}") + f".{plan_id}{SUFFIX}"
    raw = name.encode("utf-8", "surrogateescape")
    room = _LONGEST_NAME - len(KEPT_PREFIX) - len(rest)
    if len(raw) > room:
        digest = sha256_of(raw)[:_DIGEST_LENGTH]
        name = f"{raw[: room - len(digest) - 1].decode('utf-8', 'ignore')}~{digest}"
    return f"{KEPT_PREFIX}{name}{rest}"


def encode(manifest: Manifest) -> bytes:
    """Return the manifest as JSON text, for people to read as well: a line for each item.

    To have `json` indent it would take ten times as long, for each of thousands of partitions.
    """
    items = ",\n  ".join(json.dumps(item._asdict(), sort_keys=True) for item in manifest.items)
    fields = {name: json.dumps(value) for name, value in manifest._replace(items=())._asdict().items()}
    fields["items"] = f"[\n  {items}\n ]" if items else "[]"
    return ("{\n " + ",\n ".join(f'"{name}": {fields[name]}' for name in sorted(fields)) + "\n}").encode()


_STEPS: Final = frozenset({"cut", "copied", "aside", "renamed", "replaced", "created"})


def decode(data: bytes, path: PurePath) -> Manifest:
    """Parse a manifest strictly; `CheckpointCorrupt` says what is wrong with it, `UnsupportedFormat` of a newer one."""
    try:
        plain = json.loads(data, object_pairs_hook=_no_duplicates)
    except (ValueError, RecursionError) as error:
        raise CheckpointCorrupt(f"not a manifest: {error}", path=path) from None
    if not isinstance(plain, dict):
        raise CheckpointCorrupt("not a manifest: no JSON object", path=path)
    if plain.get("schema_version") != SCHEMA_VERSION:
        raise UnsupportedFormat(f"manifest version {plain.get('schema_version')!r}", path=path)
    items = plain.pop("items", None)
    if not isinstance(items, list):
        raise CheckpointCorrupt("items: a list is needed", path=path)
    manifest = Manifest(items=tuple(_item(item, path) for item in items), **_checked(plain, Manifest, path))
    if len(manifest.plan_id) != _ID_LENGTH or not set(manifest.plan_id) <= set("0123456789abcdef"):
        raise CheckpointCorrupt("plan_id: twelve hex digits are needed", path=path)
    for text in (manifest.directory, manifest.copies_in or "/"):
        named = PurePath(text)
        if not named.is_absolute() or ".." in named.parts or not _is_nameable(text):
            raise CheckpointCorrupt(f"directory: {text!r:.60} is no absolute path", path=path)
    return manifest


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a key stands twice")
    return fields


def _item(plain: object, path: PurePath) -> Item:
    if not isinstance(plain, dict):
        raise CheckpointCorrupt("an item is no object", path=path)
    item = Item(**_checked(plain, Item, path))
    if item.step not in _STEPS:
        raise CheckpointCorrupt(f"step {item.step!r} is unknown", path=path)
    for name in (item.name, item.kept, item.result_name):
        if name and not is_plain_name(name):
            raise CheckpointCorrupt(f"{name!r} is no plain file name", path=path)
    if not item.name or min(item.position, item.size, item.result_size, item.kept_size or 0) < 0:
        raise CheckpointCorrupt("an item without a name, or with a negative number", path=path)
    if item.kept and not item.kept.endswith(SUFFIX):
        raise CheckpointCorrupt(f"{item.kept!r} is no name of ours", path=path)
    return item


def is_plain_name(name: str) -> bool:
    """Tell whether `name` names a file of a directory and nothing else."""
    if name in ("", ".", "..") or "/" in name or not _is_nameable(name):
        return False
    return len(name.encode("utf-8", "surrogateescape")) <= _LONGEST_NAME


def _is_nameable(text: str) -> bool:
    """Tell whether a path can hold it: bytes that are no UTF-8 stand as lone surrogates, nothing else does."""
    try:
        return b"\0" not in text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False


_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "str": (str,),
    "int": (int,),
    "bool": (bool,),
    "int | None": (int, type(None)),
}


def _checked(plain: dict[str, Any], kind: type, path: PurePath) -> dict[str, Any]:
    """Return the fields that `kind` knows, each of its type; later releases may have added others."""
    wanted = {name: hint.__forward_arg__ for name, hint in kind.__annotations__.items()}
    fields = {}
    for name, value in plain.items():
        if name not in wanted or name == "items":
            continue
        allowed = _TYPES[wanted[name]]
        if not isinstance(value, allowed) or (isinstance(value, bool) and wanted[name] != "bool"):
            raise CheckpointCorrupt(f"{name}: {value!r:.60} is not {wanted[name]}", path=path)
        if isinstance(value, int) and not -INT64_MAX <= value <= INT64_MAX:
            raise CheckpointCorrupt(f"{name}: no number of 64 bits", path=path)
        fields[name] = value
    try:
        kind(**fields, **({"items": ()} if "items" in wanted else {}))
    except TypeError as error:
        raise CheckpointCorrupt(f"a field is missing: {error}", path=path) from None
    return fields
