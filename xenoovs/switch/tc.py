"""Filters of the kernel's traffic control by tc(8): the rules of a port, and which megaflows they belong to."""

from __future__ import annotations

from collections.abc import Iterable

from xenoovs.dataclass import dataclass
from xenoovs.datapath.fact import Fact, Unknown
from xenoovs.datapath.host import TcRules
from xenoovs.datapath.tc import TcFilter, cookie_of_ufid, has_hw_counters, parse_tc_json, with_known_counters
from xenoovs.errors import CommandFailed, ParseError, SwitchError
from xenoovs.regex import MULTILINE, regex
from xenoovs.switch.appctl import Appctl
from xenoovs.switch.devices import QDISCS, parse_blocks, parse_ingress
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.netns import HERE, Netns, understood
from xenoovs.switch.process import run
from xenoovs.switch.tape import is_taped, kernel_release


@dataclass(frozen=True, slots=True)
class FilterDump:
    """The filters of some devices. `unread`: device and why its filters could not be read. `by_device`: filters with
    their device, for devices without a shared block."""

    filters: tuple[TcFilter, ...]
    unread: tuple[tuple[str, str], ...] = ()
    by_device: tuple[tuple[str, TcFilter], ...] = ()

    @property
    def by_cookie(self) -> dict[str, TcFilter]:
        """Return the filters that have a cookie; the first if several share one, as on the ports of a bond."""
        found: dict[str, TcFilter] = {}
        for entry in self.filters:
            if entry.cookie is not None:
                found.setdefault(entry.cookie, entry)
        return found


def dump_filters(devices: Iterable[str], place: Netns = HERE, *, perhaps: Iterable[str] = ()) -> FilterDump:
    """Return the ingress filters of network devices, by name. The device of tunnels is e.g. `vxlan_sys_4789`.

    The filters of a device with a shared block (a bond of Linux) are in the block. A device that cannot be read is in
    `unread`. `place`: the network namespace of the devices. `perhaps`: devices that are also read if they have an
    ingress qdisc. Raises CommandMissing, CommandTimeout.
    """
    try:
        qdiscs = run(place.argv(*QDISCS)).stdout
        blocks, filtered = parse_blocks(qdiscs), parse_ingress(qdiscs)
    except ParseError:
        raise SwitchError("`tc -j qdisc show` printed no JSON; iproute2 4.19 or newer does") from None
    names = (*devices, *sorted(filtered.intersection(perhaps)))
    places = dict.fromkeys(f"block {blocks[name]}" if name in blocks else _ingress_of(name) for name in names)
    texts = _show_at_once(place, places)
    filters, unread, by_device = list[TcFilter](), list[tuple[str, str]](), list[tuple[str, TcFilter]]()
    for where in places:
        kind, name, *_ = where.split()
        try:
            found = parse_tc_json(texts[where] if where in texts else run(place.argv(*_show(where))).stdout)
            filters += found
            by_device += ((name, one) for one in found if kind == "dev")
        except CommandFailed as failed:
            unread.append((name, failed.stderr.strip()))
        except ParseError:
            unread.append((name, "tc printed invalid JSON, as iproute2 before 5.14 does for filters with `police`"))
    known = with_known_counters(filters)
    if any(each.counters is not None and each.counters.hw_packets is None for each in known):
        known = with_known_counters(known, is_known=has_hw_counters(kernel_release(), run(["tc", "-V"]).stdout))
    return FilterDump(known, tuple(unread), tuple(by_device))


_SHOW = ("tc", "-j", "-s")


def _ingress_of(port: str) -> str:
    return f"dev {port} ingress"


def _show(where: str) -> list[str]:
    return [*_SHOW, "filter", "show", *where.split()]


def _show_at_once(place: Netns, places: Iterable[str]) -> dict[str, str]:
    """Return the output of tc(8) for each place, from one process; empty if it fails for one of them.

    An eSwitch may have hundreds of ports, and the start of a program takes longer than most reads.
    """
    wanted = list(places)
    # A record has each by itself.
    if len(wanted) < 2 or is_taped():
        return {}
    filters = place.ask(*_SHOW, "-batch", "-", stdin="".join(f"filter show {where}\n" for where in wanted))
    # One line each, unless an old release prints other text inside JSON.
    lines = [] if isinstance(filters, Unknown) else filters.splitlines()
    return dict(zip(wanted, lines, strict=True)) if len(lines) == len(wanted) else {}


# Whose rules hang at a device: every one of Open vSwitch's carries the ufid of a megaflow as its cookie (lib/tc.c).


_UFID = regex(r"^ufid:([0-9a-f-]{36}),", MULTILINE)


def read_rules(place: Netns, endpoint: Endpoint, ports: Iterable[str]) -> dict[str, Fact[TcRules]]:
    """Return the rules of each port that exist before and after a dump of all megaflows: changes are no fault."""
    names = tuple(ports)
    before = _filters(place, names)
    try:
        dump = Appctl(endpoint).dump_megaflows() if names else ""
    except SwitchError as error:
        return dict.fromkeys(names, Unknown(str(error)))
    alive = {cookie for ufid in _UFID.findall(dump) if (cookie := cookie_of_ufid(ufid)) is not None}
    after = _filters(place, names)
    return {port: _judge(before[port], after[port], alive) for port in names}


def count_rules(before: Iterable[TcFilter], after: Iterable[TcFilter], alive: Iterable[str]) -> TcRules:
    """Count the rules in both dumps. `alive`: cookies of the megaflows."""
    both_times, cookies = {_identity(rule) for rule in before}, frozenset(alive)
    lasting = [rule for rule in after if _identity(rule) in both_times]
    return TcRules(
        total=len(lasting),
        stale=sum(rule.cookie is not None and rule.cookie not in cookies for rule in lasting),
        foreign=sum(rule.cookie is None for rule in lasting),
        filters=tuple(lasting) if any(rule.cookie is None for rule in lasting) else (),
    )


def _filters(place: Netns, ports: Iterable[str]) -> dict[str, Fact[tuple[TcFilter, ...]]]:
    places = {port: _ingress_of(port) for port in ports}
    texts = _show_at_once(place, places.values())
    filters = {port: texts[where] if where in texts else place.ask(*_show(where)) for port, where in places.items()}
    return {
        port: text if isinstance(text, Unknown) else understood(text, parse_tc_json) for port, text in filters.items()
    }


def _judge(before: Fact[tuple[TcFilter, ...]], after: Fact[tuple[TcFilter, ...]], alive: set[str]) -> Fact[TcRules]:
    if isinstance(before, Unknown):
        return before
    return after if isinstance(after, Unknown) else count_rules(before, after, alive)


def _identity(rule: TcFilter) -> tuple[object, ...]:
    return rule.protocol, rule.pref, rule.chain, rule.handle, rule.cookie
