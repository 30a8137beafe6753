"""Refusals in the log of ovs-vswitchd, and the megaflows that they may be about.

A line with the reason comes first; then, in the same thread, `failed to offload flow: ...` names the ingress port.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from xenoovs.compile.offloadable.table import SOURCES
from xenoovs.dataclass import dataclass
from xenoovs.datapath.megaflow import Megaflow, is_matched
from xenoovs.datapath.tunnel import tunnel_kind
from xenoovs.judge.why.reason import Cause
from xenoovs.regex import regex

_DATA: Mapping[str, Any] = json.loads(Path(__file__).with_name("log.json").read_text(encoding="utf-8"))

OVS_ACTIONS: Mapping[int, str] = {int(number): name for number, name in _DATA["actions"].items()}
"""enum ovs_action_attr of uapi/linux/openvswitch.h -> name in a dump, for actions that Open vSwitch may refuse."""


def action_names(megaflow: Megaflow) -> frozenset[str]:
    """Return the names of the actions: `set`, `hash`, `userspace` ...; `output` for a port."""
    names = ((action.partition("(")[0], "(" in action) for action in megaflow.actions)
    return frozenset(name if is_nested or name in _PLAIN else "output" for name, is_nested in names)


def set_fields(megaflow: Megaflow) -> frozenset[str]:
    """Return the keys that `set(...)` writes: `eth`, `ipv4`, `udp`, `tunnel` ..."""
    sets = (action.removeprefix("set(") for action in megaflow.actions if action.startswith("set("))
    return frozenset(action.partition("(")[0] for action in sets)


def is_fragment(megaflow: Megaflow) -> bool:
    return any("frag=first" in key.inner or "frag=later" in key.inner for key in megaflow.keys)


_PLAIN = frozenset(OVS_ACTIONS.values()) | {"set", "push_vlan", "pop_vlan", "drop", "tnl_push", "tnl_pop", "ct"}


# Texts that ovs-vswitchd logs as reasons, in log.json. They were compared with the sources of 2.17 to 4.0.


_KEYS = {"pkt_mark": "skb_mark", "actset_output": "in_port", "conj_id": "recirc_id"}
"""Fields of `struct flow` -> their names in a dump, if they differ."""


@dataclass(frozen=True, slots=True)
class LogPattern:
    """A text of the log and its meaning. `source`: where Open vSwitch writes it, a name in SOURCES of the offload
    table. `applies`: returns whether a megaflow is of the kind that the text names; None if it names none.
    `needs_failure`: it is about a megaflow only if a failure follows at once; other requests are refused too."""

    pattern: re.Pattern[str]
    cause: Cause
    source: str
    applies: Callable[[Megaflow, re.Match[str]], bool] | None = None
    needs_failure: bool = False

    def fits(self, megaflow: Megaflow, message: str) -> bool:
        """Return whether the text may be about this megaflow."""
        found = self.pattern.search(message)
        return found is not None and (self.applies is None or self.applies(megaflow, found))


_APPLIES: Mapping[str, Callable[[Megaflow, re.Match[str]], bool]] = {
    "has-action": lambda megaflow, found: OVS_ACTIONS.get(int(found["number"])) in action_names(megaflow),
    "has-key": lambda megaflow, found: is_matched(megaflow.key(_KEYS.get(found["key"], found["key"])) or ""),
    "sets": lambda megaflow, _found: bool(set_fields(megaflow)),
    "sets-in-fragments": lambda megaflow, _found: bool(set_fields(megaflow)) and is_fragment(megaflow),
    "several-actions": lambda megaflow, _found: len(megaflow.actions) > 1,
    "ipv6-fragment": lambda megaflow, _found: is_fragment(megaflow) and megaflow.key("ipv6") is not None,
    "recirculates": lambda megaflow, _found: megaflow.recirc_id != 0 or "recirc" in action_names(megaflow),
    "goes-to": lambda megaflow, found: found["egress"] in megaflow.actions,
    "mpls-stack": lambda megaflow, _found: "lse1=" in (megaflow.key("mpls") or ""),
    "no-frame": lambda megaflow, _found: megaflow.key("eth") is None,
}


def _pattern(
    *, pattern: str, cause: str, source: str, applies: str | None = None, needs_failure: bool = False
) -> LogPattern:
    fits = None if applies is None else _APPLIES[applies]
    return LogPattern(regex(pattern, re.ASCII), Cause(cause), source, fits, needs_failure)


LOG_PATTERNS = tuple(_pattern(**row) for row in _DATA["patterns"])
"""The first one found in a message counts."""


_LINE = regex(
    r"[0-9][0-9T:.Z-]+\|(?P<number>[0-9]+)\|(?P<module>[a-z0-9_]+)(?:\((?P<thread>[^)|]*)\))?"
    r"\|(?:EMER|ERR|WARN|INFO|DBG)\|(?P<message>.*)",
    re.ASCII,
)
"""The default pattern of the log file (ovs-vswitchd(8), "Logging Options")."""

_FIRST = "00001"
"""Number of a thread's first line; that of the main thread, which has no name, begins a process (lib/vlog.c)."""

_TOOL_MODULES = frozenset(("dpif_netlink", "netlink_socket", "unixctl"))
"""Modules in the first line of a tool such as ovs-dpctl, which a log copied from a terminal may contain."""

