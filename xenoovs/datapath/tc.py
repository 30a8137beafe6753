"""Parses filters of the kernel's traffic control, as `tc -s filter show` prints them.

JSON (`tc -j -s`) is read as iproute2 4.19 to 7.1 writes it (tc/tc_filter.c, tc/f_flower.c). Text (`tc -s`) is the
fallback, as old releases print invalid JSON for some actions, such as `police`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from xenoovs.errors import ParseError

_UFID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)


@dataclass(frozen=True, slots=True)
class TcCounters:
    """Packets and bytes of one filter, in total and by the NIC.

    Software counts frames without the 14 bytes of their Ethernet header, which act_mirred does not see at ingress; NICs
    count them. So packets can be compared, bytes cannot.

    tc omits hardware counters that are 0 (iproute2, tc/tc_util.c, print_tcstats_basic_hw). Linux and iproute2 before
    4.20 never print them.
    """

    packets: int
    bytes: int
    hw_packets: int = 0
    hw_bytes: int = 0


@dataclass(frozen=True, slots=True)
class TcFilter:
    """One filter.

    Attributes:
        cookie: 32 hexadecimal digits of the first action with a cookie, where Open vSwitch stores the ufid.
        in_hw: whether a NIC holds it; None: the kernel prints neither in_hw nor not_in_hw (Linux before 4.13).
        in_hw_count: how many NICs hold it (several for shared blocks).
        counters: None for a filter without statistics.
    """

    protocol: str
    pref: int
    chain: int
    handle: int
    cookie: str | None
    in_hw: bool | None
    in_hw_count: int
    counters: TcCounters | None


def cookie_of_ufid(ufid: str) -> str | None:
    """Return the tc cookie of a megaflow: its ufid as four words of 32 bits, each with its bytes reversed.

    Open vSwitch stores the ufid as words of the host, which are little-endian wherever it offloads (lib/tc.c). Apart
    from dashes the function is its own inverse. It returns None if `ufid` is no UUID.
    """
    if not _UFID.fullmatch(ufid):
        return None
    digits = ufid.replace("-", "")
    return "".join(bytes.fromhex(digits[i : i + 8])[::-1].hex() for i in range(0, 32, 8))


def parse_tc_json(text: str) -> tuple[TcFilter, ...]:
    """Parse `tc -j -s filter show dev X ingress`, or of a block. Entries without a handle are skipped.

    Raises:
        ParseError: also for the text that old releases print inside JSON.
    """
    if not text.strip():
        return ()
    try:
        rows = json.loads(text)
    except ValueError as error:
        offset = error.pos if isinstance(error, json.JSONDecodeError) else 0
        raise ParseError(text=text, offset=offset, expected="JSON as `tc -j -s filter show` prints it") from None
    except RecursionError:
        raise ParseError(text=text, offset=0, expected="JSON of a moderate depth") from None
    try:
        return tuple(_filter(row, row["options"]) for row in rows if "handle" in row.get("options", {}))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        expected = f"filters as `tc -j -s filter show` prints them ({type(error).__name__}: {error})"
        raise ParseError(text=text, offset=0, expected=expected) from None


def _filter(row: dict[str, Any], options: dict[str, Any]) -> TcFilter:
    actions = options.get("actions", [])
    marked = next((action for action in actions if "cookie" in action), None)
    counted = marked or (actions[-1] if actions else {})
    in_hw = True if options.get("in_hw") else False if options.get("not_in_hw") else None
    handle = options["handle"]
    return TcFilter(
        protocol=str(row["protocol"]),
        pref=int(row["pref"]),
        chain=int(row.get("chain", 0)),
        handle=int(handle, 0) if isinstance(handle, str) else int(handle),
        cookie=None if marked is None else str(marked["cookie"]),
        in_hw=in_hw,
        in_hw_count=int(options.get("in_hw_count", 0)),
        counters=_counters(counted["stats"]) if "stats" in counted else None,
    )


def _counters(stats: dict[str, Any]) -> TcCounters:
    return TcCounters(
        packets=int(stats["packets"]),
        bytes=int(stats["bytes"]),
        hw_packets=int(stats.get("hw_packets", 0)),
        hw_bytes=int(stats.get("hw_bytes", 0)),
    )


_FILTER = re.compile(
    r"^filter (?:.* )?protocol (\S+) pref ([0-9]+) flower(?: chain ([0-9]+))? handle 0x([0-9a-f]+)", re.ASCII
)
_ACTION = re.compile(r"^[ \t]*action order ([0-9]+):", re.ASCII | re.MULTILINE)
_COOKIE = re.compile(r"^\s*cookie ([0-9a-f]{1,32})\s*$", re.ASCII | re.MULTILINE)
_IN_HW = re.compile(r"^\s*(in_hw|not_in_hw)(?: in_hw_count ([0-9]+))?\s*$", re.ASCII | re.MULTILINE)
_SENT = re.compile(r"^\s*Sent (?:(software|hardware) )?([0-9]+) bytes ([0-9]+) pkt", re.ASCII | re.MULTILINE)


def parse_tc_text(text: str) -> tuple[TcFilter, ...]:
    """Parse `tc -s filter show dev X ingress`. Raises ParseError for text that does not start with a filter."""
    return tuple(map(_text_filter, _text_blocks(text)))


def _text_blocks(text: str) -> Iterator[str]:
    """Yield one block of lines for each filter with a handle."""
    block: list[str] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.startswith("filter "):
            if block:
                yield "\n".join(block)
            block = [line] if _FILTER.match(line) else []
        elif line.strip() and not block and not line[:1].isspace():
            raise ParseError(text=line, offset=0, expected="'filter protocol ...' of tc", line=number)
        elif block:
            block.append(line)
    if block:
        yield "\n".join(block)


def _text_filter(block: str) -> TcFilter:
    head = _require(_FILTER.match, block)
    actions = [block[found.start() :] for found in _ACTION.finditer(block)]
    actions = [action[: _end(action)] for action in actions]
    marked = next((action for action in actions if _COOKIE.search(action)), None)
    counted = marked or (actions[-1] if actions else "")
    cookie = _COOKIE.search(marked) if marked else None
    where = _IN_HW.search(block)
    return TcFilter(
        protocol=head[1],
        pref=int(head[2]),
        chain=int(head[3] or 0),
        handle=int(head[4], 16),
        cookie=cookie[1] if cookie else None,
        in_hw=None if where is None else where[1] == "in_hw",
        in_hw_count=int(where[2] or 0) if where else 0,
        counters=_text_counters(counted),
    )


def _end(action: str) -> int:
    """Return where the text of an action ends: at the next action."""
    following = _ACTION.search(action, 1)
    return following.start() if following else len(action)


def _text_counters(action: str) -> TcCounters | None:
    sent = {found[1]: (int(found[3]), int(found[2])) for found in _SENT.finditer(action)}
    if None not in sent:
        return None
    return TcCounters(*sent[None], *sent.get("hardware", (0, 0)))


def _require(match: Callable[[str], re.Match[str] | None], text: str) -> re.Match[str]:
    found = match(text)
    if found is None:
        raise ParseError(text=text, offset=0, expected="'filter protocol ...' of tc")
    return found
