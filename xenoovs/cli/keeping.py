"""What makes the agent's rounds, by either way to the switch, and what wakes them up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from xenoovs.cli.options import connect
from xenoovs.cli.via import Control, serving

if TYPE_CHECKING:
    from xenoovs.agent.reconcile import Reconciler
    from xenoovs.model.balancer import Balancer
    from xenoovs.switch.live import LiveSwitch

_ONCE_PATIENCE_S = 30.0
"""How long `agent --once` waits for the bridge to connect."""

_DB_PATIENCE_S = 2.0
"""How long a round waits for the database, of which it can do without what it knows from before."""

OnChange = Callable[[Callable[[], None]], None]
"""Takes what to call, in any thread, when something has happened at the switch."""

Resolve = Callable[["Balancer"], "Balancer"]


@dataclass(frozen=True, slots=True)
class Way:
    """Which Open vSwitch of this host is meant (--db, --lab), and whether one round is all there will be."""

    db: str | None
    lab: str | None
    once: bool = False


@contextmanager
def reconciling(
    bridge: str, way: Way, control: Control | None, *, resolve: Resolve
) -> Iterator[tuple[Reconciler, OnChange]]:
    """Until the end of the `with`. `control`: how bridges connect to us; None: by ovs-ofctl.

    `resolve`: as of Reconciler.

    Raises click.UsageError, FrameworkMissing, FrameworkUnusable, CannotListen, SwitchError.
    """
    from xenoovs.agent.reconcile import Reconciler
    from xenoovs.agent.told import LinkReconciler

    local = replace(connect(way.db, way.lab), db_timeout_s=_DB_PATIENCE_S)
    if control is None:
        yield Reconciler(local, resolve=resolve), lambda _wake: None
        return
    here = local if control.attach or way.db or way.lab or _has(local, bridge) else None
    with serving(control, bridge, here) as server:
        from xenoovs.controller.switch import ControllerSwitch

        _look_at_fail_mode(here, bridge)
        switch = ControllerSwitch(server.board, here, _ONCE_PATIENCE_S if way.once else 0.0)
        board, responder = server.board, server.responder
        links = LinkReconciler(switch, board.ports_down, follow=responder.follow, resolve=resolve)
        yield links, board.on_change


def wake(events: asyncio.AbstractEventLoop, want_round: Callable[[], None]) -> None:
    """From any thread; the loop may have ended by then."""
    try:
        events.call_soon_threadsafe(want_round)
    except RuntimeError:
        return


def _look_at_fail_mode(here: LiveSwitch | None, bridge: str) -> None:
    """Tell of flows that would go with the controller. Nothing is said of a bridge that cannot be looked at."""
    from xenoovs.agent.log import warn
    from xenoovs.errors import SwitchError

    try:
        fail_mode = "secure" if here is None else here.describe(bridge).fail_mode
    except SwitchError:
        return
    if fail_mode != "secure":
        remedy = f"ovs-vsctl set-fail-mode {bridge} secure"
        warn("without this controller the bridge will forget its flows", fail_mode=fail_mode, remedy=remedy)


def _has(local: LiveSwitch, bridge: str) -> bool:
    """Whether this host has a bridge of the name: mostly the one that will connect, which is looked at then."""
    return bridge in local.endpoint.bridges_with_socket() if local.endpoint.rundir is not None else False
