"""Single values of a health check: what is accepted, and what is said about the rest."""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction

from xenoovs.config.fields import MAX_PORT, PERCENT_PATTERN, address, is_int
from xenoovs.config.tree import show
from xenoovs.model.address import IPAddress

DURATION_PATTERN = r"^([0-9]{1,9}(?:\.[0-9]{1,3})?)(ms|s|m|h)$"
PATH_PATTERN = r"^/[!-~]{0,1023}$"
# Labels of letters, digits, hyphens and underscores (RFC 1035, 2.3.1; RFC 2782 for underscores), or the root.
QUERY_PATTERN = r"^(\.|([A-Za-z0-9_-]{1,63}\.)*[A-Za-z0-9_-]{1,63}\.?)$"
TEXT_PATTERN = r"^[\t\n\r -~]{0,1000}$"
STATUS_PATTERN = r"^([1-5][0-9]{2})(?: ?- ?([1-5][0-9]{2}))?$"
# A name or an address, with a port where it is not the usual one (RFC 9110, 7.2).
HOST_PATTERN = r"^[A-Za-z0-9._:\[\]-]{1,253}$"
FILE_PATTERN = r"^/[^\x00-\x1f\x7f]{1,4095}$"
MAX_COUNT = 100
MAX_WORDS = 100
_MAX_QUERY = 253

_MILLISECONDS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}
LONGEST_MS = 3_600_000


def duration_ms(value: object) -> int:
    """`500ms`, `1.5s`, `2m`; whole milliseconds, 1 ms to 1 h."""
    found = re.fullmatch(DURATION_PATTERN, value, re.ASCII) if isinstance(value, str) else None
    milliseconds = Decimal(found[1]) * _MILLISECONDS[found[2]] if found else Decimal(0)
    if milliseconds != int(milliseconds) or not 1 <= milliseconds <= LONGEST_MS:
        raise ValueError(f"{show(value)} is not a time from 1ms to 1h; write one such as 500ms, 1s or 2m")
    return int(milliseconds)


def count(value: object) -> int:
    """Of results in a row."""
    if not is_int(value) or not 1 <= value <= MAX_COUNT:
        raise ValueError(f"{show(value)} is not a whole number from 1 to {MAX_COUNT}")
    return value


def port(value: object) -> int:
    """One to which something can be sent."""
    if not is_int(value) or not 1 <= value <= MAX_PORT:
        raise ValueError(f"{show(value)} is not a port; write one from 1 to {MAX_PORT}")
    return value


def part(value: object) -> Fraction:
    """`0%` to `100%`."""
    number = Decimal(value.rstrip(" %")) if isinstance(value, str) and _is_percentage(value) else None
    if number is None or number > 100:
        raise ValueError(f"{show(value)} is not a part of the backends; write a percentage from 0% to 100%")
    return Fraction(number) / 100


def path(value: object) -> str:
    """Of an HTTP request (RFC 9110, 4.2.3): printable ASCII, a slash first."""
    if not isinstance(value, str) or not re.fullmatch(PATH_PATTERN, value, re.ASCII):
        raise ValueError(f"{show(value)} is not a path; write one such as /health")
    return value


def host(value: object) -> str:
    """Of a Host header, or in a certificate."""
    if not isinstance(value, str) or not re.fullmatch(HOST_PATTERN, value, re.ASCII):
        raise ValueError(f"{show(value)} is not the name of a host; write one such as www.example.org")
    return value


def status(value: object) -> tuple[int, int]:
    """`200` or `200-299`: HTTP statuses (RFC 9110, 15)."""
    text = str(value) if is_int(value) else value
    found = re.fullmatch(STATUS_PATTERN, text, re.ASCII) if isinstance(text, str) else None
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
    if first > last:
        raise ValueError(f"{show(value)} is not an HTTP status or a range of them; write one such as 200 or 200-299")
    return first, last


def file(value: object) -> str:
    """The whole path of a file."""
    if not isinstance(value, str) or not re.fullmatch(FILE_PATTERN, value):
        raise ValueError(f"{show(value)} is not the whole path of a file; write one such as /etc/ssl/ca.pem")
    return value


def flag(value: object) -> bool:
    """Yes or no."""
    if not isinstance(value, bool):
        raise ValueError(f"{show(value)} is neither true nor false")
    return value


def command(value: object) -> tuple[str, ...]:
    """A program by its whole path, and its arguments: no shell reads them."""
    words = value if isinstance(value, list) else []
    if not words or len(words) > MAX_WORDS or not all(isinstance(word, str) and "\0" not in word for word in words):
        raise ValueError(f"{show(value)} is not a list of a program and its arguments; write [/usr/bin/check, -v]")
    if not words[0].startswith("/"):
        raise ValueError(f"{show(words[0])} is not the whole path of a program; write one such as /usr/bin/check")
    return tuple(words)


def query(value: object) -> str:
    """A domain name."""
    if not isinstance(value, str) or len(value) > _MAX_QUERY or not re.fullmatch(QUERY_PATTERN, value, re.ASCII):
        raise ValueError(f"{show(value)} is not a domain name; write one such as example.org")
    return value


def text(value: object) -> str:
    """What a UDP probe sends or expects."""
    if not isinstance(value, str) or not re.fullmatch(TEXT_PATTERN, value, re.ASCII):
        raise ValueError(f"{show(value)} is not text of at most 1000 ASCII characters; write it in quotes")
    return value


def server_address(value: object) -> IPAddress:
    """The unicast address of a server."""
    return address(value, purpose="write the server's own address")


def _is_percentage(value: str) -> bool:
    return len(value) <= 20 and re.fullmatch(PERCENT_PATTERN, value, re.ASCII) is not None
