"""The engine: observe -> decide -> advance -> compile -> plan -> apply -> read back, for one bridge.

`xenoovs plan` and `apply` run it once, an agent runs it round by round. It is level-triggered: it acts because flows
differ, never because something happened, so a missed or a repeated round does no harm. `change` has the logic; this
module reads and changes the switch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from fractions import Fraction
from threading import Event, Lock

from xenoovs.compile.drain_progress import Draining, Quiet, drains_of, leftover, old_packets, opened_connections
from xenoovs.compile.encoding import hop_of
from xenoovs.compile.pipeline import LEARNED, PROGRAM, of_service
from xenoovs.compile.plan import Plan, bundle_of, plan
from xenoovs.compile.program import Program
from xenoovs.compile.read import is_of_drain, read, with_paths
from xenoovs.compile.tunnel_ports import encapsulation_to, wanted_ports
from xenoovs.dataclass import replace
from xenoovs.datapath.database import UNKNOWN_TYPE
from xenoovs.datapath.fact import Unknown
from xenoovs.datapath.megaflow import MAX_IDLE_S
from xenoovs.decision.advance import ServiceMove, settle_s
from xenoovs.decision.decide import parts_served
from xenoovs.decision.decision import BackendName, Decision, DesiredState, Transition, next_hops
from xenoovs.engine.change import (
    Change,
    Circumstances,
    Comparison,
    PlanOptions,
    Target,
    Texts,
    beside,
    blocked,
    compare,
    flattened,
    fresh,
    settling_moves,
    step,
)
from xenoovs.errors import (
    AppointmentCancelled,
    BundleRejected,
    ChangesHeld,
    CommandTimeout,
    ReadBackDiffers,
    SwitchUnreachable,
    XenoovsError,
)
from xenoovs.model.balancer import Balancer, service_ids
from xenoovs.model.next_hop import NextHop
from xenoovs.model.remote import every_service, unknown_paths, with_source_ports
from xenoovs.openflow.flow import FOREIGN, Flow, service_of
from xenoovs.openflow.text import recognise, render_flow
from xenoovs.switch.api import PortCheck, Switch, check_ports

# The ports of a bridge as the database last described them, for as long as the bridge is the same.
#
# A backend that dies while ovsdb-server hangs must lose its clients all the same. That needs nothing that the database
# alone knows, and Open vSwitch refuses a bundle that names a port which is not there.


class Ports:
    """Caches the ports of one bridge at a time."""

    def __init__(self, switch: Switch) -> None:
        self._switch = switch
        self._known: tuple[str | None, Balancer, PortCheck] | None = None

    def check(self, balancer: Balancer, leaving: tuple[NextHop, ...] = ()) -> PortCheck:
        """Return the ports from the database, or from its last answer while it does not answer. Raises SwitchError.
        `leaving`: next hops of removed backends that still have open connections, which must be encrypted too."""
        uplinks = balancer.uplinks
        try:
            found = check_ports(
                self._switch,
                uplinks.bridge,
                balancer.ports,
                datapath_id=uplinks.datapath_id,
                tunnels=balancer.tunnel_ports,
            )
            found = replace(found, unusable={**found.unusable, **misleading(balancer, found)})
            found = with_policies(self._switch, found, replace(balancer, leaving=leaving))
        except (SwitchUnreachable, CommandTimeout):
            if (known := self.remembered(balancer)) is None:
                raise
            return known
        self._known = self._switch.incarnation(uplinks.bridge), balancer, found
        return found

    def remembered(self, balancer: Balancer) -> PortCheck | None:
        """Return the last result, if it was for this bridge and for every port of the config."""
        if self._known is None:
            return None
        incarnation, asked, found = self._known
        # With thousands of backends the ports take a third of a round, and most rounds have the config of the last one.
        same = asked is balancer or (asked.uplinks == balancer.uplinks and set(balancer.ports) <= set(asked.ports))
        return found if same and incarnation == self._switch.incarnation(balancer.uplinks.bridge) else None

    def forget(self) -> None:
        """Read the database again before the next change."""
        self._known = None


_CHECK_AHEAD_S = 0.05
"""The last comparison begins this long, plus the time that planning took, before the time of a change."""
_DRAIN_S = 1.0
"""Between two rounds of a drain. Open vSwitch updates its counters about twice a second."""
_CHECK_S = 1.0
"""From an urgent round to the comparison of all flows."""
_DUMPS_BY_SERVICE = 8
"""Up to this many services are read back one by one; for more, all flows are read at once."""


class Engine:
    """Reconciles one bridge with a desired state. Its calls block, and wait for each other."""

    def __init__(
        self,
        switch: Switch,
        *,
        resolve: Callable[[Balancer], Balancer] | None = None,
        follow: Callable[[Balancer], None] | None = None,
        ports_down: Callable[[], frozenset[str]] = frozenset,
    ) -> None:
        """Bind the engine to a switch. `resolve`: fills in the MACs of backends that the config gives by address only.
        `follow`: called with the balancer of each round. `ports_down`: returns the ports without link, without waiting;
        none if the connection does not report them."""
        self.switch, self.ports_down = switch, ports_down
        self.is_held = False
        self._timed: list[Callable[[str, float], None]] = []
        self.resolve = resolve or (lambda balancer: balancer)
        self._follow = follow or (lambda _balancer: None)
        self._memory: Change | None = None
        """The last change that was made. Its `dump` is empty where only the flows of some services were read."""
        self._is_sure = True
        """Whether the bridge has the flows of `_memory`, apart from foreign changes: no apply has failed since."""
        self._quiet, self._opened = Quiet(), dict[int, int]()
        self._revalidated = frozenset[ServiceMove]()
        self._ports = Ports(switch)
        self._lock = Lock()

    @property
    def program(self) -> Program | None:
        """Return the program of the last round."""
        return None if self._memory is None else self._memory.target.program

    @property
    def balancer(self) -> Balancer | None:
        """Return the config of the last round with the MACs and source ports found for it; None before the first
        round."""
        return None if self._memory is None else self._memory.target.program.balancer

    @property
    def decided(self) -> Decision | None:
        """Return the decision of the last round; None before the first round."""
        return None if self._memory is None else self._memory.target.decision

    def hold(self, *, is_held: bool) -> None:
        """Hold changes: a round that would make one raises ChangesHeld. With False, make changes again."""
        self.is_held = is_held

    def on_timed(self, listener: Callable[[str, float], None]) -> None:
        """Call `listener` with `plan` or `apply` and its duration in seconds, in the thread of each round."""
        self._timed.append(listener)

    def forget(self) -> None:
        """Read the decision from the flows of the bridge at the next round, as after a restart."""
        self._memory = None

    def is_lost(self, bridge: str) -> bool:
        """Return whether the bridge was recreated since the last round. Costs microseconds. Raises BridgeMissing."""
        memory = self._memory_of(bridge)
        return memory is not None and self.switch.incarnation(bridge) != memory.incarnation

    def decision(self, balancer: Balancer) -> tuple[Decision, Transition]:
        """Return the decision in the current flows of the bridge. Raises SwitchError."""
        balancer = self.resolve(balancer)
        seen = tuple(self.switch.dump_flows(balancer.uplinks.bridge, only=PROGRAM))
        return read(seen, with_paths(balancer, seen))

    def known(self, balancer: Balancer) -> dict[BackendName, Fraction]:
        """Return the part (0..1) of its clients that each backend has; 0 if it is ejected. Raises SwitchError.
        `balancer`: the config with the weights of operators; backends of weight 0 are left out."""
        balancer = self.resolve(balancer)
        decided = dict(self.decision(balancer)[0].services)
        ids = service_ids(service.claim for service in every_service(balancer))
        idle = {service.name: {b.name for b in service.backends if not b.weight} for service in balancer.services}
        return {
            (service.name, owner): part
            for service in balancer.services
            if (found := decided.get(ids[service.claim])) is not None
            for owner, part in parts_served(found).items()
            if owner in next_hops(service) and owner not in idle.get(service.name, ())
        }

    def plan(self, balancer: Balancer, options: PlanOptions, *, now_s: float = 0.0) -> Change:
        """Compare a bridge with a config. Backends that the bridge shows as ejected stay ejected.

        Raises:
            SwitchError: PortsMissing and UnusablePorts before all else, unless the change may be partial.
            WouldBeUnencrypted: Packets would leave unencrypted, and the change may not be partial.
            FlowConflict: A foreign flow conflicts with a flow of xenoovs, and the change may not be partial.
            CompileError, ToleranceUnreachable: No flows can do that.
        """
        with self._lock:
            desired = DesiredState(self._with_paths(self.resolve(balancer)))
            return self._planned(desired, replace(options, as_found=True), now_s, counted=True)

    def apply(self, change: Change) -> None:
        """Send a change and read it back. First wait for megaflows that would cut connections. Raises SwitchError,
        ReadBackDiffers."""
        with self._lock:
            if not change.settled <= {(i, move.block) for i, move in self._revalidated}:
                self.switch.wait_revalidated(change.bridge)
            self._apply(change)

    def round(
        self,
        desired: DesiredState,
        *,
        now_s: float,
        urgent: bool = False,
        strict: bool = False,
        appointment: Appointment | None = None,
    ) -> Change:
        """Make the bridge right as far as possible; the rest is in the problems of the returned change.

        Args:
            desired: The state to reach.
            now_s: The time on a clock that never goes back.
            urgent: Skip the comparison, as clients wait: assume that the bridge has the flows of the last round.
            strict: Raise what `plan` raises for a problem that the last round did not have.
            appointment: When to change the bridge; at once if it is None or has passed.

        Raises:
            SwitchError, CompileError, ToleranceUnreachable, ChangesHeld, AppointmentCancelled.
        """
        begun_s = time.monotonic()
        with self._lock:
            desired = replace(desired, balancer=self._with_paths(self.resolve(desired.balancer)))
            self._follow(desired.balancer)
            is_ahead = appointment is not None and bool(appointment.left_s)
            change = self._planned(desired, PlanOptions(partial=True), now_s, urgent=urgent, is_ahead=is_ahead)
            known = self._memory_of(change.bridge)
            if strict and not set(change.problems) <= set(known.problems if known else ()):
                self._planned(desired, PlanOptions(), now_s)
            if self.is_held and not change.difference.is_empty:
                raise ChangesHeld(flow_mods=change.difference.flow_mods)
            planning_s = time.monotonic() - begun_s
            try:
                self._make(change, appointment, planning_s=planning_s)
            except BundleRejected:
                # The database knows by now of a port that has gone meanwhile.
                self._ports.forget()
                change = self._planned(desired, PlanOptions(partial=True), now_s)
                self._make(change, appointment, planning_s=planning_s)
            return change

    def count_drains(self, *, now_s: float) -> float:
        """Observe what drains depend on: revalidation, and the packets of old backends. Delete expired learned flows.

        Dumps of many connections and revalidation on a slow switch take seconds; no round waits for them. The program
        of that time judges the counters, as a round may have begun or ended drains meanwhile. Return for how many
        seconds dumps kept the switch busy. Raises SwitchError.
        """
        memory = self._memory
        if memory is None or not memory.target.transition.services:
            return 0.0
        begun_s, bridge, settling = time.monotonic(), memory.bridge, settling_moves(memory.target.transition)
        # Counters of flows are those of the last revalidation: without one, silence proves nothing.
        self.switch.wait_revalidated(bridge)
        dumping_s = time.monotonic()
        learned = self.switch.dump_flows(bridge, only=LEARNED)
        seen = (*self.switch.dump_flows(bridge, only=PROGRAM), *learned)
        with self._lock:
            memory = self._memory_of(bridge)
            read_s = time.monotonic()
            if memory is None or not memory.target.transition.services:
                return read_s - dumping_s
            self._revalidated = settling & settling_moves(memory.target.transition)
            program = memory.target.program
            self._opened = opened_connections(program, (each.flow for each in learned))
            self._quiet = self._quiet.after(old_packets(program, seen), asked_s=now_s, read_s=now_s + read_s - begun_s)
            left = leftover(program, (each.flow for each in learned), _dead(memory.target.desired))
            if left:
                self.switch.apply(bridge, bundle_of(Plan((), (), left, 0)))
        return read_s - dumping_s

    def _with_paths(self, balancer: Balancer) -> Balancer:
        """Return the balancer with the source ports of paths; a port not found yet is as on the bridge."""
        if not unknown_paths(balancer):
            return balancer
        memory = self._memory_of(balancer.uplinks.bridge)
        if memory is not None:
            return with_source_ports(balancer, dict(memory.asked.balancer.source_ports) | dict(balancer.source_ports))
        return with_paths(balancer, self.switch.dump_flows(balancer.uplinks.bridge, only=PROGRAM))

    def _planned(
        self,
        desired: DesiredState,
        options: PlanOptions,
        now_s: float,
        *,
        urgent: bool = False,
        is_ahead: bool = False,
        counted: bool = False,
    ) -> Change:
        """Return the change to make. `desired`, `options`, `now_s`, `urgent`: as of `round`. `is_ahead`: skip the
        comparison too, as it follows before the time of the change. `counted`: read the counters that estimate the cost
        of drains."""
        with self._timing("plan"):
            bridge = desired.balancer.uplinks.bridge
            memory, incarnation = self._memory_of(bridge), self.switch.incarnation(bridge)
            lost = memory is not None and memory.incarnation != incarnation
            can_believe = (urgent or is_ahead) and memory is not None and not lost and self._is_sure
            believed = self._ports.remembered(desired.balancer) if can_believe else None
            if believed is not None and memory is not None:
                dump, found, ports = "", Comparison(memory.target), believed
            else:
                dump, guess, ports = self._observe(desired, memory, options)
                known = None if lost or ports.is_obstructed else memory
                is_met = known is not None and known.is_met(desired, dump)
                found = Comparison(guess) if is_met else compare(dump, guess)
                # The last round has perhaps not read all flows.
                if known is not None and not found.touched and known.done(dump).is_met(desired, dump):
                    return replace(known.done(dump), unchecked=ports.unchecked, unread_policies=ports.unread_policies)
                found = self._aged(found, bridge) if memory is None else found
            quiet = self._quiet.blocks(found.guess.program)
            # `apply` waits for revalidation; a round does not, as clients of other backends may wait for it.
            revalidated = None if counted else self._revalidated
            at = Circumstances(now_s, ports, quiet, revalidated, remembers=memory is not None, lost=lost)
            change = step(desired, found, options, at)
            if not options.partial:
                ports.require_encrypted(is_changed=not change.difference.is_empty)
            change = replace(
                change,
                dump=dump,
                incarnation=incarnation,
                ovn=ports.state.ovn,
                unchecked=ports.unchecked,
                unread_policies=ports.unread_policies,
            )
            return self._with_drains(self._beside_others(change, options), at, urgent=urgent, counted=counted)

    def _observe(
        self, desired: DesiredState, memory: Change | None, options: PlanOptions
    ) -> tuple[str, Target, PortCheck]:
        """Return the flows of the bridge as text, the expected target, and its ports."""
        balancer = desired.balancer
        leaving = () if memory is None else memory.target.program.balancer.leaving
        if memory is not None and options.partial:
            dump = self.switch.dump_flow_text(memory.bridge, only=PROGRAM)
            # A tunnel can lead elsewhere, and a policy of IPsec vanish, while flows stay as they are.
            can_remember = memory.is_met(desired, dump) and not balancer.tunnel_ports
            remembered = self._ports.remembered(balancer) if can_remember else None
            return dump, memory.target, remembered or self._ports.check(balancer, leaving)

        def read_switch() -> tuple[str, PortCheck]:
            ports = self._ports.check(balancer, leaving)
            if not options.partial:
                ports.require()
            return self.switch.dump_flow_text(balancer.uplinks.bridge, only=PROGRAM), ports

        with ThreadPoolExecutor(max_workers=1) as reader:
            # The switch answers while the config is compiled.
            reading = reader.submit(read_switch)
            try:
                guess = fresh(desired) if memory is None else memory.target
            finally:
                dump, ports = reading.result()
        return dump, guess, ports

    def _aged(self, found: Comparison, bridge: str) -> Comparison:
        """Return the comparison with the ages of flows and the connections, if drains are under way."""
        if not any(map(is_of_drain, found.flows)):
            return found
        aged = self.switch.dump_flows(bridge, only=PROGRAM)
        aged = tuple(seen for seen in aged if service_of(seen.flow.cookie) in found.touched)
        learned = (seen.flow for seen in self.switch.dump_flows(bridge, only=LEARNED))
        hops = frozenset((service_of(flow.cookie), hop_of(flow.actions)) for flow in learned)
        return replace(found, aged=aged, learned=hops)

    def _beside_others(self, change: Change, options: PlanOptions) -> Change:
        """Return the change with the conflicts with foreign flows. Raises FlowConflict."""
        if change.difference.added and self.switch.count_flows(change.bridge, only=FOREIGN):
            change = beside(change, (seen.flow for seen in self.switch.dump_flows(change.bridge, only=FOREIGN)))
        found = change.difference.blocked
        if found and not options.partial:
            change.difference.require_free()
        return replace(
            change, problems=(*change.problems, *blocked(found)), foreign=max(0, change.foreign - len(found))
        )

    def _with_drains(self, change: Change, at: Circumstances, *, urgent: bool, counted: bool) -> Change:
        if not change.target.transition.services:
            return replace(change, next_s=_CHECK_S) if urgent else change
        state = at.ports.state
        idle_s = MAX_IDLE_S if state.max_idle_ms is None else state.max_idle_ms / 1000
        least_s = settle_s(state.max_revalidator_ms)
        seen, opened = (self.switch.dump_flows(change.bridge), None) if counted else ((), self._opened)
        drains = drains_of(change.program, seen, now_s=at.now_s, least_settle_s=least_s, idle_s=idle_s, opened=opened)
        waits = (_DRAIN_S, *(each.left_s for each in drains), *(each.settles_s or _DRAIN_S for each in drains))
        return replace(change, drains=drains, next_s=min(waits))

    def _make(self, change: Change, appointment: Appointment | None, *, planning_s: float) -> None:
        """Make a change, at its appointment if there is one."""
        if appointment is None or not appointment.left_s or change.difference.is_empty:
            self._apply(change)
        else:
            self._apply_at(change, appointment, planning_s=planning_s)

    def _apply_at(self, change: Change, appointment: Appointment, *, planning_s: float) -> None:
        """Prepare a change, and commit it at its time if the bridge has not changed since the plan.

        Args:
            planning_s: How long the plan took. The second comparison begins that long before the time.

        Raises:
            AppointmentCancelled: It was cancelled, or the bridge has changed since. Nothing was done. SwitchError.
        """
        with self.switch.prepared(change.bridge, change.bundle) as commit:
            counts = self._counts(change.bridge)
            if not (
                self._is_as_planned(change, counts)
                and appointment.wait(ahead_s=planning_s + _CHECK_AHEAD_S)
                and self._is_as_planned(change, counts)
                and appointment.wait()
            ):
                raise AppointmentCancelled
            if self.is_held:
                raise ChangesHeld(flow_mods=change.difference.flow_mods)
            self._apply(change, commit)

    def _counts(self, bridge: str) -> tuple[int, int]:
        """Return the numbers of flows of the program and of foreign flows on a bridge."""
        return self.switch.count_flows(bridge, only=PROGRAM), self.switch.count_flows(bridge, only=FOREIGN)

    def _is_as_planned(self, change: Change, counts: tuple[int, int]) -> bool:
        """Return whether a change still fits the bridge; if not, the next round compares all.

        It fits if the bridge is the same, the services that change have the flows of the plan, and the numbers of flows
        are still `counts`. The change leaves other differences alone, and the next comparison finds them.
        """
        bridge, texts = change.bridge, {i: dict[str, Flow]() for i in change.touched}
        for flow in change.observed:
            if (service_id := service_of(flow.cookie)) in texts:
                texts[service_id][render_flow(flow)] = flow
        if (
            self.switch.incarnation(bridge) == change.incarnation
            and self._counts(bridge) == counts
            and self._compared(change, {**change.target.texts, **texts})[1].is_empty
        ):
            return True
        self._is_sure = False
        return False

    def _apply(self, change: Change, commit: Callable[[], None] | None = None) -> None:
        """Make a change and read it back. `commit`: makes one that is prepared."""
        dump = change.dump
        self._is_sure = False
        if not change.difference.is_empty:
            with self._timing("apply"):
                if commit is None:
                    self.switch.apply(change.bridge, change.bundle)
                else:
                    commit()
                dump = self._read_back(change)
        self._memory = change.done(dump)
        self._is_sure = True
        if not change.target.transition.services:
            self._quiet, self._opened, self._revalidated = Quiet(), {}, frozenset()

    def _read_back(self, change: Change) -> str:
        """Compare the changed services. Return the text of all flows if all were read. Raises ReadBackDiffers."""
        dump, wrong = self._compared(change, change.target.texts)
        if not wrong.is_empty:
            raise ReadBackDiffers(bridge=change.bridge, flows=wrong.flow_mods)
        return dump

    def _compared(self, change: Change, texts: Texts) -> tuple[str, Plan]:
        """Return the text of all flows, if all were read, and the plan from the flows of the changed services to
        `texts`."""
        bridge, dump = change.bridge, ""
        if len(change.touched) > _DUMPS_BY_SERVICE:
            dump = self.switch.dump_flow_text(bridge, only=PROGRAM)
            seen = recognise(dump, flattened(texts))
        else:
            only = tuple(cookie for i in sorted(change.touched) for cookie in of_service(i))
            wanted = flattened({i: texts.get(i, {}) for i in change.touched})
            seen = recognise(self.switch.dump_flow_text(bridge, only=only), wanted)
        blocked_keys = {flow.key for flow in change.difference.blocked}
        return dump, plan((flow for flow in seen.missing.values() if flow.key not in blocked_keys), seen.others)

    def _memory_of(self, bridge: str) -> Change | None:
        """Return the change of the last round, if it was on this bridge."""
        memory = self._memory
        return memory if memory is not None and memory.bridge == bridge else None

    @contextmanager
    def _timing(self, what: str) -> Iterator[None]:
        begun_s = time.perf_counter()
        yield
        for listener in self._timed:
            listener(what, time.perf_counter() - begun_s)


def _dead(desired: DesiredState) -> dict[int, frozenset[NextHop]]:
    """Return the next hops of ejected backends, by service id."""
    ids = service_ids(service.claim for service in every_service(desired.balancer))
    return {
        ids[service.claim]: frozenset(
            hop for name, hop in next_hops(service).items() if name in desired.ejected.get(service.name, ())
        )
        for service in desired.balancer.services
    }


# The drains of a change, each step of which is planned and applied.


_PATIENCE_S = 60.0
"""How long rounds may fail with retryable errors: a busy Open vSwitch answers later, and nothing is lost until then."""


class DrainRounds:
    """A change and the rounds that its drains need after it."""

    def __init__(self, engine: Engine, balancer: Balancer, options: PlanOptions, change: Change) -> None:
        self._engine, self._balancer, self._options, self._change = engine, balancer, options, change
        self._failed_s: float | None = None

    @property
    def drains(self) -> tuple[Draining, ...]:
        return self._change.drains

    @property
    def next_s(self) -> float | None:
        """Seconds until the next round; None if no drain is left."""
        return (self._change.next_s or 1.0) if self.drains else None

    def run_next(self) -> None:
        """Plan again and apply the difference. A retryable error is ignored for a minute. Raises what Engine.plan and
        Engine.apply raise."""
        try:
            self._run_next()
            self._failed_s = None
        except XenoovsError as error:
            now_s = time.monotonic()
            self._failed_s = now_s if self._failed_s is None else self._failed_s
            if not error.retryable or now_s - self._failed_s > _PATIENCE_S:
                raise

    def _run_next(self) -> None:
        self._engine.count_drains(now_s=time.monotonic())
        # Another process may change other services meanwhile, so the flows are read again.
        self._engine.forget()
        self._change = self._engine.plan(self._balancer, self._options, now_s=time.monotonic())
        # Also if nothing differs: the engine counts the packets of drains that it has applied.
        self._engine.apply(self._change)


# What IPsec leaves in the clear.


def misleading(balancer: Balancer, found: PortCheck) -> dict[str, str]:
    """Return the tunnel ports that lead elsewhere or unencrypted, each with the reason."""
    reasons, used = dict[str, str](), set(balancer.tunnel_ports)
    for wanted in wanted_ports(balancer) if balancer.switch_tunnels else ():
        state = found.state.port(wanted.name)
        if wanted.name not in used or state is None or wanted.name in found.unusable or state.type == UNKNOWN_TYPE:
            continue
        if state.type != wanted.type:
            reason: str | None = f"is of type {state.type}, not {wanted.type}"
        else:
            reason = wanted.misleads(state.options)
        if reason is not None:
            reasons[wanted.name] = f"{reason}: `xenoovs doctor FILE --fix` corrects it"
    return reasons


def with_policies(switch: Switch, found: PortCheck, balancer: Balancer) -> PortCheck:
    """Return the ports with the remotes to which packets would leave unencrypted, against a policy or the config.

    If the policies cannot be read, it has no remotes, but the reason if the config requires IPsec. A tunnel with
    `ipsec: {offload: none}` or `crypto` is encrypted by the CPU, so the NIC's policies do not matter. A userspace
    datapath never encrypts, whatever the policies are.
    """
    is_userspace = found.is_userspace
    passes_kernel = not (is_userspace or found.state.hw_offload)
    # A port that cannot be used has its own reason.
    usable = {port.name for port in found.state.ports} - found.missing.keys() - found.unusable.keys()
    ends = tuple(end for end in balancer.remote_ends if end.port in usable)
    wanted = tuple(end for end in ends if end.tunnel.ipsec is not None)
    past_kernel = () if passes_kernel else tuple(end for end in ends if not end.tunnel.is_encrypted_by_cpu)
    if is_userspace:
        found = replace(found, uncovered=tuple(dict.fromkeys((end.port, end.remote) for end in wanted)))
        wanted, past_kernel = (), tuple(end for end in past_kernel if end not in wanted)
    outers = {end: encapsulation_to(end) for end in (*wanted, *past_kernel)}
    if not outers:
        return found
    # Imported here: most configs have no tunnels.
    from xenoovs.datapath.ipsec import EncapsulationUse, cleartext, uncovered

    state = switch.read_ipsec(tuple(dict.fromkeys(outers.values())))
    if isinstance(state, Unknown):
        return replace(found, unread_policies=state.reason if wanted else "")
    uses = {end: EncapsulationUse(outer, 0, 0, is_userspace) for end, outer in outers.items()}
    clear = {(end.port, end.remote): cleartext((uses[end],), state) for end in past_kernel}
    return replace(
        found,
        unencrypted={end: f"({each.policy}): {each.reason}" for end, each_of in clear.items() for each in each_of},
        uncovered=(
            *found.uncovered,
            *dict.fromkeys((end.port, end.remote) for end in wanted if uncovered((uses[end],), state)),
        ),
    )


# A time at which a change is made.


class Appointment:
    """A time that a round waits for in its thread, unless it is cancelled. `at_s`: on the clock of
    `time.monotonic()`."""

    def __init__(self, at_s: float) -> None:
        self.at_s = at_s
        self._cancelled = Event()

    def cancel(self) -> None:
        """End the wait. The round makes no change, and the next one plans again."""
        self._cancelled.set()

    @property
    def left_s(self) -> float:
        """Return the seconds until then; 0 if it has come."""
        return max(0.0, self.at_s - time.monotonic())

    def wait(self, *, ahead_s: float = 0.0) -> bool:
        """Wait until `ahead_s` seconds before it. Return False if it was cancelled."""
        return not self._cancelled.wait(max(0.0, self.left_s - ahead_s))
