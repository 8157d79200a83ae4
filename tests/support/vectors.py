"""Batches byte by byte, each of which Kafka's own classes have parsed, and written back the same where they can."""

from __future__ import annotations

from typing import Final

TS: Final = 1700000000000


def _bytes(*lines: str) -> bytes:
    return bytes.fromhex("".join(lines))


V2_A: Final = _bytes(
    "0000000000000064 0000004e 00000005 02 2c2d2fd4",
    "0000 00000001 0000018bcfe56800 0000018bcfe56807",
    "0000000000000fa0 0001 0000000a 00000002",
    "26 00 00 00 04 6b30 0a 68656c6c6f 02 04 6831 04 0102",
    "10 00 0e 02 04 6b31 01 00",
)
"""Two records at 100, one header, idempotent producer 4000 epoch 1, leader epoch 5."""

V2_B: Final = _bytes(
    "0000000000000064 00000031 00000005 02 95729d2c 0000 00000001 ffffffffffffffff 0000018bcfe56807",
    "0000000000000fa0 0001 0000000a 00000000",
)
"""What compaction kept of V2_A when both records were gone."""

V2_C: Final = _bytes(
    "0000000000000064 0000003d 00000005 02 3264948e 0040 00000001 0000018bd50bc400 0000018bcfe56807",
    "0000000000000fa0 0001 0000000a 00000001",
    "16 00 f1efb252 02 04 6b31 01 00",
)
"""V2_A with the tombstone left and a delete horizon of TS + 86400000."""

V2_D: Final = _bytes(
    "0000000000000066 00000042 00000005 02 eb0cc37d 0030 00000000 0000018bcfe56809 0000018bcfe56809",
    "0000000000000fa0 0001 ffffffff 00000001",
    "20 00 00 00 08 0000 0000 0c 0000 00000003 00",
)
"""ABORT marker at 102 of producer 4000 epoch 1, coordinator epoch 3."""

V2_E: Final = _bytes(
    "0000000000000000 0000004f 00000001 02 1154eaf9 0020 00000000 0000018bcfe56800 0000018bcfe56800",
    "ffffffffffffffff ffff ffffffff 00000001",
    "3a 00 00 00 08 0000 0002 26 0000 00000001 02 00000001 00 02 00000001 00 00 00",
)
"""LEADER_CHANGE version 0, epoch 1, leader 1, one voter."""

V2_F_HEADER: Final = _bytes(
    "0000000000000000 00000047 00000001 02 c7ac7804 0020 00000000 0000018bcfe56800 0000018bcfe56800",
    "ffffffffffffffff ffff ffffffff 00000001",
    "2a 00 00 00 08 0000 0003 16 0000 0000018bcfe56800 00 00",
)
V2_F_FOOTER: Final = _bytes(
    "0000000000000001 0000003f 00000001 02 8f6608e6 0020 00000000 0000018bcfe56800 0000018bcfe56800",
    "ffffffffffffffff ffff ffffffff 00000001",
    "1a 00 00 00 08 0000 0004 06 0000 00 00",
)
"""A snapshot of nothing: SNAPSHOT_HEADER, then SNAPSHOT_FOOTER at 1."""

V2_SNAPPY: Final = _bytes(
    "0000000000000064 00000064 00000005 02 8605dee4 0002 00000001 0000018bcfe56800 0000018bcfe56807",
    "0000000000000fa0 0001 0000000a 00000002",
    "82534e4150505900 00000001 00000001 0000001f",
    "1d7026000000046b300a68656c6c6f0204683104010210000e02046b310100",
)
"""V2_A with snappy."""

L_0: Final = _bytes("0000000000000007 00000011 165764b1 00 00 00000001 6b 00000002 7630")
L_1: Final = _bytes("0000000000000008 00000019 3e731674 01 00 0000018bcfe56800 00000001 6b 00000002 7631")
L_1T: Final = _bytes("0000000000000009 00000017 d7a7628a 01 08 0000018bcfe56805 ffffffff 00000001 78")
"""Magic 1 with log append time TS + 5."""

L_1G: Final = _bytes(
    "0000000000000015 00000052 4882146c 01 01 0000018bcfe56803 ffffffff 0000003c",
    "1f8b0800000000000000636080038902d6ea34462083b1fbfcd30c90086322883084ca83a424be55d915c3d53083184920c2",
    "08008b4121b848000000",
)
"""Magic 1 gzip wrapper at 21: messages 20 and 21, TS and TS + 3."""

L_0L: Final = _bytes(
    "000000000000001f 0000004d 970d7a24 00 03 ffffffff 0000003f",
    "04224d18 60 40 1a 30000000 12000100911e0000001056cf205f0f0071016100000001310c00b100001f000000104952034b",
    "1000700162000000013200000000",
)
"""Magic 0 LZ4 wrapper at 31: messages 30 and 31, the frame with the header checksum that old brokers wrote."""

SOUND: Final = {
    "V2_A": V2_A, "V2_B": V2_B, "V2_C": V2_C, "V2_D": V2_D, "V2_E": V2_E, "V2_F_HEADER": V2_F_HEADER,
    "V2_F_FOOTER": V2_F_FOOTER, "V2_SNAPPY": V2_SNAPPY,
    "L_0": L_0, "L_1": L_1, "L_1T": L_1T, "L_1G": L_1G, "L_0L": L_0L,
}  # fmt: skip
