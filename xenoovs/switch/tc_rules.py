"""Whose rules hang at a device: every one of Open vSwitch's carries the ufid of a megaflow as its cookie (lib/tc.c)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from xenoovs.datapath.host import Seen, TcRules, Unknown
from xenoovs.datapath.tc import TcFilter, cookie_of_ufid, parse_tc_json
from xenoovs.errors import SwitchError
from xenoovs.switch.appctl import Appctl
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.probe import Place

_UFID = re.compile(r"^ufid:([0-9a-f-]{36}),", re.MULTILINE)


def read_rules(place: Place, endpoint: Endpoint, ports: Iterable[str]) -> dict[str, Seen[TcRules]]:
    """The rules of each port, before and after one dump of all megaflows: what comes or goes meanwhile is no fault."""
    names = tuple(ports)
    before = {port: _filters(place, port) for port in names}
    try:
        dump = Appctl(endpoint).dump_megaflows() if names else ""
    except SwitchError as error:
        return dict.fromkeys(names, Unknown(str(error)))
    alive = {cookie for ufid in _UFID.findall(dump) if (cookie := cookie_of_ufid(ufid)) is not None}
    return {port: _judge(before[port], _filters(place, port), alive) for port in names}


def count_rules(before: Iterable[TcFilter], after: Iterable[TcFilter], alive: Iterable[str]) -> TcRules:
    """Rules that are there both times. `alive`: cookies of the megaflows."""
    kept, cookies = {_identity(rule) for rule in before}, frozenset(alive)
    lasting = [rule for rule in after if _identity(rule) in kept]
    return TcRules(
        total=len(lasting),
        stale=sum(rule.cookie is not None and rule.cookie not in cookies for rule in lasting),
        foreign=sum(rule.cookie is None for rule in lasting),
    )


def _filters(place: Place, port: str) -> Seen[tuple[TcFilter, ...]]:
    return place.read(("tc", "-j", "-s", "filter", "show", "dev", port, "ingress"), parse_tc_json)


def _judge(before: Seen[tuple[TcFilter, ...]], after: Seen[tuple[TcFilter, ...]], alive: set[str]) -> Seen[TcRules]:
    if isinstance(before, Unknown):
        return before
    return after if isinstance(after, Unknown) else count_rules(before, after, alive)


def _identity(rule: TcFilter) -> tuple[object, ...]:
    return rule.protocol, rule.pref, rule.chain, rule.handle, rule.cookie
