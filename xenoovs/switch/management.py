"""A real Open vSwitch: its database, OpenFlow at its management sockets, and its tools for everything else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from xenoovs.dataclass import dataclass
from xenoovs.datapath.database import BridgeState
from xenoovs.datapath.fact import Fact, Unknown
from xenoovs.errors import CommandFailed, CommandMissing, NotEncodable, SwitchError, UnknownTableName
from xenoovs.openflow.flow import FOREIGN, OURS, Bundle, CookieMask, Cookies, ObservedFlow, is_foreign
from xenoovs.openflow.group import group_number, parse_group_dump, resolved, resolved_text
from xenoovs.openflow.text import parse_dump, parse_name, render_bundle, render_flow
from xenoovs.regex import MULTILINE, regex
from xenoovs.switch.api import find_bridge
from xenoovs.switch.appctl import Appctl
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.openflow import (
    COMMIT_PER_FLOW_S,
    COMMIT_S,
    GREETINGS,
    connected,
    count_flows,
    decode_flows,
    decode_groups,
    open_bundle,
    render_dump,
    request_barrier,
    request_datapath_id,
    request_flows,
    request_groups,
    send_bundle,
    wait_in_step,
    with_groups,
)
from xenoovs.switch.ovsdb import DEFAULT_TIMEOUT_S, read_bridges
from xenoovs.switch.process import run
from xenoovs.switch.stderr import has_lost_connection, lift_refusal
from xenoovs.switch.tape import is_taped

if TYPE_CHECKING:
    from xenoovs.datapath.ipsec import IpsecState
    from xenoovs.datapath.outer import Encapsulation

# ovs-ofctl(8) dumps thousands of flows faster than our own OpenFlow, and has a name for everything in foreign flows.


_NAMED_TABLES = (regex(r"table=[^0-9]"), regex(r"resubmit\(,[^0-9]"))
"""Two patterns that each begin with plain text: `re` is twenty times as fast with them as with one pattern of both."""
_DUMP_TIMEOUT_S = 60.0
_TABLE_NAME = regex(r'^  table ([0-9]{1,3}) \(("(?:[^"\\]|\\.)*"|[^"()]+)\):', MULTILINE)


@dataclass(frozen=True, slots=True)
class Ofctl:
    """Runs ovs-ofctl. Callers first make sure that ovs-vswitchd answers, as ovs-ofctl waits long if it does not.

    All methods raise BridgeMissing, OpenFlowVersionDisabled, CommandMissing and CommandTimeout.
    """

    endpoint: Endpoint

    def dump_flow_text(self, bridge: str, only: CookieMask) -> str:
        """Return flows without counters, one a line, tables by number. Raises ParseError for text of another form."""
        cookies = f"cookie={only.value:#x}/{only.mask:#x}"
        text = self.run("dump-flows", bridge, cookies, "--no-stats")
        if not any(named.search(text) for named in _NAMED_TABLES):
            return text
        flows = parse_dump(text, tables=self._table_numbers(bridge))
        return "".join(f"{render_flow(seen.flow)}\n" for seen in flows)

    def dump_flows(self, bridge: str) -> tuple[ObservedFlow, ...]:
        """Return all flows with their counters. Raises what `dump_flow_text` raises."""
        text = self.run("dump-flows", bridge)
        try:
            return tuple(parse_dump(text))
        except UnknownTableName:
            return tuple(parse_dump(text, tables=self._table_numbers(bridge)))

    def apply(self, bridge: str, bundle: Bundle) -> None:
        """Send all flow-mods in one bundle, also those that are only known by their text.

        Raises BundleRejected. After CommandTimeout and SwitchUnreachable read the tables: all or nothing was changed.
        """
        timeout_s = COMMIT_S + COMMIT_PER_FLOW_S * len(bundle)
        text = render_bundle(bundle)
        command = "bundle" if text.startswith("group ") else "add-flows"
        self.run(command, bridge, "-", options=("--bundle",), stdin=text, timeout_s=timeout_s)

    def run(
        self,
        command: str,
        bridge: str,
        *arguments: str,
        options: Sequence[str] = ("--names",),
        stdin: str = "",
        timeout_s: float = _DUMP_TIMEOUT_S,
        version: str = "OpenFlow14",
    ) -> str:
        """Return the output of a command. Raises BundleRejected if the bridge refuses flow-mods in `stdin`."""
        argv = ["ovs-ofctl", "-O", version, *options, command, self.endpoint.management(bridge), *arguments]
        tries_left = GREETINGS
        while True:
            try:
                return run(argv, stdin=stdin, timeout_s=timeout_s, env=self.endpoint.env).stdout
            except CommandFailed as failed:
                tries_left -= 1
                if not (tries_left and has_lost_connection(failed, is_change=bool(stdin))):
                    raise lift_refusal(
                        failed, endpoint=self.endpoint, bridge=bridge, lines=stdin.splitlines()
                    ) from None

    def _table_numbers(self, bridge: str) -> dict[str, int]:
        # Table names are rare, and describing all tables takes longer than dumping flows: asked for when one is met.
        described = self.run("dump-table-features", bridge)
        return {parse_name(name): int(number) for number, name in _TABLE_NAME.findall(described)}


_FEW_FLOWS = 500
"""Up to this number we decode and render flows faster than ovs-ofctl starts and prints them (docs/adr/0017)."""


@dataclass(frozen=True, slots=True)
class ManagementSwitch:
    """The Open vSwitch at `endpoint`, without state between calls. Implements `Switch`.

    `db_timeout_s`: how long the database may take to answer.
    """

    endpoint: Endpoint
    db_timeout_s: float = DEFAULT_TIMEOUT_S

    def bridges(self) -> tuple[BridgeState, ...]:
        """Return all bridges. Raises SwitchError if ovs-vswitchd has another database."""
        states = read_bridges(self.endpoint, timeout_s=self.db_timeout_s)
        if self.endpoint.is_split and not is_taped():
            self._check_same_switch(states)
        return states

    def describe(self, bridge: str) -> BridgeState:
        return find_bridge(self.bridges(), bridge)

    def incarnation(self, bridge: str) -> str | None:
        return self.endpoint.incarnation(bridge)

    def dump_flows(self, bridge: str, *, only: Cookies = OURS) -> tuple[ObservedFlow, ...]:
        if is_taped():
            # A record has the text of a tool, which a person can read.
            tool = Ofctl(self.endpoint)
            flows = [seen for seen in tool.dump_flows(bridge) if any(seen.flow.cookie in each for each in only)]
            if all(group_number(seen.flow.actions) is None for seen in flows):
                return tuple(flows)
            return resolved(flows, parse_group_dump(tool.run("dump-groups", bridge, version="OpenFlow15")))
        with connected(self.endpoint, bridge) as connection:
            return decode_flows(request_flows(connection, only), connection.names)

    def dump_flow_text(self, bridge: str, *, only: Cookies = OURS) -> str:
        with connected(self.endpoint, bridge) as connection:
            counts = dict(zip(only, count_flows(connection, only), strict=True))
            few = tuple(each for each, flows in counts.items() if 0 < flows <= _FEW_FLOWS)
            text = render_dump(decode_flows(request_flows(connection, few), connection.names)) if few else ""
        many = [each for each, flows in counts.items() if flows > _FEW_FLOWS]
        if not many:
            return text
        found = "".join(Ofctl(self.endpoint).dump_flow_text(bridge, each) for each in many)
        return text + self._with_groups(bridge, found)

    def _with_groups(self, bridge: str, dump: str) -> str:
        if "group:" not in dump:
            return dump
        with connected(self.endpoint, bridge) as connection:
            return resolved_text(dump, decode_groups(request_groups(connection), connection.names))

    def dump_foreign_flows(self, bridge: str) -> tuple[ObservedFlow, ...]:
        """Return the foreign flows in the text of ovs-ofctl, which has a name for every action and field."""
        if not is_taped() and not self.count_flows(bridge, only=FOREIGN):
            return ()
        return tuple(seen for seen in Ofctl(self.endpoint).dump_flows(bridge) if is_foreign(seen.flow.cookie))

    def count_flows(self, bridge: str, *, only: Cookies = OURS) -> int:
        with connected(self.endpoint, bridge) as connection:
            return sum(count_flows(connection, only))

    def apply(self, bridge: str, bundle: Bundle) -> None:
        """Apply all flow-mods or none. An empty bundle sends nothing. Raises BundleRejected."""
        if not bundle.mods:
            return
        try:
            with connected(self.endpoint, bridge) as connection:
                bundle = with_groups(connection, bundle, ofports=connection.numbers)
                send_bundle(connection, bundle, ofports=connection.numbers)
        except NotEncodable:
            # A flow from a dump of ovs-ofctl, which can send what it prints; or a port that is not there.
            Ofctl(self.endpoint).apply(bridge, bundle)

    @contextmanager
    def prepared(self, bridge: str, bundle: Bundle) -> Iterator[Callable[[], None]]:
        """Keep a bundle open on a separate connection. Raises BundleRejected, also from the commit."""
        with connected(self.endpoint, bridge) as connection:
            bundle = with_groups(connection, bundle, ofports=connection.numbers)
            try:
                commit = open_bundle(connection, bundle, ofports=connection.numbers)
            except NotEncodable:
                commit = partial(Ofctl(self.endpoint).apply, bridge, bundle)
            yield commit

    def wait_revalidated(self, bridge: str) -> None:
        try:
            Appctl(self.endpoint).wait_revalidated()
        except (CommandFailed, CommandMissing):
            with connected(self.endpoint, bridge) as connection:
                wait_in_step(partial(request_barrier, connection))

    def dump_megaflows(self) -> str:
        return Appctl(self.endpoint).dump_megaflows()

    def trace(self, bridge: str, flow: str) -> str:
        return Appctl(self.endpoint).trace(bridge, flow)

    def read_ipsec(self, outers: Sequence[Encapsulation]) -> Fact[IpsecState]:
        # Imported here: few configs have tunnels.
        from xenoovs.switch.tunnel_facts import read_ipsec
        from xenoovs.switch.vswitchd import netns_of

        place = netns_of(self.endpoint)
        return place if isinstance(place, Unknown) else read_ipsec(place, outers)

    def _check_same_switch(self, states: tuple[BridgeState, ...]) -> None:
        sockets = self.endpoint.bridges_with_socket()
        for state in states:
            if state.name not in sockets or self._datapath_id(state.name) != state.datapath_id:
                raise SwitchError(
                    f"bridge {state.name} of the database {self.endpoint.db} is not the one at {self.endpoint.rundir}: "
                    "--db and OVS_RUNDIR are of two different Open vSwitches; give one of them alone"
                )

    def _datapath_id(self, bridge: str) -> str:
        """Return 16 hexadecimal digits, as in column datapath_id of table Bridge."""
        with connected(self.endpoint, bridge) as connection:
            return f"{request_datapath_id(connection):016x}"
