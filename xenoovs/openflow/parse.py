"""Dumps of `ovs-ofctl [--names] dump-flows` back to flows. What is not understood is kept or refused, never guessed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

from xenoovs.errors import ParseError, UnknownTableName
from xenoovs.openflow.field import Field
from xenoovs.openflow.flow import DEFAULT_PRIORITY, MAX_PRIORITY, Flow, FlowKey, ObservedFlow
from xenoovs.openflow.keyword import PROTOCOL_KEYWORDS
from xenoovs.openflow.match import Masked, Match, exact, match_of
from xenoovs.openflow.parse_action import UnknownTable, parse_actions, parse_table
from xenoovs.openflow.text import parse_name, split_list
from xenoovs.openflow.value import parse_flags, parse_mask, parse_value

_BY_NAME = {field.ovs_name: field for field in Field}
_NEVER_CONDITIONS = frozenset(("cookie", "duration", "table", "n_packets", "n_bytes", "priority", "actions"))
_HEADER = re.compile(r"(?:NXST|OFPST)_FLOW reply .*:")
_QUOTED = r'"(?:[^"\\]|\\.)*"'
_OPTION = r"(?:idle_timeout|hard_timeout|importance|idle_age|hard_age)=[0-9]+, |(?:[a-z]+_)+(?:rem|overlap|counts) "
# The order of ofputil_flow_stats_format() in lib/ofp-flow.c. The match ends at the first blank outside of quotes.
_LINE = re.compile(
    r" *(?:cookie=0x([0-9a-f]{1,16}), )?(?:duration=([0-9]+(?:\.[0-9]+)?)s, )?"
    rf'(?:table=([0-9]+|[^," ]+|{_QUOTED}), )?(?:n_packets=([0-9]+), n_bytes=([0-9]+), )?((?:{_OPTION})*)'
    rf'(?:priority=([0-9]{{1,5}})(?:,(?=[^ ])|(?= )))?((?!actions=)[^ "]*(?:{_QUOTED}[^ "]*)*)?'
    r" ?(?<![^ ])actions=([^ ].*)",
    re.ASCII,
)


def parse_dump(text: str, *, tables: Mapping[str, int] | None = None) -> Iterator[ObservedFlow]:
    """All flows of a dump, in its order. `tables`: the numbers of tables that have names.

    Raises ParseError with the line, UnknownTableName for a named table that is not in `tables`.
    """
    for number, line in enumerate(text.split("\n"), start=1):
        if line and not _HEADER.fullmatch(line):
            yield parse_observed(line, number=number, tables=tables)


def parse_flow(line: str) -> Flow:
    """One flow without its counters, as `render_flow` writes it. Raises ParseError."""
    return parse_observed(line).flow


def parse_observed(line: str, *, number: int = 1, tables: Mapping[str, int] | None = None) -> ObservedFlow:
    """One line of a dump, with or without counters. Raises ParseError with the line."""
    if not (found := _LINE.fullmatch(line)):
        raise ParseError(text=line, offset=0, expected="a flow as ovs-ofctl dumps it", line=number)
    cookie, duration, table, packets, size, options, priority, conditions, actions = found.groups()
    try:
        key = FlowKey(
            parse_table(table, names=tables) if table else 0,
            _parse_priority(priority) if priority else DEFAULT_PRIORITY,
            _parse_match(conditions) if conditions else _ANYTHING,
        )
        done = parse_actions(actions, tables=tables)
        flow = Flow(key, int(cookie, 16) if cookie else 0, done, _parse_options(options) if options else ())
    except UnknownTable as error:
        raise UnknownTableName(text=line, offset=0, expected=f"a flow ({error})", line=number) from None
    except ValueError as error:
        raise ParseError(text=line, offset=0, expected=f"a flow ({error})", line=number) from None
    return ObservedFlow(flow, int(packets or 0), int(size or 0), float(duration or 0))


_ANYTHING = Match()


def _parse_priority(text: str) -> int:
    if int(text) > MAX_PRIORITY:
        raise ValueError(f"priority {text} is above {MAX_PRIORITY}")
    return int(text)


def _parse_options(text: str) -> tuple[str, ...]:
    # Ages are statistics of Open vSwitch's own, shown for OpenFlow 1.0 only.
    words = text.replace(",", "").split()
    return tuple(word for word in words if not word.startswith(("idle_age=", "hard_age=")))


def _parse_match(text: str) -> Match:
    in_port, masked, foreign = None, list[Masked](), list[str]()
    for token in split_list(text):
        if token.startswith("in_port="):
            in_port = parse_name(token[8:])
        elif known := _parse_condition(token):
            masked += known
        else:
            foreign.append(_foreign_condition(token))
    return match_of(masked, in_port=in_port, foreign=foreign)


def _foreign_condition(token: str) -> str:
    if token.partition("=")[0] in _NEVER_CONDITIONS:
        raise ValueError(f"{token!r} does not stand among conditions")
    return token


@lru_cache(maxsize=65536)
def _parse_condition(token: str) -> tuple[Masked, ...]:
    name, is_condition, text = token.partition("=")
    if not is_condition:
        return _parse_keyword(name)
    field = _BY_NAME.get(name)
    if field is None:
        return ()
    if field is Field.TCP_FLAGS:
        flags = parse_flags(text)
        return () if flags is None else (Masked(field, *flags),)
    value, is_masked, mask = text.partition("/")
    if is_masked:
        return (Masked(field, parse_value(field, value), parse_mask(field, mask)),)
    return (exact(field, parse_value(field, value)),)


def _parse_keyword(name: str) -> tuple[Masked, ...]:
    if not name:
        raise ValueError("a condition is empty")
    if name not in PROTOCOL_KEYWORDS:
        return ()
    dl_type, nw_proto = PROTOCOL_KEYWORDS[name]
    ether = exact(Field.DL_TYPE, dl_type)
    return (ether,) if nw_proto is None else (ether, exact(Field.NW_PROTO, nw_proto))
