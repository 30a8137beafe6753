"""Flows by ovs-ofctl(8): read our own, and change them in one atomic bundle."""

from __future__ import annotations

import re
from dataclasses import dataclass

from xenoovs.errors import CommandFailed, UnknownTableName
from xenoovs.openflow.bundle import Bundle
from xenoovs.openflow.cookie import FAMILY, FAMILY_MASK, OWNER, OWNER_MASK, is_foreign
from xenoovs.openflow.flow import ObservedFlow
from xenoovs.openflow.parse import parse_dump
from xenoovs.openflow.render import render_bundle, render_flow
from xenoovs.openflow.text import parse_name
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.greeting import require_greeting
from xenoovs.switch.process import run
from xenoovs.switch.stderr import lift, lift_refusal

_OURS = f"cookie={OWNER << 48:#x}/{OWNER_MASK:#x}"
_FAMILY = f"cookie={FAMILY:#x}/{FAMILY_MASK:#x}"
_SERVICE_MASK = OWNER_MASK | 0xFFFFFFFF
_NAMED_TABLES = (re.compile(r"table=[^0-9]"), re.compile(r"resubmit\(,[^0-9]"))
"""Two that each begin with plain text, which `re` finds twenty times as fast as one pattern of both."""
_DUMP_TIMEOUT_S = 60.0
# A bundle of 16,000 flows takes 0.1 to 0.9 s on two cores of a PC; a busy BlueField may be some ten times slower.
_BUNDLE_TIMEOUT_S = 15.0
_BUNDLE_TIMEOUT_PER_FLOW_S = 0.002
_TABLE_NAME = re.compile(r'^  table ([0-9]+) \(("(?:[^"\\]|\\.)*"|[^"()]+)\):', re.MULTILINE)
_DATAPATH_ID = re.compile(r"dpid:([0-9a-f]{16})")
_FLOW_COUNT = re.compile(r"flow_count=([0-9]+)")


@dataclass(frozen=True, slots=True)
class Ofctl:
    """ovs-ofctl to the bridges of one Open vSwitch.

    All methods raise BridgeMissing, OpenFlowVersionDisabled, SwitchUnreachable, CommandMissing and CommandTimeout.
    """

    endpoint: Endpoint

    def dump_flows(self, bridge: str) -> tuple[ObservedFlow, ...]:
        """Our flows with their counters, in the order of Open vSwitch. Raises ParseError for text of another form."""
        return self._dump(bridge, _OURS)

    def dump_flow_text(self, bridge: str, *, service_id: int | None = None) -> str:
        """Our flows without counters, one a line, tables by number; of one service where its id is given."""
        ours = _OURS if service_id is None else f"cookie={OWNER << 48 | service_id:#x}/{_SERVICE_MASK:#x}"
        text = self._run("dump-flows", bridge, ours, "--no-stats")
        if not any(named.search(text) for named in _NAMED_TABLES):
            return text
        flows = parse_dump(text, tables=self._table_numbers(bridge))
        return "".join(f"{render_flow(seen.flow)}\n" for seen in flows)

    def dump_foreign_flows(self, bridge: str) -> tuple[ObservedFlow, ...]:
        """The flows of others, likewise."""
        return tuple(seen for seen in self._dump(bridge) if is_foreign(seen.flow.cookie))

    def count_foreign_flows(self, bridge: str) -> int:
        """How many flows of others the bridge has."""
        return self._count(bridge) - self._count(bridge, _FAMILY)

    def datapath_id(self, bridge: str) -> str | None:
        """16 hexadecimal digits, as column datapath_id of table Bridge has them."""
        found = _DATAPATH_ID.search(self._run("show", bridge))
        return found[1] if found else None

    def apply(self, bridge: str, bundle: Bundle) -> None:
        """Send all flow-mods in one bundle: the tables hold either all of them or none (OpenFlow 1.4.0, 6.8).

        An empty bundle sends nothing. Raises BundleRejected. After CommandTimeout and SwitchUnreachable the change may
        or may not have happened, as a whole: read the tables again.
        """
        if not bundle.mods:
            return
        text = render_bundle(bundle)
        target = self.endpoint.management(bridge)
        argv = ["ovs-ofctl", "-O", "OpenFlow14", "--bundle", "add-flows", target, "-"]
        timeout_s = _BUNDLE_TIMEOUT_S + _BUNDLE_TIMEOUT_PER_FLOW_S * len(bundle)
        require_greeting(target)
        try:
            run(argv, stdin=text, timeout_s=timeout_s, env=self.endpoint.env)
        except CommandFailed as failed:
            lines = text.splitlines()
            raise lift_refusal(failed, endpoint=self.endpoint, bridge=bridge, lines=lines) from None

    def _dump(self, bridge: str, *match: str) -> tuple[ObservedFlow, ...]:
        text = self._run("dump-flows", bridge, *match)
        try:
            return tuple(parse_dump(text))
        except UnknownTableName:
            return tuple(parse_dump(text, tables=self._table_numbers(bridge)))

    def _run(self, command: str, bridge: str, *arguments: str) -> str:
        target = self.endpoint.management(bridge)
        require_greeting(target)
        argv = ["ovs-ofctl", "-O", "OpenFlow14", "--names", command, target, *arguments]
        try:
            return run(argv, timeout_s=_DUMP_TIMEOUT_S, env=self.endpoint.env).stdout
        except CommandFailed as failed:
            raise lift(failed, endpoint=self.endpoint, bridge=bridge) from None

    def _count(self, bridge: str, *match: str) -> int:
        found = _FLOW_COUNT.search(self._run("dump-aggregate", bridge, *match))
        return int(found[1]) if found else 0

    def _table_numbers(self, bridge: str) -> dict[str, int]:
        # Table names are rare, and describing all tables takes longer than dumping flows: asked for when one is met.
        described = self._run("dump-table-features", bridge)
        return {parse_name(name): int(number) for number, name in _TABLE_NAME.findall(described)}
