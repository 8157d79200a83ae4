"""Asking: a request, the rights of its user, and the handler behind the check."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from daemon.service.access import CLUSTER_NAME, Operation, Resource
from server.access.rights import Rights
from server.api.dispatch import Answer, Call, Handler
from server.api.errors import ErrorCode
from server.api.lookup import TopicIds
from server.api.views import ReadStore

Answers = Answer | Awaitable[Answer]
Item = TypeVar("Item")
OMITTED = -(1 << 31)
"""`authorized_operations` where the client does not ask for them."""
DENIED = {
    Resource.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    Resource.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    Resource.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    Resource.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
MESSAGES = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
}


@dataclass(frozen=True, slots=True)
class Topics:
    """What a check knows of topics: those that are there, by name and by id, and whether a request may create some."""

    store: ReadStore
    ids: TopicIds
    auto_create: bool


@dataclass(frozen=True, slots=True)
class Asking:
    """One request before its handler."""

    call: Call
    rights: Rights
    topics: Topics
    handler: Handler

    @property
    def body(self) -> Any:
        """The body of the request."""
        return self.call.body

    def may(self, operation: Operation, resource: Resource, name: str = CLUSTER_NAME) -> bool:
        """Return whether the user may do this."""
        return self.rights.may(operation, resource, name)

    def split(
        self, operation: Operation, resource: Resource, items: Iterable[Item], name_of: Callable[[Item], str]
    ) -> tuple[list[Item], list[Item]]:
        """Return the items with whose names the user may do this, and the others."""
        verdicts: dict[str, bool] = {}
        parts: tuple[list[Item], list[Item]] = ([], [])
        for item in items:
            name = name_of(item)
            if name not in verdicts:
                verdicts[name] = self.may(operation, resource, name)
            parts[not verdicts[name]].append(item)
        return parts

    def go_on(self, **changed: object) -> Answers:
        """Return what the handler answers to the request with these fields of the body changed."""
        body = self.body
        if changed:
            is_named_tuple = hasattr(body, "_replace")
            body = body._replace(**changed) if is_named_tuple else dataclasses.replace(body, **changed)
        return self.handler(dataclasses.replace(self.call, body=body))


def then(answer: Answers, change: Callable[[Mapping[str, Any]], Mapping[str, object]]) -> Answers:
    """Return an answer as `change` makes it, at once where it is there already."""
    if answer is None or isinstance(answer, Mapping):
        return None if answer is None else change(answer)
    return _later(answer, change)


async def _later(
    answer: Awaitable[Answer], change: Callable[[Mapping[str, Any]], Mapping[str, object]]
) -> Mapping[str, object] | None:
    values = await answer
    return None if values is None else change(values)


def extended(answer: Answers, field: str, more: list[dict[str, Any]]) -> Answers:
    """Return an answer with more entries in a field."""
    return then(answer, lambda values: {**values, field: [*values.get(field, ()), *more]}) if more else answer