_FAILED = regex(r"failed to offload flow: (?P<error>.*): (?P<port>\S+)")
_PUT = regex(r"\S+: (?P<text>failed to put(?:\[[a-z]+\])+ \((?P<error>[^()]*)\)) ufid:(?P<ufid>[0-9a-f-]{36}) ")
"""dpif_offload_operate() of lib/dpif-offload.c since 4.0 (commit 978756d35), for a megaflow that a provider refused for
a reason other than room or support."""
NO_ENTRY = "No such file or directory"
"""ENOENT: the device has no ingress qdisc, or the kernel has no module for an action of the rule (act_pedit ...)."""
_NO_REASON = ("Operation not supported",)
"""Errors of refusals whose reason was logged before; alone they explain nothing."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refusal in the log. `pattern`: None if it may be about any megaflow of the port. `ufid`: None if not logged."""

    cause: Cause
    message: str
    port: str | None
    line: str
    pattern: LogPattern | None = None
    ufid: str | None = None

    def fits(self, megaflow: Megaflow) -> bool:
        """Return whether the refusal may be about this megaflow."""
        if self.ufid is not None:
            return self.ufid == megaflow.ufid
        if self.port is not None and self.port != megaflow.in_port and not _is_tunnel(self.port, megaflow.in_port):
            return False
        return self.pattern is None or self.pattern.fits(megaflow, self.message)

    @property
    def is_without_entry(self) -> bool:
        """Whether the kernel answered ENOENT."""
        return self.pattern is None and NO_ENTRY in self.message

    @property
    def source(self) -> str:
        """Where Open vSwitch writes such a line."""
        if self.pattern is not None:
            return SOURCES[self.pattern.source]
        return SOURCES["tc-failed" if self.ufid is None else "offload-put"]

    @property
    def is_specific(self) -> bool:
        """Whether every megaflow that it fits is refused for this reason."""
        return self.ufid is not None or (self.pattern is not None and self.pattern.applies is not None)


@lru_cache(maxsize=8)
def parse_refusals(text: str) -> tuple[Refusal, ...]:
    """Return the refusals in a log since the last start of ovs-vswitchd, each once, in order; skip other lines."""
    found: dict[tuple[str, str | None, str | None], Refusal] = {}
    pending: dict[str, list[Refusal]] = {}
    for line in text.splitlines():
        parts = _LINE.match(line)
        if parts is None:
            continue
        if parts["number"] == _FIRST and parts["thread"] is None and parts["module"] not in _TOOL_MODULES:
            # Refusals of an earlier process do not concern the megaflows of this one.
            found.clear()
            pending.clear()
        before = pending.setdefault(parts["thread"] or "main", [])
        if failed := _FAILED.fullmatch(parts["message"]):
            _keep(found, _of_port(before, failed, line))
            before.clear()
            continue
        if parts["module"] == "dpif_offload" and (put := _PUT.match(parts["message"])):
            _keep(found, (Refusal(_cause_of(put["error"]), put["text"], None, line, ufid=put["ufid"]),))
            continue
        before[:] = [refusal for refusal in before if refusal.pattern is None or not refusal.pattern.needs_failure]
        for each in LOG_PATTERNS:
            if said := each.pattern.search(parts["message"]):
                before.append(Refusal(each.cause, parts["message"], said.groupdict().get("port"), line, each))
                break
    for rest in pending.values():
        _keep(found, (refusal for refusal in rest if refusal.pattern is None or not refusal.pattern.needs_failure))
    return tuple(found.values())


def _of_port(before: list[Refusal], failed: re.Match[str], line: str) -> list[Refusal]:
    """Return the reasons logged since the last failure of the thread, with their port."""
    if before:
        return [Refusal(r.cause, r.message, r.port or failed["port"], r.line, r.pattern) for r in before if r.pattern]
    cause = _cause_of(failed["error"])
    return [Refusal(cause, failed[0], failed["port"], line)]


_NO_CHAINS = "recirc_id sharing not supported"
"""netdev_tc_flow_put() of lib/netdev-offload-tc.c, if the kernel lacks CONFIG_NET_TC_SKB_EXT: an error up to 3.1, later
at debug level."""


def refuses_chains(text: str) -> bool:
    """Return whether the log shows, since the last start of ovs-vswitchd, that the kernel cannot offload chains."""
    return _NO_CHAINS in text and any(_NO_CHAINS in refusal.message for refusal in parse_refusals(text))


_NAMED = ("geneve", "vxlan", "gre")
"""Kinds of tunnels whose interfaces OpenStack names after them, as `vxlan-c0000201`; OVN names them `ovn-ID-N`."""
_OVN_TUNNEL = regex(r"ovn-[0-9A-Za-z]+-[0-9a-f]+", re.ASCII)


def _is_tunnel(interface: str, device: str | None) -> bool:
    """Return whether an interface of the log is a tunnel whose packets the datapath receives on this device."""
    kind = tunnel_kind(device)
    return kind in _NAMED and (bool(_OVN_TUNNEL.fullmatch(interface)) or interface.startswith(f"{kind}-"))


def _cause_of(error: str) -> Cause:
    if error == "No space left on device":
        return Cause.TABLE_FULL
    if error == NO_ENTRY:
        return Cause.NO_INGRESS_QDISC
    return Cause.REFUSED_BY_OVS if error in _NO_REASON else Cause.REFUSED_BY_KERNEL


def _keep(found: dict[tuple[str, str | None, str | None], Refusal], refusals: Iterable[Refusal]) -> None:
    for refusal in refusals:
        found[refusal.message, refusal.port, refusal.ufid] = refusal
