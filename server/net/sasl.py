"""Login: who is at the other end of a connection, found out by SASL PLAIN or SCRAM-SHA-256.

A refused login says no more than that, a little late, and ends the connection. A user that does not exist cannot be
told from a wrong password. Sessions do not expire. Old clients send their tokens without a request around them, after a
handshake of version 0: the frames that follow are tokens then.
Source: Apache Kafka 4.3.0, SaslServerAuthenticator, PlainSaslServer, ScramSaslServer; RFC 4616, RFC 5802, RFC 7677.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from scramp import ScramMechanism

from server.api.dispatch import Call, Handler
from server.api.errors import CloseConnection, ErrorCode
from server.api.versions import ApiKey
from storage.base.errors import ConfigInvalid, printable
from wire.messages import Request

PLAIN: Final = "PLAIN"
SCRAM: Final = "SCRAM-SHA-256"
MECHANISMS: Final = (PLAIN, SCRAM)
_ITERATIONS: Final = 4096
_SALT_BYTES: Final = 16
_REFUSED: Final = "authentication failed"
_DELAY_SECONDS: Final = 0.1
"""As a broker's `connection.failed.authentication.delay.ms`: guessing shall not be quick."""


class Users:
    """The users who may log in: keyed digests, no passwords."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._key = secrets.token_bytes(32)
        self._mechanism = ScramMechanism(SCRAM)
        self._plain = {user: self._digest(password) for user, password in passwords.items()}
        self._scram = {user: self._scram_info(password) for user, password in passwords.items()}
        self._nobody = self._scram_info(secrets.token_hex())

    def _digest(self, password: str) -> bytes:
        return hmac.digest(self._key, password.encode(), hashlib.sha256)

    def _scram_info(self, password: str) -> Any:
        return self._mechanism.make_auth_info(
            password, iteration_count=_ITERATIONS, salt=secrets.token_bytes(_SALT_BYTES)
        )

    def _stranger(self, user: str) -> Any:
        """Return what no password fits, with a salt that stays the same for the name as that of a user does."""
        salt = hmac.digest(self._key, b"salt " + user.encode(), hashlib.sha256)[:_SALT_BYTES]
        return salt, *self._nobody[1:]

    def is_right(self, user: str, password: str) -> bool:
        """Return whether this is the user's password."""
        digest = self._digest(password)
        return hmac.compare_digest(self._plain.get(user, b""), digest)

    def scram_server(self, named: Callable[[str], None]) -> Any:
        """Return one login by SCRAM; `named` receives the user name of the client."""

        def look_up(user: str) -> Any:
            named(user)
            return self._scram.get(user) or self._stranger(user)

        return self._mechanism.make_server(look_up)


def parse_users(text: str, name: str) -> Users:
    """Return the users in a file of lines `user:password`; empty lines and those that begin with `#` do not count.

    Raises `ConfigInvalid`, which shows no password.
    """
    passwords: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        user, colon, password = line.partition(":")
        if not colon or not user or not password or user in passwords:
            raise ConfigInvalid(f"{printable(name)}: line {number}: not user:password, or a user of an earlier line")
        passwords[user] = password
    if not passwords:
        raise ConfigInvalid(f"{printable(name)}: no user")
    return Users(passwords)


class Login(Protocol):
    """The login of a peer. `principal` is None until it succeeds; after `has_failed` nothing more is answered."""

    principal: str | None
    has_failed: bool
    takes_tokens: bool
    """The next frame is a token without a request around it."""

    @property
    def claimed(self) -> str | None:
        """The name that the client gave, if it got so far."""

    async def answer(self, request: Request) -> Mapping[str, object]:
        """Return the answer to a request before the end of the login; raises `CloseConnection` for any other."""

    async def answer_token(self, token: bytes) -> bytes:
        """Return the answer to a token; raises `CloseConnection` where the login is refused."""


class _Exchange(Protocol):
    """One login by one mechanism."""

    user: str | None
    claimed: str | None

    def step(self, token: bytes) -> bytes:
        """Return the answer to this token; `user` is set once the login succeeds. Raises `ValueError` if it fails."""


