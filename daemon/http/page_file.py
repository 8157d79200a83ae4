"""The page, one document without external resources, with the policy that forbids them; and the runbooks it links."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from typing import NamedTuple


class Page(NamedTuple):
    """The document, and the `Content-Security-Policy` that allows its own script and style, by their hashes."""

    body: bytes
    policy: str


def load_runbooks() -> dict[str, bytes]:
    """Return the runbooks in Markdown, by name: docs/operate/runbooks, which is part of the package."""
    folder = files("daemon.http") / "runbooks"
    return {page.name.removesuffix(".md"): page.read_bytes() for page in folder.iterdir() if page.name.endswith(".md")}


def load_page() -> Page:
    """Return the page with its style and script inside; a browser may run these and nothing else."""
    folder = files("daemon.http") / "page"
    html, css, script = ((folder / name).read_text("utf-8") for name in ("page.html", "page.css", "page.js"))
    body = html.replace("/*css*/", css).replace("/*js*/", script)
    assert css in body and script in body  # noqa: PT018 (the marks were there)
    return Page(body.encode(), _policy(css, script))


def _policy(css: str, script: str) -> str:
    parts = (
        "default-src 'none'",
        f"script-src {_hash(script)}",
        f"style-src {_hash(css)}",
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
    return "; ".join(parts)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
