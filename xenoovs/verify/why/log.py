"""Refusals in the log of ovs-vswitchd, and the megaflows that they may be about.

A line with the reason comes first; then, in the same thread, `failed to offload flow: ...` names the ingress port.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from xenoovs.compile.offloadable.table import SOURCES
from xenoovs.datapath.megaflow import Megaflow, parse_number
from xenoovs.verify.why.reason import Cause

OVS_ACTIONS = {
    2: "userspace",
    6: "sample",
    7: "recirc",
    8: "hash",
    9: "push_mpls",
    10: "pop_mpls",
    12: "ct",
    13: "trunc",
    14: "push_eth",
    15: "pop_eth",
    16: "ct_clear",
    17: "push_nsh",
    18: "pop_nsh",
    19: "meter",
    20: "clone",
    21: "check_pkt_len",
    22: "add_mpls",
}
"""enum ovs_action_attr of uapi/linux/openvswitch.h -> name in a dump, for actions that Open vSwitch may refuse."""


def action_names(megaflow: Megaflow) -> frozenset[str]:
    """Return the names of the actions: `set`, `hash`, `userspace` ...; `output` for a port."""
    return frozenset(map(_action_name, megaflow.actions))


def set_fields(megaflow: Megaflow) -> frozenset[str]:
    """Return the keys that `set(...)` writes: `eth`, `ipv4`, `udp`, `tunnel` ..."""
    sets = (action.removeprefix("set(") for action in megaflow.actions if action.startswith("set("))
    return frozenset(action.partition("(")[0] for action in sets)


def matches_key(megaflow: Megaflow, name: str) -> bool:
    """Return whether at least one bit of the key is matched."""
    text = megaflow.key(name)
    if text is None:
        return False
    mask = text.partition("/")[2]
    try:
        return not mask or parse_number(mask) != 0
    except ValueError:
        return True


def is_fragment(megaflow: Megaflow) -> bool:
    """Return whether the megaflow matches IP fragments."""
    return any("frag=first" in key.inner or "frag=later" in key.inner for key in megaflow.keys)


_PLAIN = frozenset(OVS_ACTIONS.values()) | {"set", "push_vlan", "pop_vlan", "drop", "tnl_push", "tnl_pop", "ct"}


def _action_name(action: str) -> str:
    name = action.partition("(")[0]
    return name if "(" in action or name in _PLAIN else "output"


# Texts that ovs-vswitchd logs as reasons. They were compared with the sources of 2.17, 3.1, 3.6 and 3.7.


_KEYS = {"pkt_mark": "skb_mark", "actset_output": "in_port", "conj_id": "recirc_id"}
"""Fields of `struct flow` -> their names in a dump, if they differ."""


@dataclass(frozen=True, slots=True)
class LogPattern:
    """A text of the log and its meaning.

    Attributes:
        source: where Open vSwitch writes it, a name in SOURCES of the offload table.
        applies: returns whether a megaflow is of the kind that the text names; None: it names no kind.
        needs_failure: it is about a megaflow only if a failure follows at once, as other requests are refused too.
    """

    pattern: re.Pattern[str]
    cause: Cause
    source: str
    applies: Callable[[Megaflow, re.Match[str]], bool] | None = None
    needs_failure: bool = False

    def fits(self, megaflow: Megaflow, message: str) -> bool:
        """Return whether the text may be about this megaflow."""
        found = self.pattern.search(message)
        return found is not None and (self.applies is None or self.applies(megaflow, found))

    def port_of(self, message: str) -> str | None:
        """Return the ingress port if the text names it."""
        found = self.pattern.search(message)
        return found.groupdict().get("port") if found is not None else None


def _has_action(megaflow: Megaflow, found: re.Match[str]) -> bool:
    return OVS_ACTIONS.get(int(found["number"])) in action_names(megaflow)


def _has_key(megaflow: Megaflow, found: re.Match[str]) -> bool:
    return matches_key(megaflow, _KEYS.get(found["key"], found["key"]))


def _has_set(megaflow: Megaflow, _found: re.Match[str]) -> bool:
    return bool(set_fields(megaflow))


def _sets_in_fragments(megaflow: Megaflow, _found: re.Match[str]) -> bool:
    return bool(set_fields(megaflow)) and is_fragment(megaflow)


def _is_long(megaflow: Megaflow, _found: re.Match[str]) -> bool:
    return len(megaflow.actions) > 1


def _is_ipv6_fragment(megaflow: Megaflow, _found: re.Match[str]) -> bool:
    return is_fragment(megaflow) and megaflow.key("ipv6") is not None


def _recirculates(megaflow: Megaflow, _found: re.Match[str]) -> bool:
    return megaflow.recirc_id != 0 or "recirc" in action_names(megaflow)


def _goes_to(megaflow: Megaflow, found: re.Match[str]) -> bool:
    return found["egress"] in megaflow.actions


def _has_lses(megaflow: Megaflow, _found: re.Match[str]) -> bool:
    return "lse1=" in (megaflow.key("mpls") or "")


def _is_no_frame(megaflow: Megaflow, _found: re.Match[str]) -> bool:
    return megaflow.key("eth") is None


_Applies = Callable[[Megaflow, re.Match[str]], bool]


def _pattern(pattern: str, cause: Cause, source: str, applies: _Applies | None = None) -> LogPattern:
    return LogPattern(re.compile(pattern, re.ASCII), cause, source, applies)


LOG_PATTERNS = (
    _pattern(r"unsupported put action type: (?P<number>[0-9]+)", Cause.UNSUPPORTED_ACTION, "tc-actions", _has_action),
    _pattern(r"offloading attribute (?P<key>[\w\[\]]+) isn't supported", Cause.UNSUPPORTED_MATCH, "tc-key", _has_key),
    _pattern(r"offloading of IPv6 fragments isn't supported", Cause.UNSUPPORTED_MATCH, "tc-key", _is_ipv6_fragment),
    _pattern(r"offloading multiple mpls_lses isn't supported", Cause.UNSUPPORTED_MATCH, "tc-key", _has_lses),
    _pattern(r"offloading of non-ethernet packets isn't supported", Cause.UNSUPPORTED_MATCH, "tc-key", _is_no_frame),
    _pattern(r"offloading isn't supported, unknown attribute", Cause.UNSUPPORTED_MATCH, "tc-key"),
    _pattern(r"unsupported (?:sub attribute of )?set action type", Cause.UNSUPPORTED_ACTION, "tc-masked-set", _has_set),
    _pattern(
        r"set action type [0-9]+ not supported on fragments",
        Cause.UNSUPPORTED_ACTION,
        "tc-masked-set",
        _sets_in_fragments,
    ),
    _pattern(r"unsupported tunnel key attribute", Cause.UNSUPPORTED_ACTION, "tc-tunnel", _has_set),
    _pattern(r"Can only support [0-9]+ actions", Cause.UNSUPPORTED_ACTION, "tc-actions", _is_long),
    _pattern(r"recirc_id sharing not supported", Cause.RECIRCULATION, "tc-put", _recirculates),
    _pattern(r"recirc_id [0-9]+ exceeds the chain id upper limit", Cause.RECIRCULATION, "tc-put", _recirculates),
    _pattern(
        r"match for chain [0-9]+ failed due to non-existing goto chain", Cause.RECIRCULATION, "tc-put", _recirculates
    ),
    _pattern(
        r"Can't find ifindex for output port (?P<egress>\S+),", Cause.EGRESS_NOT_ON_ESWITCH, "tc-actions", _goes_to
    ),
    _pattern(r"Can't find offloaded netdev for output port", Cause.EGRESS_NOT_ON_ESWITCH, "tc-actions"),
    _pattern(r"Flow API provider mismatch between ingress", Cause.EGRESS_NOT_ON_ESWITCH, "tc-actions"),
    _pattern(r"couldn't get tc prio: No space left on device", Cause.TABLE_FULL, "tc-put"),
    # Up to 3.1 the text names no port.
    _pattern(
        r"failed adding ingress qdisc required for offloading on (?P<port>\S+):", Cause.NO_INGRESS_QDISC, "tc-init"
    ),
    _pattern(r"Kernel flower acknowledgment does not match request", Cause.REFUSED_BY_KERNEL, "tc-replace"),
    _pattern(
        r"Output to port '(?P<egress>[^']+)' cannot be offloaded", Cause.EGRESS_NOT_ON_ESWITCH, "dpdk-output", _goes_to
    ),
    _pattern(r"Unsupported action type [0-9]+", Cause.UNSUPPORTED_ACTION, "dpdk-actions"),
    _pattern(r"Partial mask is not supported", Cause.UNSUPPORTED_ACTION, "dpdk-partial", _has_set),
    # The extended acknowledgement of the kernel.
    LogPattern(re.compile(r"received NAK error=[0-9]+ - "), Cause.REFUSED_BY_DRIVER, "netlink-nak", needs_failure=True),
)


_LINE = re.compile(
    r"[0-9][0-9T:.Z-]+\|(?P<number>[0-9]+)\|(?P<module>[a-z0-9_]+)(?:\((?P<thread>[^)|]*)\))?"
    r"\|(?:EMER|ERR|WARN|INFO|DBG)\|(?P<message>.*)",
    re.ASCII,
)
"""The default pattern of the log file (ovs-vswitchd(8), "Logging Options")."""

_FIRST = "00001"
"""Each thread numbers its lines; the main thread, which has no name, from the start of the process (lib/vlog.c)."""

_FAILED = re.compile(r"failed to offload flow: (?P<error>.*): (?P<port>\S+)")
_NO_REASON = ("Operation not supported",)
"""Errors of refusals whose reason was logged before; alone they give no reason."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refusal in the log.

    Attributes:
        port: ingress port; None: unknown.
        line: one such line of the log.
        pattern: decides which megaflows it may be about; None: all of the port.
    """

    cause: Cause
    message: str
    port: str | None
    line: str
    pattern: LogPattern | None = None

    def fits(self, megaflow: Megaflow) -> bool:
        """Return whether the refusal may be about this megaflow."""
        if self.port is not None and self.port != megaflow.in_port:
            return False
        return self.pattern is None or self.pattern.fits(megaflow, self.message)

    @property
    def source(self) -> str:
        """Where Open vSwitch writes such a line."""
        return SOURCES["tc-failed" if self.pattern is None else self.pattern.source]

    @property
    def is_specific(self) -> bool:
        """Whether every megaflow that it fits is refused for this reason."""
        return self.pattern is not None and self.pattern.applies is not None


def parse_refusals(text: str) -> tuple[Refusal, ...]:
    """Return the refusals in a log since the last start of ovs-vswitchd, each once, in their order.

    Lines of another form are skipped.
    """
    found: dict[tuple[str, str | None], Refusal] = {}
    pending: dict[str, list[Refusal]] = {}
    for line in text.splitlines():
        parts = _LINE.match(line)
        if parts is None:
            continue
        if parts["number"] == _FIRST and parts["thread"] is None:
            # Refusals of an earlier process do not concern the megaflows of this one.
            found.clear()
            pending.clear()
        before = pending.setdefault(parts["thread"] or "main", [])
        if failed := _FAILED.fullmatch(parts["message"]):
            _keep(found, _of_port(before, failed, line))
            before.clear()
            continue
        before[:] = [refusal for refusal in before if refusal.pattern is None or not refusal.pattern.needs_failure]
        if found_pattern := next((each for each in LOG_PATTERNS if each.pattern.search(parts["message"])), None):
            before.append(Refusal(found_pattern.cause, parts["message"], None, line, found_pattern))
    for rest in pending.values():
        _keep(found, (refusal for refusal in rest if refusal.pattern is None or not refusal.pattern.needs_failure))
    return tuple(found.values())


def _of_port(before: list[Refusal], failed: re.Match[str], line: str) -> list[Refusal]:
    """Return the reasons logged since the last failure of the thread, with their port."""
    if before:
        return [
            Refusal(r.cause, r.message, r.pattern.port_of(r.message) or failed["port"], r.line, r.pattern)
            for r in before
            if r.pattern
        ]
    cause = _cause_of(failed["error"])
    return [Refusal(cause, failed[0], failed["port"], line)]


def _cause_of(error: str) -> Cause:
    if error == "No space left on device":
        return Cause.TABLE_FULL
    return Cause.REFUSED_BY_OVS if error in _NO_REASON else Cause.REFUSED_BY_KERNEL


def _keep(found: dict[tuple[str, str | None], Refusal], refusals: Iterable[Refusal]) -> None:
    for refusal in refusals:
        found[refusal.message, refusal.port] = refusal
