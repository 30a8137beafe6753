"""Who may do what over the control API, by the listener that a request came to."""

from __future__ import annotations

import base64
import binascii
import hmac
import stat
from ipaddress import ip_address
from pathlib import Path

from aiohttp import web

from xenoovs.dataclass import dataclass
from xenoovs.errors import ListenError, RequestRefused
from xenoovs.regex import regex

_MIN_TOKEN_LENGTH = 16
_HOST = regex(r"\[?([0-9A-Za-z.:-]+?)\]?(?::[0-9]{1,5})?")


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """What authorisation depends on; None: no such header. `host`: that of an absolute-form target goes first."""

    method: str
    host: str | None
    authorization: str | None
    content_type: str | None


def facts_of_request(request: web.Request) -> RequestFacts:
    headers = request.headers
    # `GET http://host/path` must be accepted, and its host replaces the `Host` header (RFC 9112, section 3.2.2).
    host = headers.get("Host") if request.raw_path.startswith("/") else request.host
    return RequestFacts(request.method, host, headers.get("Authorization"), headers.get("Content-Type"))


class UnixSocketAuth:
    """The unix socket. Its file mode admits only its owner and root, and they may do everything."""

    def check(self, asked: RequestFacts) -> None:
        """Refuse nothing."""


class ReadOnlyAuth:
    """A TCP port on the loopback interface without a token. Every local process may read, none may change anything."""

    def check(self, asked: RequestFacts) -> None:
        """Raise RequestRefused for changes, and for requests that are for another host."""
        # A web page whose name was made to resolve to 127.0.0.1 must not read this (DNS rebinding).
        if not is_loopback(asked.host or ""):
            raise RequestRefused(
                f"the host {(asked.host or '')[:80]!r} is not this machine; use 127.0.0.1 or localhost",
                status=403,
                code="wrong_host",
            )
        if asked.method not in ("GET", "HEAD"):
            raise RequestRefused(
                "without a token this port is read-only; use the unix socket (`xenoovs drain ...`), or start the agent "
                "with --token-file",
                status=403,
                code="read_only",
            )


@dataclass(frozen=True, slots=True)
class TokenAuth:
    """A TCP port with a token, as `Authorization: Bearer` (RFC 6750) or as the password of Basic (RFC 7617)."""

    token: str

    def check(self, asked: RequestFacts) -> None:
        """Raise RequestRefused unless the request carries the token."""
        token = _token_of(asked.authorization or "")
        # Bytes of a header that are not UTF-8 come as surrogates (RFC 9110 allows them in fields).
        if not hmac.compare_digest(token.encode(errors="surrogateescape"), self.token.encode()):
            raise RequestRefused(
                "the token is missing or wrong; send `Authorization: Bearer TOKEN`", status=401, code="unauthorized"
            )
        # A browser that stores the password sends it for forms of other sites too, but no such form can send JSON.
        if asked.method == "POST" and (asked.content_type or "").partition(";")[0].strip() != "application/json":
            raise RequestRefused("send JSON: `Content-Type: application/json`", status=415, code="not_json")


@dataclass(frozen=True, slots=True)
class TokenForChangesAuth:
    """A TCP port on the loopback interface where every local process may read, and changes need a token."""

    token: str

    def check(self, asked: RequestFacts) -> None:
        """Raise RequestRefused for changes without the token, and for reads that are for another host."""
        reads = asked.method in ("GET", "HEAD")
        (ReadOnlyAuth() if reads else TokenAuth(self.token)).check(asked)


Auth = UnixSocketAuth | ReadOnlyAuth | TokenAuth | TokenForChangesAuth


def is_loopback(host: str) -> bool:
    """Return whether a `Host` header, or the host of a listen address, names only this machine."""
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
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(rest.strip(), validate=True).decode(errors="replace").partition(":")[2]
        except (binascii.Error, ValueError):
            return ""
    return ""
