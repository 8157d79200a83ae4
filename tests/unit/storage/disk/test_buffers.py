"""Memory to read files into."""

from __future__ import annotations

import ctypes

import pytest

from storage.disk.buffers import PAGE_BYTES, page_aligned


def place_of(memory: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


@pytest.mark.parametrize("size", [0, 1, 7, 8, 4095, 4096, 4097, 1 << 20, (2 << 20) + 1])
def test_a_buffer_has_the_wanted_size_begins_a_page_and_is_zero(size: int) -> None:
    made = page_aligned(size)
    assert len(made) == size
    assert made.format == "B"
    assert bytes(made) == bytes(size)
    assert not size or place_of(made) % PAGE_BYTES == 0


def test_every_byte_can_be_written() -> None:
    made = page_aligned(10_000)
    made[:] = bytes(n % 251 for n in range(10_000))
    assert bytes(made) == bytes(n % 251 for n in range(10_000))


def test_two_buffers_share_nothing() -> None:
    first, second = page_aligned(100), page_aligned(100)
    first[:] = b"x" * 100
    assert bytes(second) == bytes(100)
