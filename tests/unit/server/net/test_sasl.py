"""Logins: PLAIN and SCRAM-SHA-256, right and wrong, in requests and in bare tokens."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from scramp import ScramClient

from server.api.errors import CloseConnection, ErrorCode
from server.api.versions import ApiKey
from server.net.sasl import SaslLogin, parse_users
from storage.base.errors import ConfigInvalid

USERS = parse_users("# who may come in\nalice:wonder:land\n\nbob:b\u00fcilder\n", "users")


def ask(login: SaslLogin, key: int, version: int = 1, **body: object) -> Any:
    request: Any = SimpleNamespace(api_key=key, api_version=version, body=SimpleNamespace(**body))
    return asyncio.run(login.answer(request))  # type: ignore[arg-type]


def begun(mechanism: str, version: int = 1) -> SaslLogin:
    login = SaslLogin(USERS)
    assert ask(login, ApiKey.SASL_HANDSHAKE, version, mechanism=mechanism)["error_code"] == ErrorCode.NONE
    return login


def authenticate(login: SaslLogin, token: bytes) -> Any:
    return ask(login, ApiKey.SASL_AUTHENTICATE, auth_bytes=token)


@pytest.mark.parametrize("token", [b"\0alice\0wonder:land", b"alice\0alice\0wonder:land", b"\0bob\0b\xc3\xbcilder"])
def test_plain_lets_in_who_knows_the_password(token: bytes) -> None:
    login = begun("PLAIN")
    assert authenticate(login, token)["error_code"] == ErrorCode.NONE
    assert login.principal == token.split(b"\0")[1].decode()


@pytest.mark.parametrize(
    "token",
    [
        b"\0alice\0wrong",
        b"\0nobody\0wonder:land",
        b"bob\0alice\0wonder:land",
        b"",
        b"\0\0",
        b"\0a\xff\0b",
        b"\0alice\0",
    ],
)
def test_plain_refuses_everybody_else_in_the_same_words(token: bytes) -> None:
    login = begun("PLAIN")
    answer = authenticate(login, token)
    assert (answer["error_code"], answer["error_message"]) == (58, "authentication failed")
    assert login.principal is None
    assert login.has_failed
    with pytest.raises(CloseConnection):
        authenticate(login, b"\0alice\0wonder:land")


def scram(login: SaslLogin, user: str, password: str) -> Any:
    client = ScramClient(["SCRAM-SHA-256"], user, password)
    first = authenticate(login, client.get_client_first().encode())
    assert first["error_code"] == ErrorCode.NONE
    client.set_server_first(first["auth_bytes"].decode())
    final = authenticate(login, client.get_client_final().encode())
    if final["error_code"] == ErrorCode.NONE:
        client.set_server_final(final["auth_bytes"].decode())  # it proves that we know the password as well
    return final


def test_scram_lets_in_who_knows_the_password_and_proves_that_we_do() -> None:
    login = begun("SCRAM-SHA-256")
    assert scram(login, "alice", "wonder:land")["error_code"] == ErrorCode.NONE
    assert login.principal == "alice"


@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", "wonder:land")])
def test_scram_does_not_tell_a_wrong_user_from_a_wrong_password(user: str, password: str) -> None:
    login = begun("SCRAM-SHA-256")
    answer = scram(login, user, password)
    assert (answer["error_code"], answer["error_message"]) == (58, "authentication failed")
    assert login.principal is None


def test_the_salt_of_a_name_tells_nobody_whether_the_user_exists() -> None:
    def salt(user: str) -> str:
        client = ScramClient(["SCRAM-SHA-256"], user, "guess")
        first: bytes = authenticate(begun("SCRAM-SHA-256"), client.get_client_first().encode())["auth_bytes"]
        return first.decode().split(",")[1]

    for user in ("alice", "nobody", "somebody"):
        assert salt(user) == salt(user)
    assert len({salt(user) for user in ("alice", "nobody", "somebody")}) == 3


@pytest.mark.parametrize("token", [b"", b"\xff\xfe", b"n,,n=alice", b"x" * 10_000])
def test_scram_takes_no_nonsense(token: bytes) -> None:
    login = begun("SCRAM-SHA-256")
    assert authenticate(login, token)["error_code"] == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_another_mechanism_is_refused_with_the_list_of_ours() -> None:
    login = SaslLogin(USERS)
    answer = ask(login, ApiKey.SASL_HANDSHAKE, mechanism="GSSAPI")
    assert (answer["error_code"], answer["mechanisms"]) == (33, ["PLAIN", "SCRAM-SHA-256"])
    assert login.has_failed


@pytest.mark.parametrize("key", [ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.SASL_AUTHENTICATE])
def test_nothing_else_is_answered_before_the_handshake(key: ApiKey) -> None:
    with pytest.raises(CloseConnection, match="before authentication"):
        ask(SaslLogin(USERS), key, auth_bytes=b"")


def test_after_a_handshake_of_version_0_tokens_come_bare() -> None:
    login = begun("PLAIN", 0)
    assert login.takes_tokens
    assert asyncio.run(login.answer_token(b"\0alice\0wonder:land")) == b""
    assert (login.principal, login.takes_tokens) == ("alice", False)
    other = begun("PLAIN", 0)
    with pytest.raises(CloseConnection):
        asyncio.run(other.answer_token(b"\0alice\0wrong"))


@pytest.mark.parametrize("text", ["", "# nobody\n", "alice\n", ":x\n", "alice:\n", "alice:a\nalice:b\n"])
def test_a_file_of_users_that_makes_no_sense_is_refused_without_showing_what_is_in_it(text: str) -> None:
    with pytest.raises(ConfigInvalid) as refused:
        parse_users(text, "users")
    assert "alice" not in str(refused.value)