class _Plain:
    def __init__(self, users: Users) -> None:
        self._users = users
        self.user: str | None = None
        self.claimed: str | None = None

    def step(self, token: bytes) -> bytes:
        identity, user, password = token.decode().split("\0")
        self.claimed = user
        if identity not in ("", user) or not self._users.is_right(user, password):
            raise ValueError(_REFUSED)
        self.user = user
        return b""


class _Scram:
    def __init__(self, users: Users) -> None:
        self._server = users.scram_server(self._note)
        self._is_begun = False
        self.claimed: str | None = None
        self.user: str | None = None

    def _note(self, user: str) -> None:
        self.claimed = user

    def step(self, token: bytes) -> bytes:
        server = self._server
        try:
            if not self._is_begun:
                self._is_begun = True
                server.set_client_first(token.decode())
                return str(server.get_server_first()).encode()
            server.set_client_final(token.decode())
            final = str(server.get_server_final()).encode()
        except Exception as error:
            raise ValueError(_REFUSED) from error
        self.user = self.claimed
        return final


_EXCHANGES: Final[Mapping[str, Callable[[Users], _Exchange]]] = {PLAIN: _Plain, SCRAM: _Scram}


class SaslLogin:
    """A login by one of `MECHANISMS`. For the thread of the loop."""

    def __init__(self, users: Users) -> None:
        self._users = users
        self._exchange: _Exchange | None = None
        self.principal: str | None = None
        self.has_failed = self.takes_tokens = False

    @property
    def claimed(self) -> str | None:
        """See `Login`."""
        return None if self._exchange is None else self._exchange.claimed

    async def answer(self, request: Request) -> Mapping[str, object]:
        """See `Login`."""
        if self.has_failed:
            raise CloseConnection("a request behind a refused login")
        if request.api_key == ApiKey.SASL_HANDSHAKE and self._exchange is None:
            return self._handshake(request)
        if request.api_key == ApiKey.SASL_AUTHENTICATE and self._exchange is not None:
            try:
                token = self._step(bytes(request.body.auth_bytes))
            except ValueError:
                self.has_failed = True
                await asyncio.sleep(_DELAY_SECONDS)
                code = ErrorCode.SASL_AUTHENTICATION_FAILED
                return {"error_code": code, "error_message": _REFUSED, "auth_bytes": b""}
            return {"error_code": ErrorCode.NONE, "error_message": None, "auth_bytes": token}
        raise CloseConnection(f"request {request.api_key} before authentication")

    async def answer_token(self, token: bytes) -> bytes:
        """See `Login`."""
        try:
            return self._step(token)
        except ValueError:
            self.has_failed = True
            await asyncio.sleep(_DELAY_SECONDS)
            raise CloseConnection(_REFUSED) from None

    def _handshake(self, request: Request) -> Mapping[str, object]:
        exchange = _EXCHANGES.get(request.body.mechanism)
        if exchange is None:
            self.has_failed = True
            return {"error_code": ErrorCode.UNSUPPORTED_SASL_MECHANISM, "mechanisms": list(MECHANISMS)}
        self._exchange = exchange(self._users)
        self.takes_tokens = request.api_version == 0
        return {"error_code": ErrorCode.NONE, "mechanisms": list(MECHANISMS)}

    def _step(self, token: bytes) -> bytes:
        assert self._exchange is not None, "a handshake came before"
        answer = self._exchange.step(token)
        if self._exchange.user is not None:
            self.principal, self.takes_tokens = self._exchange.user, False
        return answer


def handlers() -> dict[int, Handler]:
    """Return the handlers of login requests after the login; before it the connection answers them."""

    def refused(call: Call) -> Mapping[str, object]:
        del call
        return {"error_code": ErrorCode.ILLEGAL_SASL_STATE, "mechanisms": list(MECHANISMS), "auth_bytes": b""}

    return {ApiKey.SASL_HANDSHAKE: refused, ApiKey.SASL_AUTHENTICATE: refused}
