"""Authorisation of requests to the control API, by the listener that received them."""

from __future__ import annotations

import hmac
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from aiohttp import BasicAuth

from xenoovs.dataclass import dataclass
from xenoovs.errors import ListenError, RequestRefused
from xenoovs.switch.endpoint import is_loopback

_MIN_TOKEN_LENGTH = 16


@dataclass(frozen=True, slots=True)
class TokenAuth:
    """Authorisation at a TCP port by a token, in `Authorization: Bearer` (RFC 6750) or as the password of Basic (RFC
    7617). `token`: None if the port is read-only and needs none. `is_readable`: whether reads need no token. A port
    that can be read without a token must be on the loopback interface."""

    token: str | None = None
    is_readable: bool = False

    def check(self, method: str, host: str, headers: Mapping[str, str]) -> None:
        """Raise RequestRefused for a request that is not authorised. `host`: of its `Host` header."""
        is_read = method in ("GET", "HEAD")
        if self.token is not None and not (is_read and self.is_readable):
            _require_token(self.token, method, headers)
            return
        # A web page whose name was made to resolve to 127.0.0.1 must not read this (DNS rebinding).
        if not is_loopback(host):
            raise RequestRefused(
                f"the host {host[:80]!r} is not this machine; use 127.0.0.1 or localhost", status=403, code="wrong_host"
            )
        if not is_read:
            raise RequestRefused(
                "without a token this port is read-only; use the unix socket (`xenoovs drain ...`), or start the agent "
                "with --token-file",
                status=403,
                code="read_only",
            )


def _require_token(token: str, method: str, headers: Mapping[str, str]) -> None:
    # Bytes of a header that are not UTF-8 come as surrogates (RFC 9110 allows them in fields).
    sent = _token_of(headers.get("Authorization", "")).encode(errors="surrogateescape")
    if not hmac.compare_digest(sent, token.encode()):
        raise RequestRefused(
            "the token is missing or wrong; send `Authorization: Bearer TOKEN`", status=401, code="unauthorized"
        )
    # A browser that stores the password sends it for forms of other sites too, but no such form can send JSON.
    if method == "POST" and headers.get("Content-Type", "").partition(";")[0].strip() != "application/json":
        raise RequestRefused("send JSON: `Content-Type: application/json`", status=415, code="not_json")


Auth = TokenAuth | None
"""None for the unix socket, whose file mode admits only its owner and root. They may do everything."""


def read_token(path: Path) -> str:
    """Return the token in a file that only its owner can read. Raises ListenError."""
    try:
        mode, text = path.stat().st_mode, path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no ASCII text"
        raise ListenError(f"--token-file {path}: cannot be read: {reason}") from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ListenError(f"--token-file {path}: other users may read it; `chmod 600 {path}`")
    if len(text) < _MIN_TOKEN_LENGTH or any(char.isspace() for char in text):
        raise ListenError(
            f"--token-file {path}: expected one line of {_MIN_TOKEN_LENGTH} characters or more; make one with "
            f"`openssl rand -hex 32 > {path}`"
        )
    return text


def _token_of(authorization: str) -> str:
    scheme, _, rest = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return rest.strip()
    with suppress(ValueError):
        return str(BasicAuth.decode(authorization, encoding="utf-8").password)
    return ""
