"""The two ways to the switch: its own tools, or a bridge that connects to the controller. Options and wiring."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

import click

from xenoovs.cli.options import connect

if TYPE_CHECKING:
    import asyncio

    from xenoovs.controller.bridge import Place
    from xenoovs.controller.listen import Address, Certificates
    from xenoovs.controller.server import Post, Server, Settings
    from xenoovs.controller.switch import ControllerSwitch
    from xenoovs.engine.engine import Engine
    from xenoovs.errors import SwitchError
    from xenoovs.model.balancer import Balancer, Uplinks
    from xenoovs.switch.api import BridgeState, PortState
    from xenoovs.switch.live import LiveSwitch


Command = TypeVar("Command", bound=Callable[..., object])

_FIRST_PATIENCE_S = 2.0
_DEFAULT_LISTEN = "127.0.0.1:6653"
_SHARED = ("listen", "tls_key", "tls_cert")
"""Options that have a default, or another use too."""

_OPTIONS = (
    click.option(
        "--via",
        type=click.Choice(["ofctl", "controller"]),
        default="ofctl",
        show_default=True,
        help="Reach the bridge at its management socket, as ovs-ofctl does, or be its controller.",
    ),
    click.option(
        "--listen",
        metavar="ADDRESS:PORT",
        default=_DEFAULT_LISTEN,
        show_default=True,
        help="Controller: where bridges connect. Beyond this host TLS is needed.",
    ),
    click.option(
        "--datapath-id",
        metavar="ID",
        callback=lambda _context, _parameter, value: None if value is None else parse_datapath_id(value),
        help="Controller: let in only the bridge with this datapath id (16 hexadecimal digits). The same as "
        "switch.datapath_id in the config.",
    ),
    click.option(
        "--tls-ca",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Controller: authority of the switches (PEM).",
    ),
    click.option(
        "--attach",
        is_flag=True,
        help="Controller: tell the bridge on this host to connect here, and to keep its flows when the controller "
        "is gone (fail_mode=secure). Open vSwitch drops all flows once when a bridge gets its first controller.",
    ),
    click.option(
        "--redundant",
        is_flag=True,
        help="Controller: share the bridge with others; one is master, the rest stand by.",
    ),
)


@dataclass(frozen=True, slots=True)
class Control:
    """What the options of a controller say."""

    listen: str
    datapath_id: int | None
    tls_key: Path | None
    tls_cert: Path | None
    tls_ca: Path | None
    attach: bool
    redundant: bool


def via_options(command: Command) -> Command:
    """--via, and what concerns `--via controller`: --listen, --datapath-id, --tls-ca, --attach, --redundant.

    `control_of` reads their values and those of --tls-key and --tls-cert.
    """
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def control_of(options: dict[str, object]) -> Control | None:
    """From the values of `via_options`; None: at the management socket. Raises click.UsageError."""
    values = {name: options[name] for name in Control.__dataclass_fields__}
    if options["via"] == "controller":
        return Control(**values)  # type: ignore[arg-type]
    given = [name for name, value in values.items() if value and name not in _SHARED]
    if given:
        raise click.UsageError(f"--{given[0].replace('_', '-')} needs --via controller.")
    return None


def parse_datapath_id(text: str) -> int:
    """16 hexadecimal digits, as `ovs-vsctl get bridge BR datapath_id` prints them. Raises click.BadParameter."""
    digits = text.strip('"').removeprefix("0x")
    try:
        number = int(digits, 16)
    except ValueError:
        number = 0
    if not 0 < number < 1 << 64:
        raise click.BadParameter(f"{text!r} is not a datapath id such as 0000c470bda056ac.")
    return number


@contextmanager
def serving(control: Control, wanted: Mapping[Uplinks, LiveSwitch | None]) -> Iterator[Server]:
    """A controller for these bridges, until the end of the `with`. By bridge: the Open vSwitch of this host, or None.

    Raises click.UsageError, FrameworkMissing, FrameworkUnusable, CannotListen,
    CertificateUnusable, SwitchError.
    """
    from xenoovs.agent.log import info, warn
    from xenoovs.agent.systemd import notify
    from xenoovs.controller.log import Voice
    from xenoovs.controller.server import Server

    with Server(_settings(control), voice=Voice(info, warn)) as server:
        # First of all, for a bridge may come at any moment and would be refused.
        places = [server.want(uplinks.bridge, uplinks.datapath_id).place for uplinks in wanted]
        for place, local in zip(places, wanted.values(), strict=True):
            _lead_here(place, server, local=local)
        if control.attach:
            _attach_all(control, server, wanted)
        # Mostly they come at once, and then nobody need be told that they have not come yet.
        deadline = monotonic() + _FIRST_PATIENCE_S
        for place in places:
            place.wait(patience_s=max(0.0, deadline - monotonic()))
        if control.attach:
            _quicken(server, wanted)
        if control.redundant or len(places) > 1:
            # One that stands by does what it should, and may do so for months; and nobody waits for another bridge.
            notify("READY=1")
        yield server


def _lead_here(place: Place, server: Server, *, local: LiveSwitch | None) -> None:
    """Should it not come, what is told leads to its own Open vSwitch."""
    if local is not None:
        from xenoovs.cli.where import where_of

        db = where_of(local.endpoint, config=None, lab=None).db
        place.invitation = replace(place.invitation, target=server.local_target, db=db)


def _settings(control: Control) -> Settings:
    from xenoovs.controller.server import Settings

    address, certificates = _address(control.listen), _certificates(control)
    if certificates is None and not address.is_loopback:
        raise click.UsageError(
            f"--listen {address} can be reached from other hosts: give --tls-key, --tls-cert and --tls-ca "
            "(`ovs-pki` makes them), or listen at 127.0.0.1."
        )
    return Settings(address, certificates, is_redundant=control.redundant)


def _address(text: str) -> Address:
    from xenoovs.controller.listen import parse_address

    try:
        return parse_address(text)
    except ValueError as error:
        raise click.UsageError(f"--listen: {error}.") from None


def _certificates(control: Control) -> Certificates | None:
    from xenoovs.controller.listen import Certificates

    key, certificate, authority = control.tls_key, control.tls_cert, control.tls_ca
    if key is None and certificate is None and authority is None:
        return None
    if key is None or certificate is None or authority is None:
        raise click.UsageError("TLS needs all of --tls-key, --tls-cert and --tls-ca.")
    return Certificates(key, certificate, authority)


def _attach_all(control: Control, server: Server, wanted: Mapping[Uplinks, LiveSwitch | None]) -> None:
    """The bridges of this host; one that cannot be attached keeps no other.

    Raises click.UsageError, SwitchError for the last one if none could be.
    """
    from xenoovs.agent.log import warn
    from xenoovs.errors import SwitchError

    left = len(wanted)
    for uplinks, local in wanted.items():
        try:
            _attach(control, server, uplinks, local=local)
        except SwitchError as problem:
            left -= 1
            if not left:
                raise
            warn(
                "a bridge is not attached",
                bridge=uplinks.label,
                **_reason_and_remedy(problem, control, server, uplinks),
            )


def _reason_and_remedy(problem: SwitchError, control: Control, server: Server, uplinks: Uplinks) -> dict[str, object]:
    """A remedy drives no other controller away."""
    from xenoovs.controller.bridge import Invitation
    from xenoovs.errors import ControllerTaken

    if isinstance(problem, ControllerTaken):
        remedy = f"start this with --redundant, to stand beside {', '.join(problem.present)}"
    else:
        invitation = Invitation(server.target, is_redundant=control.redundant)
        remedy = f"{invitation.command(uplinks.bridge)}, on its host"
    return {"reason": str(problem), "remedy": remedy}


def _attach(control: Control, server: Server, uplinks: Uplinks, *, local: LiveSwitch | None) -> None:
    from xenoovs.errors import OtherDatapath
    from xenoovs.switch.vsctl import attach

    bridge, wanted = uplinks.bridge, uplinks.datapath_id
    found = None
    if local is not None and wanted is not None:
        found = next((state.datapath_id for state in local.bridges() if state.name == bridge), None)
    if wanted is not None and found != f"{wanted:016x}":
        raise OtherDatapath(bridge=bridge, wanted=f"{wanted:016x}", found=found)
    if local is None:
        raise click.UsageError("--attach needs the database of the switch: --db or --lab.")
    _require_same_namespace(local, server.local_target)
    beside = None if control.redundant else frozenset[str]()
    attach(local.endpoint, bridge, target=server.local_target, beside=beside)


def _quicken(server: Server, wanted: Mapping[Uplinks, LiveSwitch | None]) -> None:
    """A bridge that comes later keeps the longer pace of its Open vSwitch, which is no reason to end."""
    from xenoovs.agent.log import warn
    from xenoovs.errors import SwitchError
    from xenoovs.switch.vsctl import quicken

    here = {local.endpoint for local in wanted.values() if local is not None}
    for endpoint in here:
        try:
            quicken(endpoint, target=server.local_target)
        except SwitchError as problem:
            warn("a bridge may take 8 s to come back to this controller", reason=str(problem))


def _require_same_namespace(local: LiveSwitch, target: str) -> None:
    """Attached to what it cannot reach, the bridge would drop its flows and get no others. Raises click.UsageError."""
    from xenoovs.switch.vswitchd import find_process, same_namespace

    process = find_process(local.endpoint)
    if process is None or process.namespace is None or same_namespace(process):
        return
    raise click.UsageError(
        f"Open vSwitch runs in another network namespace, from where {target} does not lead here: start this in there, "
        f"with `nsenter --net=/proc/{process.pid}/ns/net` before it. Nothing was changed."
    )


# What makes the rounds of agents, by either way to the switch, and what wakes them up.


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
