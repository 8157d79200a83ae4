"""Login: SASL PLAIN and SCRAM-SHA-256 on one connection.

Source: Apache Kafka 4.3.0, SaslServerAuthenticator; RFC 4616, RFC 5802, RFC 7677.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from server.errors import CloseConnection
from wire.messages import Request


class Login(Protocol):
    """Who a peer is, being found out. `principal` is None until then."""

    principal: str | None

    def answer(self, request: Request) -> Mapping[str, object]:
        """Return the answer to a request before the end of the login; raises `CloseConnection` for any other."""


class NoLogin:
    """Refuses."""

    principal: str | None = None

    def answer(self, request: Request) -> Mapping[str, object]:
        raise CloseConnection(f"request {request.api_key} before authentication")
