"""What came of healing, of handing a log directory over, and of keeping log ends: text for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.plan.words import count, full_size
from storage.base.errors import printable

if TYPE_CHECKING:
    from recovery.heal.healing import HealNote
    from recovery.plan.results import HandedOver, KeptTails


def heal_row(note: HealNote, *, is_done: bool) -> tuple[str, str, str, str]:
    """Return verb, partition and place of a hole, and what filled it or why nothing did."""
    until = "on" if note.next_offset is None else f"to {max(note.next_offset - 1, note.first_offset)}"
    text = f"offsets {note.first_offset} {until}"
    if note.healed and not note.batches and note.source:
        text += f": their leader epochs from {printable(note.source)}"
    elif note.healed and note.source:
        text += f": {count(note.batches, 'batch', 'batches')}, {full_size(note.size)} from {printable(note.source)}"
        text += f"; no more, for {printable(note.reason)}" if note.reason else ""
    else:
        text += f": {printable(note.reason)}" if note.reason else ": bytes between two batches that join"
    verb = ("healed" if is_done else "heal") if note.healed else "not healed"
    return verb, note.partition, f"{printable(note.log.name)} at {note.position}", text


def handed_text(handed: HandedOver) -> str:
    """Return which segments were rolled, how many recovery points rose, and what a broker scans when it starts."""
    points = f"{count(len(handed.rises), 'recovery point')} raised to the log end; " if handed.rises else ""
    if handed.rolls:
        points = f"{rolls_text(len(handed.rolls), sum(roll.size for roll in handed.rolls))}; {points}"
    if handed.marker:
        return f"{points}marked as shut down cleanly: a broker scans nothing but its metadata log"
    reason = f" (no marker: {printable(handed.refused)})" if handed.refused else ""
    return f"{points}a broker will scan {full_size(handed.broker_scans)}{reason}"


def rolls_text(segments: int, size: int) -> str:
    """Return how many active segments are rolled, and how much a broker need not scan for that."""
    return f"{count(segments, 'active segment')} of {full_size(size)} rolled"


def tails_text(tails: KeptTails) -> str:
    """Return how much of the log ends was copied, and for which partitions the room did not suffice."""
    copied = f"{full_size(tails.bytes)} of {count(tails.partitions, 'partition')} copied"
    text = f"log ends that a broker may truncate: {copied}"
    return text + (f"; no room for {', '.join(map(printable, tails.left_out))}" if tails.left_out else "")
