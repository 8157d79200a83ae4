"""A connection to a broker: one request at a time, with TLS and SASL as a Kafka client's properties file says.

Messages come from kio; reading is bounded before anything is allocated. Source: Apache Kafka 4.3.0, the protocol guide.
"""

from __future__ import annotations

import contextlib
import io
import re
import socket
import ssl
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

from kio.schema.sasl_authenticate.v1.request import SaslAuthenticateRequest
from kio.schema.sasl_authenticate.v1.response import SaslAuthenticateResponse
from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest
from kio.schema.sasl_handshake.v1.response import SaslHandshakeResponse
from kio.serial import entity_writer
from scramp import ScramClient, ScramException

from checkpoint.properties import decode_properties
from storage.base.errors import CheckpointCorrupt, ConfigInvalid, printable
from wire.messages import decode_response

LARGEST_ANSWER: Final = 256 << 20
SECONDS: Final = 30.0
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_JAAS: Final = re.compile(r'(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')
_CLIENT: Final = "logmend"
_TLS_ALERT: Final = b"\x15\x03"
"""First bytes of the answer to a client that does not speak TLS; as a size they would be above all bounds."""
_KNOWN: Final = frozenset({
    "security.protocol", "sasl.mechanism", "sasl.jaas.config", "ssl.truststore.location", "ssl.truststore.type",
    "ssl.keystore.location", "ssl.keystore.type", "ssl.key.password", "ssl.endpoint.identification.algorithm",
    "ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "sasl.username", "sasl.password",
})  # fmt: skip


class KafkaUnreachable(Exception):
    """The broker cannot be reached, does not answer, or refuses us; its text says which."""


def read_client_properties(name: str) -> dict[str, str]:
    """Return a client's properties; `ConfigInvalid` for a file that cannot be read or asks for what we cannot do."""
    try:
        found = decode_properties(Path(name).read_bytes())
    except OSError as error:
        raise ConfigInvalid(f"--heal-config {printable(name)}: cannot be read: {error.strerror}") from None
    except CheckpointCorrupt as error:
        raise ConfigInvalid(f"--heal-config {printable(name)}: {error.reason}") from None
    properties = {key: value.strip() for key, value in found.items() if key in _KNOWN}
    protocol = properties.setdefault("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise ConfigInvalid(f"--heal-config {printable(name)}: security.protocol is one of {', '.join(PROTOCOLS)}")
    mechanism = properties.get("sasl.mechanism", "PLAIN").upper()
    if protocol.startswith("SASL") and mechanism not in MECHANISMS:
        raise ConfigInvalid(f"--heal-config {printable(name)}: sasl.mechanism is one of {', '.join(MECHANISMS)}")
    for key in ("ssl.truststore.type", "ssl.keystore.type"):
        if properties.get(key, "PEM").upper() != "PEM":
            raise ConfigInvalid(f"--heal-config {printable(name)}: {key} is PEM; other stores are Java's own")
    return properties


class Connection:
    """One connection; a context. Raises `KafkaUnreachable`, and nothing else, for whatever the other side does."""

    def __init__(self, host: str, port: int, properties: Mapping[str, str]) -> None:
        self.address = f"{host}:{port}"
        self._number = 0
        protocol = properties.get("security.protocol", "PLAINTEXT").upper()
        try:
            raw = socket.create_connection((host, port), SECONDS)
            raw.settimeout(SECONDS)
            self._socket: socket.socket = _tls(raw, host, properties) if protocol.endswith("SSL") else raw
        except (OSError, ValueError) as error:
            raise KafkaUnreachable(f"{self.address}: {error}") from None
        if protocol.startswith("SASL"):
            self._authenticate(properties)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close it."""
        with contextlib.suppress(OSError):
            self._socket.close()

    def ask(self, request: Any, response: type[Any]) -> Any:
        """Send a request of kio and return the answer as that type."""
        self._number += 1
        kind = type(request)
        header = kind.__header_schema__(
            request_api_key=kind.__api_key__, request_api_version=kind.__version__, correlation_id=self._number,
            client_id=_CLIENT,
        )  # fmt: skip
        buffer = io.BytesIO()
        entity_writer(kind.__header_schema__)(buffer, header)
        entity_writer(kind)(buffer, request)
        answer = self._exchange(buffer.getvalue())
        try:
            number, found = decode_response(answer, response)  # not by kio: see wire.requests
            if number != self._number:
                raise KafkaUnreachable(f"{self.address}: it answers another request than was asked")
            return found
        except KafkaUnreachable:
            raise
        except Exception as error:  # noqa: BLE001 (bytes of a foreign process; kio has no one class for what it refuses)
            raise KafkaUnreachable(f"{self.address}: an answer that cannot be read: {type(error).__name__}") from None

    def _exchange(self, frame: bytes) -> bytes:
        try:
            self._socket.sendall(struct.pack(">i", len(frame)) + frame)
            head = self._exactly(4)
            if head.startswith(_TLS_ALERT):
                raise KafkaUnreachable(f"{self.address}: it speaks TLS; security.protocol says that it does not")
            (size,) = struct.unpack(">i", head)
            if not 4 <= size <= LARGEST_ANSWER:
                raise KafkaUnreachable(f"{self.address}: an answer of {size} bytes")
            return self._exactly(size)
        except OSError as error:
            raise KafkaUnreachable(f"{self.address}: {error}") from None

    def _exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(min(size - len(parts), 1 << 20))
            if not part:
                raise KafkaUnreachable(f"{self.address}: it closed the connection")
            parts += part
        return bytes(parts)

    def _authenticate(self, properties: Mapping[str, str]) -> None:
        mechanism = properties.get("sasl.mechanism", "PLAIN").upper()
        jaas = {
            key: re.sub(r"\\(.)", r"\1", value) for key, value in _JAAS.findall(properties.get("sasl.jaas.config", ""))
        }
        user = properties.get("sasl.username") or jaas.get("username", "")
        password = properties.get("sasl.password") or jaas.get("password", "")
        answer = self.ask(SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse)
        if answer.error_code.value:
            raise KafkaUnreachable(f"{self.address}: it does not offer {mechanism}")
        if mechanism == "PLAIN":
            self._sasl(f"\0{user}\0{password}".encode())
            return
        try:
            client = ScramClient([mechanism], user, password)
            client.set_server_first(self._sasl(client.get_client_first().encode()).decode())
            client.set_server_final(self._sasl(client.get_client_final().encode()).decode())
        except (ScramException, UnicodeDecodeError) as error:
            raise KafkaUnreachable(f"{self.address}: {error}") from None

    def _sasl(self, token: bytes) -> bytes:
        answer = self.ask(SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse)
        if answer.error_code.value:
            raise KafkaUnreachable(f"{self.address}: {answer.error_message or 'authentication failed'}")
        return bytes(answer.auth_bytes)


def _tls(raw: socket.socket, host: str, properties: Mapping[str, str]) -> ssl.SSLSocket:
    """Return the connection under TLS; the other side is verified, by name too unless the properties say otherwise."""
    authorities = properties.get("ssl.truststore.location") or properties.get("ssl.ca.location")
    context = ssl.create_default_context(cafile=authorities or None)
    if properties.get("ssl.endpoint.identification.algorithm", "https") == "":
        context.check_hostname = False
    own = properties.get("ssl.keystore.location") or properties.get("ssl.certificate.location")
    if own:
        context.load_cert_chain(own, properties.get("ssl.key.location"), properties.get("ssl.key.password"))
    return context.wrap_socket(raw, server_hostname=host)
