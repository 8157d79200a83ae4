"""Whole numbers in text, as Java reads them: what a broker takes for a number in a file name or a checkpoint is one."""

from __future__ import annotations

from storage.base.units import INT32_MAX, INT64_MAX


def parse_int32(text: str) -> int | None:
    """Return the number as `Integer.parseInt` does, None where that would fail."""
    number = parse_int64(text)
    return number if number is not None and -INT32_MAX - 1 <= number <= INT32_MAX else None


def parse_int64(text: str) -> int | None:
    """Return the number as `Long.parseLong` does, None where that would fail.

    One sign may lead, zeros may pad, no white space and no underscore is allowed, and decimal digits of other scripts
    count, as far as they are one UTF-16 unit each. The time taken is linear in the text, however long it is.
    """
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits.isdecimal():
        return None
    if not digits.isascii():
        if max(digits) > "\uffff":
            return None
        digits = "".join([str(int(digit)) for digit in digits])
    if len(digits) > 19:
        digits = digits.lstrip("0") or "0"
        if len(digits) > 19:
            return None
    number = -int(digits) if text[0] == "-" else int(digits)
    return number if -INT64_MAX - 1 <= number <= INT64_MAX else None
