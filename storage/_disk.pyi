from pathlib import PurePath
from typing import TypeVar

_Stat = TypeVar("_Stat")
_Kind = TypeVar("_Kind")

def entries(
    path: PurePath, stat: type[_Stat], kinds: tuple[_Kind, _Kind, _Kind, _Kind], /
) -> list[tuple[str, _Stat]]: ...
def parts(directory: PurePath, wanted: tuple[tuple[str, int, int], ...], /) -> list[bytes | int]: ...
def seek_batch(
    descriptor: int, start: int, end: int, offset: int, timestamp: int, /
) -> tuple[int, int, int, int, int, int] | None: ...
def glance(
    path: PurePath, user: int, /
) -> tuple[int, int, int, int, int, int, int, bool, bytes | None, bytes | None, bytes | None] | None: ...
