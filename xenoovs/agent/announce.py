"""Decides whether this host should get clients, and announces VIPs while their services work.

Pure functions decide: `not_ready` is the answer of `GET /ready` to the check of a BGP speaker, and `decide_vips`
returns the VIPs that get a route. A task sets the routes.

Routes are level-triggered, like flows: after each round, and every few seconds, they are read and compared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from xenoovs.agent.state import AgentState, Announcements, RoundFacts
from xenoovs.agent.state_store import StateStore
from xenoovs.agent.tasks import within
from xenoovs.dataclass import dataclass, replace
from xenoovs.errors import SwitchError, problem_of
from xenoovs.log import info, warn
from xenoovs.model.address import Vip, prefix_text
from xenoovs.model.balancer import AgentExit, Announce, Balancer
from xenoovs.show.snapshot import AnnouncementView

if TYPE_CHECKING:
    from xenoovs.switch.vip_routes import VipRoutes

GRACE_S = 3.0
"""How long rounds may fail until this host is not ready. A restart of Open vSwitch takes a second."""
_CHECK_S = 5.0
"""Time between two comparisons of the routes without a round."""
_BGP_SOON_S, _BGP_S = 1.0, 10.0
"""Delay of a request to the BGP speaker after a change, and the time between two requests."""


@dataclass(frozen=True, slots=True)
class VipDecision:
    """Whether a VIP gets a route, and the reason if it gets none. None: it stays as it is, because what is right is not
    known."""

    has_route: bool | None
    reason: str = ""


def not_ready(state: AgentState, now_s: float) -> str:
    """Return why this host should get no clients; empty if it is ready."""
    if state.fleet is not None and state.fleet.withheld:
        return state.fleet.withheld
    return bridge_problem(state, now_s) if state.round.is_known else "no round has succeeded since the start"


def bridge_problem(state: AgentState, now_s: float) -> str:
    """Return why the bridge cannot serve clients; empty if it can."""
    last, ports = state.round, state.ports.of(state.balancer.uplinks.bridge) or {}
    if last.failing_since_s is not None and now_s - last.failing_since_s >= GRACE_S:
        return f"reconcile fails: {last.error}"
    # The state of links comes from the switch or its database.
    down = state.ports_down.union(last.without, (port.name for port in ports.values() if port.link_up is False))
    return "no ingress port has a link" if down.issuperset(state.balancer.uplinks.ingress) else ""


def decide_vips(balancer: Balancer, state: AgentState, now_s: float) -> dict[Vip, VipDecision]:
    """Return the decision for each VIP. If services share a VIP, one that serves is enough. `balancer`: the config
    whose flows the bridge has."""
    last, everywhere = state.round, None
    if state.runtime.is_paused and state.runtime.is_withdrawn:
        everywhere = VipDecision(
            has_route=False, reason="`xenoovs pause --withdraw`; `xenoovs pause --end` brings it back"
        )
    elif problem := ("" if state.fleet is None else state.fleet.withheld) or bridge_problem(state, now_s):
        everywhere = VipDecision(has_route=False, reason=problem)
    elif not last.is_known or last.failing_since_s is not None:
        everywhere = VipDecision(has_route=None, reason=last.error if last.is_known else "starting")
    serving, found = serving_services(last), dict[Vip, VipDecision]()
    for vip, names in balancer.announced_vips.items():
        if everywhere is not None:
            found[vip] = everywhere
        elif serving.isdisjoint(names):
            found[vip] = VipDecision(has_route=False, reason=f"no backend of {', '.join(names)} serves")
        elif last.held:
            found[vip] = VipDecision(has_route=None, reason="paused, and the flows are not as configured")
        else:
            found[vip] = VipDecision(has_route=True)
    return found


def serving_services(last: RoundFacts) -> frozenset[str]:
    """Return the services that have, as of the last round, a backend that has clients on the bridge and answers."""
    found, unreachable = set[str](), last.unreachable
    if last.program is None or last.desired is None:
        return frozenset()
    for made in last.program.services:
        name = made.service.name
        down = last.desired.ejected.get(name, frozenset()) | last.desired.held.get(name, frozenset())
        shares = zip(made.service.backends, made.shares, strict=True)
        if any(share and each.name not in down and (name, each.name) not in unreachable for each, share in shares):
            found.add(name)
    return frozenset(found)


BgpReader = Callable[[Iterable[Vip]], Mapping[Vip, tuple[str, ...] | None]]
"""Returns the neighbours to which the BGP speaker advertises VIPs; None for one that it does not take. Blocks; raises
SwitchError."""


class Announcer:
    """Sets the routes of one agent's VIPs, and reads from the BGP speaker whether it advertises them."""

    def __init__(self, store: StateStore, routes: VipRoutes, read_bgp: BgpReader) -> None:
        self._store, self._routes, self._read_bgp = store, routes, read_bgp
        self._views: dict[Vip, AnnouncementView] = {}
        self._bgp: Mapping[Vip, tuple[str, ...] | None] = {}
        self._bgp_problem = self._problem = ""
        self._news, self._ask = store.watch("round", "ports", "fleet"), asyncio.Event()
        self._is_open: bool | None = None

    def _publish(self) -> None:
        shown = Announcements(tuple(self._with_bgp(vip, view) for vip, view in self._views.items()))
        if shown != self._store.state.vips:
            self._store.dispatch(shown)

    async def run(self) -> None:
        """Compare and set the routes after each round, and every few seconds, until cancelled."""
        try:
            while True:
                self._news.clear()
                state = self._store.state
                # The config whose flows the bridge has: an earlier one while a pause holds changes back.
                await self._step(state.balancer if state.round.program is None else state.round.program.balancer)
                self._publish()
                with suppress(asyncio.TimeoutError):
                    await within(_CHECK_S, self._news.wait())
        finally:
            self._routes.release()

    async def _step(self, balancer: Balancer) -> None:
        announce = balancer.announce
        if announce is None and self._is_open is False:
            return
        try:
            if announce is None:
                # This removes routes of an earlier agent with another config too.
                await asyncio.to_thread(self._routes.close)
                self._is_open, self._views, self._problem = False, {}, ""
            else:
                self._is_open = True
                decisions = decide_vips(balancer, self._store.state, self._store.now_s())
                found = await asyncio.to_thread(self._set, announce, decisions)
                self._show(decisions, found)
        except Exception as error:  # noqa: BLE001 - otherwise this task would end, and withdraw all VIPs.
            self._failed(str(problem_of(error)), balancer)

    def _set(self, announce: Announce, decisions: Mapping[Vip, VipDecision]) -> frozenset[Vip]:
        self._routes.open(ends_with_process=announce.on_agent_exit is AgentExit.WITHDRAW)
        found = self._routes.read()
        desired = {
            vip for vip, each in decisions.items() if each.has_route or (each.has_route is None and vip in found)
        }
        if desired == found:
            return found
        return self._routes.change(add=desired - found, remove=found - desired)

    def _show(self, decisions: Mapping[Vip, VipDecision], found: frozenset[Vip]) -> None:
        if self._problem:
            info("routes of VIPs can be set again")
        before, self._problem = self._views, ""
        self._views = {
            vip: AnnouncementView(str(vip), is_announced=vip in found, reason="" if vip in found else each.reason)
            for vip, each in decisions.items()
        }
        for vip, view in self._views.items():
            was = before.get(vip)
            if view.is_announced and not (was and was.is_announced):
                info("VIP announced", vip=vip)
            elif not view.is_announced and was and was.is_announced:
                warn("VIP withdrawn", vip=vip, reason=view.reason)
        for vip in before.keys() - self._views.keys():
            info("VIP withdrawn", vip=vip, reason="the config does not announce it any more")
        if {vip for vip, view in self._views.items() if view.is_announced} != set(self._bgp):
            self._ask.set()

    def _failed(self, problem: str, balancer: Balancer) -> None:
        if problem != self._problem:
            warn("routes of VIPs cannot be set; retrying", reason=problem)
        self._problem = problem
        before = self._views
        self._views = {
            vip: replace(before.get(vip, AnnouncementView(str(vip), is_announced=False)), problem=problem)
            for vip in balancer.announced_vips
        }

    async def follow_bgp(self) -> None:
        """Read the state of the BGP speaker, which may hang, in a separate task, until cancelled."""
        while True:
            vips = [vip for vip, view in self._views.items() if view.is_announced]
            problem = ""
            try:
                self._bgp = await asyncio.to_thread(self._read_bgp, vips) if vips else {}
            except SwitchError as error:
                problem, self._bgp = str(error), {}
            if problem and problem != self._bgp_problem:
                warn("the BGP speaker cannot be asked; the routes stay set", reason=problem)
            self._bgp_problem = problem
            self._publish()
            self._ask.clear()
            with suppress(asyncio.TimeoutError):
                await within(_BGP_S, self._ask.wait())
                await asyncio.sleep(_BGP_SOON_S)

    def _with_bgp(self, vip: Vip, view: AnnouncementView) -> AnnouncementView:
        if not view.is_announced or view.problem:
            return view
        if vip not in self._bgp:
            unknown = f"it is unknown whether FRR advertises it: {self._bgp_problem}" if self._bgp_problem else ""
            return replace(view, problem=unknown)
        if (peers := self._bgp[vip]) is None:
            family = f"ipv{vip.version} unicast"
            return replace(
                view,
                peers=0,
                problem="bgpd does not take the route: it needs `redistribute kernel` in `address-family "
                f"{family}`, or `network {prefix_text(vip)}`",
            )
        problem = "" if peers else "bgpd advertises it to no neighbor: no session is up, or a route-map denies it"
        return replace(view, peers=len(peers), problem=problem)
