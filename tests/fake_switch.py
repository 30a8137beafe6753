"""A switch in memory, for tests of logic and faults. It changes tables as Open vSwitch does; tests inject faults."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from threading import Event

from tests.patience import PATIENCE_S
from xenoovs.datapath.database import BridgeState, PortState
from xenoovs.datapath.fact import Fact
from xenoovs.datapath.ipsec import IpsecState
from xenoovs.datapath.outer import Encapsulation
from xenoovs.engine.engine import Appointment
from xenoovs.errors import BridgeMissing, BundleRejected, SwitchError, assert_never
from xenoovs.openflow.flow import LOCAL, OURS, Bundle, Command, Cookies, Flow, FlowKey, FlowMod, ObservedFlow, Output
from xenoovs.openflow.text import render_flow

_Table = dict[FlowKey, ObservedFlow]


def fake_bridge(name: str, ports: Iterable[str]) -> BridgeState:
    """A bridge whose `ports` have the OpenFlow numbers 1, 2 ... in their order."""
    numbered = [PortState(port, number, "dummy", link_up=True) for number, port in enumerate(ports, start=1)]
    own = PortState(name, 65534, "internal", link_up=True)
    states = tuple(sorted((own, *numbered), key=lambda port: port.name))
    return BridgeState(name, states, datapath_type="dummy", fail_mode="secure")


class FakeSwitch:
    """Implements `Switch`. `megaflows` and `trace_text` are what `dump_megaflows` and `trace` answer.

    applied: the bundles that were taken, oldest first, each with its bridge. held: those that were prepared.
    """

    def __init__(self, *bridges: BridgeState, megaflows: str = "", trace_text: str = "") -> None:
        self.megaflows, self.trace_text = megaflows, trace_text
        self.applied: list[tuple[str, Bundle]] = []
        self.held: list[Bundle] = []
        self._states = {state.name: state for state in bridges}
        self._tables: dict[str, _Table] = {state.name: {} for state in bridges}
        self._next_failure: SwitchError | None = None
        self._lost_answer: SwitchError | None = None
        self._restarts = 0
        self.ipsec: Fact[IpsecState] = IpsecState()

    def fail_next(self, error: SwitchError) -> None:
        """Let the next call of any method raise `error` and change nothing."""
        self._next_failure = error

    def lose_answer(self, error: SwitchError) -> None:
        """Let the next `apply` change the tables and still raise `error`, as a connection that breaks early does."""
        self._lost_answer = error

    def install(self, bridge: str, flows: Iterable[Flow]) -> None:
        """Add flows of any owner without an entry in `applied`."""
        self._tables[bridge] |= {flow.key: ObservedFlow(flow, 0, 0, 0.0) for flow in flows}

    def set_ports(self, state: BridgeState) -> None:
        """Change the ports of an existing bridge."""
        self._states[state.name] = state

    def restart(self, bridge: str) -> None:
        """Lose all flows, as a restart of ovs-vswitchd does."""
        self._tables[bridge] = {}
        self._restarts += 1

    def remove_flow(self, bridge: str, key: FlowKey) -> None:
        """Delete a flow as another program would."""
        del self._tables[bridge][key]

    def count(self, bridge: str, packets: Mapping[FlowKey, int], *, packet_bytes: int = 100) -> None:
        """Let packets match flows."""
        table = self._tables[bridge]
        for key, number in packets.items():
            seen = table[key]
            table[key] = replace(seen, packets=seen.packets + number, bytes=seen.bytes + number * packet_bytes)

    def age(self, bridge: str, seconds: float) -> None:
        """Let time pass for all flows."""
        table = self._tables[bridge]
        for key, seen in table.items():
            table[key] = replace(seen, duration_s=seen.duration_s + seconds)

    def all_flows(self, bridge: str) -> dict[FlowKey, ObservedFlow]:
        """Flows of all owners."""
        return dict(self._tables[bridge])

    def bridges(self) -> tuple[BridgeState, ...]:
        self._fail()
        return tuple(self._states[name] for name in sorted(self._states))

    def incarnation(self, bridge: str) -> str | None:
        return str(self._restarts) if bridge in self._tables else None

    def describe(self, bridge: str) -> BridgeState:
        self._fail()
        self._table(bridge)
        return self._states[bridge]

    def dump_flows(self, bridge: str, *, only: Cookies = OURS) -> tuple[ObservedFlow, ...]:
        self._fail()
        return tuple(seen for each in only for seen in self._table(bridge).values() if seen.flow.cookie in each)

    def dump_flow_text(self, bridge: str, *, only: Cookies = OURS) -> str:
        return "".join(f" {render_flow(seen.flow)}\n" for seen in self.dump_flows(bridge, only=only))

    def count_flows(self, bridge: str, *, only: Cookies = OURS) -> int:
        return len(self.dump_flows(bridge, only=only))

    def apply(self, bridge: str, bundle: Bundle) -> None:
        self._fail()
        table = dict(self._table(bridge))
        for mod in bundle.mods:
            self._check_ports(bridge, mod)
            _change(table, mod)
        self._tables[bridge] = table
        self.applied.append((bridge, bundle))
        if (lost := self._lost_answer) is not None:
            self._lost_answer = None
            raise lost

    @contextmanager
    def prepared(self, bridge: str, bundle: Bundle) -> Iterator[Callable[[], None]]:
        self.held.append(bundle)
        yield partial(self.apply, bridge, bundle)

    def wait_revalidated(self, bridge: str) -> None:
        self._fail()
        self._table(bridge)

    def dump_megaflows(self) -> str:
        self._fail()
        return self.megaflows

    def trace(self, bridge: str, flow: str) -> str:
        self._fail()
        self._table(bridge)
        return self.trace_text or f"Flow: {flow}\n"

    def read_ipsec(self, outers: Sequence[Encapsulation]) -> Fact[IpsecState]:
        return self.ipsec

    def _fail(self) -> None:
        if (error := self._next_failure) is not None:
            self._next_failure = None
            raise error

    def _table(self, bridge: str) -> _Table:
        if bridge not in self._tables:
            raise BridgeMissing(bridge=bridge, present=self._tables)
        return self._tables[bridge]

    def _check_ports(self, bridge: str, mod: FlowMod) -> None:
        known = {port.name for port in self._states[bridge].ports} | {LOCAL, None}
        # The actions of a delete are not read (OpenFlow 1.4.0, 6.4).
        actions = () if mod.command is Command.DELETE else mod.flow.actions
        named = [mod.flow.match.in_port, *(action.port for action in actions if isinstance(action, Output))]
        for port in named:
            if port not in known:
                message = f"{port}: output to unknown port"
                raise BundleRejected(bridge=bridge, error=None, message=message, advice="plan again")


def nothing() -> None:
    return


class Soon(Appointment):
    """A time that comes when `happens` has been called for each wait."""

    def __init__(self, *happens: Callable[[], None]) -> None:
        super().__init__(0.0)
        self.happens = list(happens)

    @property
    def left_s(self) -> float:
        return float(len(self.happens))

    def wait(self, *, ahead_s: float = 0.0) -> bool:
        self.happens.pop(0)()
        return not self._cancelled.is_set()


class HangingSwitch(FakeSwitch):
    """Has the bridge ovsbr1 with p0 and p1. Its dumps wait for `goes_on`."""

    def __init__(self) -> None:
        super().__init__(fake_bridge("ovsbr1", ["p0", "p1"]))
        self.goes_on = Event()
        self.goes_on.set()

    def dump_flow_text(self, bridge: str, *, only: Cookies = OURS) -> str:
        self.goes_on.wait(PATIENCE_S)
        return super().dump_flow_text(bridge, only=only)


def _change(table: _Table, mod: FlowMod) -> None:
    """One flow-mod as OpenFlow 1.4.0, 6.4 has it: modifying keeps cookie, counters and options."""
    key = mod.flow.key
    match mod.command:
        case Command.ADD:
            table[key] = ObservedFlow(mod.flow, 0, 0, 0.0)
        case Command.MODIFY:
            if (seen := table.get(key)) is not None:
                table[key] = replace(seen, flow=replace(seen.flow, actions=mod.flow.actions))
        case Command.DELETE:
            table.pop(key, None)
        case _:
            assert_never(mod.command)
