from pathlib import PurePath
from typing import TypeAlias, TypeVar

_Stat = TypeVar("_Stat")
_Kind = TypeVar("_Kind")
_Tuple = TypeVar("_Tuple", bound=tuple[object, ...])
_Data: TypeAlias = bytes | bytearray | memoryview

def entries(
    path: PurePath, stat: type[_Stat], kinds: tuple[_Kind, _Kind, _Kind, _Kind], /
) -> list[tuple[str, _Stat]]: ...
def parts(directory: PurePath, wanted: tuple[tuple[str, int, int], ...], /) -> list[bytes | int]: ...
def seek_batch(descriptor: int, start: int, end: int, timestamp: int, kind: type[_Tuple], /) -> _Tuple | None: ...
def seek_offset(
    descriptor: int, index: _Data, base_offset: int, end: int, offset: int, kind: type[_Tuple], /
) -> _Tuple | None: ...
def seek_time(
    descriptor: int,
    times: _Data,
    offsets: _Data,
    base_offset: int,
    end: int,
    timestamp: int,
    log_start: int,
    kind: type[_Tuple],
    /,
) -> _Tuple | None: ...
def file_system(descriptor: int, /) -> int: ...
def sync_file_system(descriptor: int, /) -> None: ...
