def put_keys(
    block: bytearray,
    table: int,
    payload: bytes,
    count: int,
    base_offset: int,
    start: int,
    size: int,
    limit: int,
    /,
) -> tuple[int, int, bool]: ...
def mark_kept(
    block: bytearray,
    table: int,
    payload: bytes,
    count: int,
    base_offset: int,
    latest: int,
    tombstones_stay: bool,
    flags: bytearray,
    /,
) -> tuple[int, int, int]: ...
def move_records(
    payload: bytes,
    flags: bytes | bytearray,
    count: int,
    old_base: int,
    is_fixed: bool,
    time: int,
    has_base: bool,
    base: int,
    /,
) -> tuple[bytes, int, int]: ...
