"""What the listener reports becomes events, and strangers do not fill the log with them."""

from __future__ import annotations

from server.reporter import reporter_to


class Told:
    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, object]]] = []

    def tell(self, event: str, **fields: object) -> None:
        self.events.append((event, fields))


def test_of_many_refused_clients_the_first_are_told_and_the_others_counted_once_the_minute_is_over() -> None:
    told, now = Told(), [0.0]
    report = reporter_to(told, lambda: now[0])  # type: ignore[arg-type] (the rest of Events is not used)
    for number in range(1000):
        report("login", f"10.0.0.{number}: no login as admin")
    assert [fields["reason"] for _, fields in told.events] == [f"10.0.0.{n}: no login as admin" for n in range(20)]
    now[0] = 61.0
    report("frame", "a frame of -1 bytes")
    assert [fields["kind"] for _, fields in told.events[20:]] == ["more", "frame"]
    assert told.events[20][1]["reason"] == "980 more clients since the last event"


def test_faults_of_our_own_are_all_told() -> None:
    told = Told()
    report = reporter_to(told, lambda: 0.0)  # type: ignore[arg-type]
    for _ in range(50):
        report("fault", "KeyError: 1")
    assert [event for event, _ in told.events] == ["client_failed"] * 50
