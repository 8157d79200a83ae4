"""One grammar of sizes, spans and addresses for flags and files."""

from __future__ import annotations

import pytest

from storage.base.quantities import Address, parse_address, parse_size, parse_span


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0B", 0), ("5", 5), ("512B", 512), ("2k", 2048), ("3M", 3 << 20), ("4GiB", 4 << 30), ("1t", 1 << 40),
        ("512 KiB", 512 << 10), ("1024TiB", 1 << 50), ("8g", 8 << 30), (" 8g ", 8 << 30), ("007K", 7 << 10),
    ],
)  # fmt: skip
def test_a_size_has_a_binary_unit_in_its_long_or_short_form(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "x", "M", "-1", "+1", "1X", "1.5G", "50MB", "1 0K", "1" * 16, "1Ki", "٣K", "1K\n2"]
)
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match='a size such as "512KiB"'):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90.0), ("1.5min", 90.0), ("36h", 129600.0), ("14d", 1209600.0), ("5 ms", 0.005)]
)
def test_a_span_has_a_unit(text: str, seconds: float) -> None:
    assert parse_span(text) == seconds


@pytest.mark.parametrize("text", ["", "14", "s", "-1s", "1e400s", "1m", "90S", "1.2345s"])
def test_what_is_no_span_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match='a span such as "90s"'):
        parse_span(text)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:9092", "127.0.0.1", 9092),
        ("[::1]:0", "::1", 0),
        ("kafka.example.org:65535", "kafka.example.org", 65535),
    ],
)
def test_an_address_prints_as_it_is_written(text: str, host: str, port: int) -> None:
    address = parse_address(text)
    assert address == Address(host, port)
    assert str(address) == text


@pytest.mark.parametrize(
    "text",
    ["", "9092", ":80", "host", "host:", "host:x", "host:65536", "host:-1", "::1:9092", "[::1:80", "[]:80", "a b:80",
     "/a:80", "host:0000000080", "host:٣"],
)  # fmt: skip
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a host and a port"):
        parse_address(text)
