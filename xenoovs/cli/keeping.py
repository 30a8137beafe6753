"""What makes the rounds of agents, by either way to the switch, and what wakes them up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from xenoovs.cli.options import connect
from xenoovs.cli.via import Control, serving

if TYPE_CHECKING:
    from xenoovs.controller.server import Post
    from xenoovs.controller.switch import ControllerSwitch
    from xenoovs.engine.engine import Engine
    from xenoovs.model.balancer import Balancer, Uplinks
    from xenoovs.switch.api import BridgeState, PortState
    from xenoovs.switch.live import LiveSwitch

_ONCE_PATIENCE_S = 30.0
"""How long `agent --once` waits for the bridge to connect."""

_DB_PATIENCE_S = 2.0
"""How long a round waits for the database, of which it can do without what it knows from before."""

OnChange = Callable[[Callable[[], None]], None]
"""Takes what to call, in any thread, when something has happened at the switch."""

Resolve = Callable[["Balancer"], "Balancer"]

Reach = Callable[["Uplinks", Resolve], "Reached"]
"""The way to one bridge. `Resolve`: as of Engine."""


@dataclass(frozen=True, slots=True)
class Reached:
    """The engine of one bridge, and what wakes its rounds up.

    Attributes:
        ports: Ports by name, while the bridge reports them; None: it does not.
    """

    engine: Engine
    on_change: OnChange
    ports: Callable[[], dict[str, PortState] | None] | None = None


@dataclass(frozen=True, slots=True)
class Way:
    """Which Open vSwitch of this host is meant (--db, --lab), and whether one round is all there will be."""

    db: str | None
    lab: str | None
    once: bool = False


@contextmanager
def reaching(wanted: tuple[Uplinks, ...], way: Way, control: Control | None) -> Iterator[Reach]:
    """Until the end of the `with`. `control`: how bridges connect to us; None: at the management socket.

    Raises click.UsageError, FrameworkMissing, FrameworkUnusable, CannotListen, SwitchError.
    """
    from xenoovs.engine.engine import Engine

    local = replace(connect(way.db, way.lab), db_timeout_s=_DB_PATIENCE_S)
    if control is None:
        yield lambda _uplinks, resolve: Reached(Engine(local, resolve=resolve), lambda _wake: None)
        return
    is_named = control.attach or bool(way.db or way.lab)
    here = {uplinks: local if is_here(local, uplinks, is_named=is_named) else None for uplinks in wanted}
    with serving(control, here) as server:
        # What imports os-ken comes last: without it the user is told how to get it.
        from xenoovs.controller.switch import ControllerSwitch

        patience_s = _ONCE_PATIENCE_S if way.once else 0.0

        def reach(uplinks: Uplinks, resolve: Resolve) -> Reached:
            _look_at_fail_mode(here[uplinks], uplinks)
            post = server.want(uplinks.bridge, uplinks.datapath_id)
            return reach_by(post, ControllerSwitch(server.board, here[uplinks], patience_s, post.place), resolve)

        yield reach


def reach_by(post: Post, switch: ControllerSwitch, resolve: Resolve) -> Reached:
    """The way to a bridge that connects to us."""
    from xenoovs.controller.switch import port_states
    from xenoovs.engine.engine import Engine

    place, responder = post.place, post.responder
    engine = Engine(switch, resolve=resolve, follow=responder.follow, ports_down=lambda: place.ports_down)
    return Reached(engine, place.on_change, lambda: port_states(place.lines))


def is_here(local: LiveSwitch, uplinks: Uplinks, *, is_named: bool) -> bool:
    """Whether a bridge is taken to be of this host. `is_named`: the user has named its Open vSwitch.

    By its name it mostly is; one of another datapath id is known when it connects.
    """
    has_one = local.endpoint.rundir is not None and uplinks.bridge in local.endpoint.bridges_with_socket()
    return has_one or (is_named and uplinks.datapath_id is None)


def wake(events: asyncio.AbstractEventLoop, want_round: Callable[[], None]) -> None:
    """From any thread; the loop may have ended by then."""
    try:
        events.call_soon_threadsafe(want_round)
    except RuntimeError:
        return


def _look_at_fail_mode(here: LiveSwitch | None, uplinks: Uplinks) -> None:
    """Tell of flows that would go with the controller. Nothing is said of a bridge that cannot be looked at."""
    from xenoovs.agent.log import warn
    from xenoovs.errors import SwitchError

    try:
        state = None if here is None else here.describe(uplinks.bridge)
    except SwitchError:
        return
    if state is None or state.fail_mode == "secure" or not is_of_datapath(state, uplinks):
        return
    facts = {"fail_mode": state.fail_mode, "remedy": f"ovs-vsctl set-fail-mode {uplinks.bridge} secure"}
    warn("without this controller the bridge will forget its flows", bridge=uplinks.label, **facts)


def is_of_datapath(state: BridgeState, uplinks: Uplinks) -> bool:
    """Whether it is the bridge that is meant, and not one of the same name on another host."""
    return uplinks.datapath_id is None or state.datapath_id == f"{uplinks.datapath_id:016x}"
