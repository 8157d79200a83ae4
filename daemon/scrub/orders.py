"""Orders to a scrubber: any thread gives them, the scrubber's thread carries them out."""

from __future__ import annotations

from collections import deque
from typing import Final

from daemon.ledger.page import Page
from daemon.scrub.context import ScrubContext
from daemon.scrub.verify_options import ScrubOptions

COMMANDS: Final = ("scrub-now", "scrub-pause", "scrub-resume")


class Orders:
    """The orders and options that wait for the scrubber of one log directory."""

    def __init__(self, context: ScrubContext) -> None:
        self._context = context
        self._waiting: deque[tuple[str, str]] = deque()
        self._options: deque[ScrubOptions] = deque()
        self._unread: list[str] = []
        """Topics that were requested and are not read yet: a ledger that starts over would forget them."""

    # ---- from any thread

    def command(self, name: str, argument: str) -> str:
        """Accept one of `COMMANDS` and answer in a sentence; `ValueError` for any other."""
        if name not in COMMANDS:
            raise ValueError(name)
        self._waiting.append((name, argument))
        log_dir, options = self._context.log_dir, self._context.options
        if name == "scrub-pause":
            return f"{log_dir}: the scrubber pauses, also after a restart, until scrub-resume"
        if name == "scrub-resume":
            return f"{log_dir}: the scrubber goes on"
        scope = f"topic {argument}" if argument else "everything"
        return f"{log_dir}: {scope} is read now, at {options.max_bytes_per_second} bytes a second at most"

    def adjust(self, options: ScrubOptions) -> None:
        """Put other options in force with the next step."""
        self._options.append(options)

    # ---- on the scrubber's thread

    def take_options(self) -> bool:
        """Put the newest options in force; return whether there were any."""
        is_new = bool(self._options)
        context = self._context
        while self._options:
            context.options = self._options.popleft()
            context.health.adjust(context.options.sick_errors, context.options.sick_seconds)
        return is_new

    def carry_out(self, page: Page, *, is_listed: bool) -> None:
        """Carry out what waits; a `scrub-now` waits until every partition `is_listed`."""
        while self._waiting:
            name, argument = self._waiting[0]
            if name == "scrub-now" and not is_listed:
                return
            self._waiting.popleft()
            if name == "scrub-now":
                page.ask_for_all(argument or None)
                self._unread.append(argument)
                self._context.tell("scrub_requested")
            else:
                self._set_paused(page, is_paused=name == "scrub-pause")

    def _set_paused(self, page: Page, *, is_paused: bool) -> None:
        page.set_paused(paused=is_paused)
        self._context.tell("scrub_paused" if is_paused else "scrub_resumed")
        if not is_paused and page.device is not None:
            self._context.health.clear(page.device)

    def all_read(self) -> None:
        """Note that every segment that was requested has been read."""
        self._unread.clear()

    def repeat_unread(self) -> None:
        """Request again what a ledger that started over has forgotten."""
        self._waiting.extendleft(("scrub-now", topic) for topic in self._unread)
