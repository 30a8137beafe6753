"""Who may ask what, by the way a request came."""

from __future__ import annotations

import base64
import binascii
import hmac
import re
import stat
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from xenoovs.errors import ListenError, RequestRefused

_LEAST_TOKEN = 16
_HOST = re.compile(r"\[?([0-9A-Za-z.:-]+?)\]?(?::[0-9]{1,5})?")


@dataclass(frozen=True, slots=True)
class Asked:
    """What of a request matters here. Headers as they came, None where they did not."""

    method: str
    host: str | None
    authorization: str | None
    content_type: str | None


class LocalGuard:
    """The unix socket: its mode lets in its owner and root alone."""

    def check(self, asked: Asked) -> None:
        """Everything is allowed."""


class LoopbackGuard:
    """A TCP port of this machine without a token: everybody here may look and nobody may change anything."""

    def check(self, asked: Asked) -> None:
        """Raises RequestRefused."""
        # A page of some site whose name was made to lead here must not read this (DNS rebinding).
        if not is_loopback(asked.host or ""):
            raise RequestRefused(
                f"the host {(asked.host or 'of nobody')[:80]!r} is not this machine; ask for 127.0.0.1 or localhost",
                status=403,
                code="wrong_host",
            )
        if asked.method not in ("GET", "HEAD"):
            raise RequestRefused(
                "without a token this port only shows; use the unix socket (`xenoovs drain ...`), or start the agent "
                "with --token-file",
                status=403,
                code="read_only",
            )


@dataclass(frozen=True, slots=True)
class TokenGuard:
    """A TCP port with a token, as `Authorization: Bearer` (RFC 6750) or as the password of Basic (RFC 7617)."""

    token: str

    def check(self, asked: Asked) -> None:
        """Raises RequestRefused."""
        told = _token_of(asked.authorization or "")
        # Bytes of a header that are no UTF-8 come as surrogates (RFC 9110 lets fields have them).
        if not hmac.compare_digest(told.encode(errors="surrogateescape"), self.token.encode()):
            raise RequestRefused(
                "the token is missing or wrong; send `Authorization: Bearer TOKEN`", status=401, code="unauthorized"
            )
        # A browser that remembers the password sends it for forms of other sites too, but no such form can send JSON.
        if asked.method == "POST" and (asked.content_type or "").partition(";")[0].strip() != "application/json":
            raise RequestRefused("send JSON: `Content-Type: application/json`", status=415, code="not_json")


Guard = LocalGuard | LoopbackGuard | TokenGuard


def is_loopback(host: str) -> bool:
    """Whether a `Host` header, or the host of an address to listen at, names this machine alone."""
    found = _HOST.fullmatch(host)
    if found is None:
        return False
    name = found[1]
    if host.count(":") > 1 and not host.startswith("["):
        name = host
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return name.lower() == "localhost"


def read_token(path: Path) -> str:
    """The token in a file that nobody else may read. Raises ListenError."""
    try:
        mode, text = path.stat().st_mode, path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ListenError(f"--token-file {path}: cannot be read: {error}") from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ListenError(f"--token-file {path}: others may read it; `chmod 600 {path}`")
    if len(text) < _LEAST_TOKEN or any(char.isspace() for char in text):
        raise ListenError(
            f"--token-file {path}: expected one line of {_LEAST_TOKEN} characters or more; make one with "
            f"`openssl rand -hex 32 > {path}`"
        )
    return text


def _token_of(authorization: str) -> str:
    scheme, _, rest = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return rest.strip()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(rest.strip(), validate=True).decode(errors="replace").partition(":")[2]
        except (binascii.Error, ValueError):
            return ""
    return ""
