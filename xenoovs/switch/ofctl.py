"""What ovs-ofctl(8) does better than our own OpenFlow: dump thousands of flows, and describe those of others."""

from __future__ import annotations

import re
from dataclasses import dataclass

from xenoovs.errors import CommandFailed, UnknownTableName
from xenoovs.openflow.bundle import Bundle
from xenoovs.openflow.cookie import CookieMask, is_foreign
from xenoovs.openflow.flow import ObservedFlow
from xenoovs.openflow.parse import parse_dump
from xenoovs.openflow.render import render_bundle, render_flow
from xenoovs.openflow.text import parse_name
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.process import run
from xenoovs.switch.stderr import lift, lift_refusal

_NAMED_TABLES = (re.compile(r"table=[^0-9]"), re.compile(r"resubmit\(,[^0-9]"))
"""Two that each begin with plain text, which `re` finds twenty times as fast as one pattern of both."""
_DUMP_TIMEOUT_S = 60.0
# A bundle of 16,000 flows takes 0.1 to 0.9 s on two cores of a PC; a busy BlueField may be some ten times slower.
_BUNDLE_TIMEOUT_S = 15.0
_BUNDLE_TIMEOUT_PER_FLOW_S = 0.002
_TABLE_NAME = re.compile(r'^  table ([0-9]+) \(("(?:[^"\\]|\\.)*"|[^"()]+)\):', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Ofctl:
    """Runs of ovs-ofctl. Callers first make sure that ovs-vswitchd answers: ovs-ofctl waits long for one that does not.

    All methods raise BridgeMissing, OpenFlowVersionDisabled, SwitchUnreachable, CommandMissing and CommandTimeout.
    """

    endpoint: Endpoint

    def dump_flow_text(self, bridge: str, only: CookieMask) -> str:
        """Return flows without counters, one a line, tables by number. Raises ParseError for text of another form."""
        cookies = f"cookie={only.value:#x}/{only.mask:#x}"
        text = self._run("dump-flows", bridge, cookies, "--no-stats")
        if not any(named.search(text) for named in _NAMED_TABLES):
            return text
        flows = parse_dump(text, tables=self._table_numbers(bridge))
        return "".join(f"{render_flow(seen.flow)}\n" for seen in flows)

    def dump_foreign_flows(self, bridge: str) -> tuple[ObservedFlow, ...]:
        """Return the flows of others with their counters, likewise."""
        text = self._run("dump-flows", bridge)
        try:
            flows = tuple(parse_dump(text))
        except UnknownTableName:
            flows = tuple(parse_dump(text, tables=self._table_numbers(bridge)))
        return tuple(seen for seen in flows if is_foreign(seen.flow.cookie))

    def apply(self, bridge: str, bundle: Bundle) -> None:
        """Send all flow-mods in one bundle, also such as are only known by their text.

        Raises BundleRejected. After CommandTimeout and SwitchUnreachable the change may or may not have happened, as a
        whole: read the tables again.
        """
        text = render_bundle(bundle)
        argv = ["ovs-ofctl", "-O", "OpenFlow14", "--bundle", "add-flows", self.endpoint.management(bridge), "-"]
        timeout_s = _BUNDLE_TIMEOUT_S + _BUNDLE_TIMEOUT_PER_FLOW_S * len(bundle)
        try:
            run(argv, stdin=text, timeout_s=timeout_s, env=self.endpoint.env)
        except CommandFailed as failed:
            lines = text.splitlines()
            raise lift_refusal(failed, endpoint=self.endpoint, bridge=bridge, lines=lines) from None

    def _run(self, command: str, bridge: str, *arguments: str) -> str:
        target = self.endpoint.management(bridge)
        argv = ["ovs-ofctl", "-O", "OpenFlow14", "--names", command, target, *arguments]
        try:
            return run(argv, timeout_s=_DUMP_TIMEOUT_S, env=self.endpoint.env).stdout
        except CommandFailed as failed:
            raise lift(failed, endpoint=self.endpoint, bridge=bridge) from None

    def _table_numbers(self, bridge: str) -> dict[str, int]:
        # Table names are rare, and describing all tables takes longer than dumping flows: asked for when one is met.
        described = self._run("dump-table-features", bridge)
        return {parse_name(name): int(number) for number, name in _TABLE_NAME.findall(described)}
