"""The options of agents, and how they reach their bridges: at management sockets, or as their controller."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from time import monotonic

import click

from xenoovs.controller.bridge import ExpectedBridge, connect_command
from xenoovs.controller.listen import Address, UnixAddress, parse_address
from xenoovs.controller.server import ControllerSwitch, Server
from xenoovs.dataclass import dataclass, replace
from xenoovs.datapath.database import BridgeState
from xenoovs.engine.engine import Engine
from xenoovs.errors import ControllerPresent, OtherDatapath, SwitchError
from xenoovs.log import notify, warn
from xenoovs.model.balancer import Balancer, Uplinks
from xenoovs.switch.api import require_not_of_ovn
from xenoovs.switch.bridge_controller import attach, quicken
from xenoovs.switch.certificates import Certificates
from xenoovs.switch.management import ManagementSwitch
from xenoovs.switch.vswitchd import find_process, same_namespace
from xenoovs.terminal.options import certificates
from xenoovs.terminal.reach import connect, where_of

_CONNECT_TIMEOUT_S = 2.0
_SOCKET = "xenoovs.controller"
"""Where bridges connect by default, in the run directory of Open vSwitch."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a process of agents. `exec_option`: what allows programs, for messages."""

    configs: tuple[Path, ...]
    db: str | None
    lab: str | None
    log: str
    resync_s: float
    once: bool
    confirm_s: float | None
    control: Path | None
    api: str | None
    tls_cert: Path | None
    tls_key: Path | None
    tls_ca: Path | None
    token_file: Path | None
    web: str | None
    xenoflow_api: str | None
    offload_interval_s: float
    metrics_blocks: bool
    allow_exec: bool
    fleet: str | None
    fleet_state: str | None
    dpu: str | None
    is_controller: bool
    listen: str | None = None
    datapath_id: int | None = None
    attach: bool = False
    redundant: bool = False
    exec_option: str = "--allow-exec"

    def check(self) -> None:
        """Check options that exclude or need each other. Raises click.UsageError."""
        if "-" in map(str, self.configs):
            raise click.UsageError("The agent reads its config again when it changes: give a file, not standard input.")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise click.UsageError("--tls-cert and --tls-key go together.")
        is_served = any(where is not None for _, where in self.served)
        if self.token_file and not is_served:
            raise click.UsageError("--token-file goes with --api, --web or --xenoflow-api.")
        if self.tls_cert and not is_served and not self.is_controller and self.fleet is None:
            raise click.UsageError(
                "--tls-cert and --tls-key go with --api, --web, --xenoflow-api, --fleet or `xenoovs controller`."
            )
        if self.tls_ca and not self.is_controller and self.fleet is None:
            raise click.UsageError("--tls-ca goes with --fleet or `xenoovs controller`.")
        if self.tls_cert and not self.tls_ca and not is_served and not self.is_controller:
            raise click.UsageError("--fleet with TLS needs all of --tls-key, --tls-cert and --tls-ca.")
        self._check_fleet()

    def _check_fleet(self) -> None:
        if self.fleet is None:
            if self.fleet_state is not None or self.dpu is not None:
                raise click.UsageError("--fleet-state and --dpu go with --fleet.")
            return
        from xenoovs.store.view import is_name

        if self.dpu is not None and not is_name(self.dpu):
            raise click.UsageError(
                f"--dpu {self.dpu!r}: `xenoovs fleet add-dpu` takes letters, digits, `.`, `-` and `_`, at most 63 "
                "characters, such as rack7-dpu1."
            )
        if len(self.configs) > 1:
            raise click.UsageError("An agent of a fleet has one bridge: give one FILE, and start an agent for each.")
        if self.once or self.confirm_s is not None:
            option = "--once" if self.once else "--confirm"
            raise click.UsageError(
                f"{option} does not go with --fleet: the store decides, also after this agent ended."
            )

    def check_several(self, bridges: int) -> None:
        """Check the options that need a single bridge. Raises click.UsageError."""
        if bridges > 1 and self.control is not None:
            raise click.UsageError("--control names one socket, but each of several bridges has its own.")
        if bridges > 1 and self.xenoflow_api is not None:
            raise click.UsageError("--xenoflow-api is for one bridge: its clients know one list of backends.")

    @property
    def served(self) -> tuple[tuple[str, str | None], ...]:
        """The options that open a TCP port, with their values."""
        return ("--api", self.api), ("--web", self.web), ("--xenoflow-api", self.xenoflow_api)


def _certificates(options: Options, address: Address) -> Certificates | None:
    if isinstance(address, UnixAddress):
        # With --fleet it is for the store.
        if options.tls_ca is not None and options.fleet is None:
            raise click.UsageError(f"--tls-ca is for --listen ADDRESS:PORT; bridges connect at {address} without TLS.")
        return None
    tls = certificates(options.tls_key, options.tls_cert, options.tls_ca)
    if tls is None and not address.is_local:
        raise click.UsageError(
            f"--listen {address} can be reached from other hosts: give --tls-key, --tls-cert and --tls-ca "
            "(`ovs-pki` makes them), or listen at 127.0.0.1."
        )
    return tls


def _address(text: str | None, local: ManagementSwitch) -> Address:
    rundir = local.endpoint.rundir
    if text is None and rundir is None:
        raise click.UsageError(
            "--listen ADDRESS:PORT is needed: the run directory of Open vSwitch, where bridges connect otherwise, is "
            "not known."
        )
    try:
        address = parse_address(text or f"punix:{(rundir or Path()).absolute() / _SOCKET}")
    except ValueError as error:
        raise click.UsageError(f"--listen: {error}. A socket of this host is punix:/PATH.") from None
    if isinstance(address, UnixAddress) and (rundir is None or address.path.parent.resolve() != rundir.resolve()):
        raise click.UsageError(
            f"--listen {address}: Open vSwitch connects only to sockets in its run directory, {rundir or 'unknown'}."
        )
    return address


def _attach_all(options: Options, server: Server, wanted: Mapping[Uplinks, ManagementSwitch | None]) -> None:
    """Attach the bridges of this host; one that fails is logged. Raises click.UsageError if an option is missing,
    SwitchError of the last bridge if none could be attached."""
    left = len(wanted)
    for uplinks, local in wanted.items():
        try:
            _attach(options, server, uplinks, local=local)
        except SwitchError as problem:
            left -= 1
            if not left:
                raise
            remedy = _remedy(problem, options, server, uplinks)
            warn("a bridge is not attached", bridge=uplinks.label, reason=str(problem), remedy=remedy)


def _remedy(problem: SwitchError, options: Options, server: Server, uplinks: Uplinks) -> str:
    """Return what an operator can do, which never replaces another controller."""
    if isinstance(problem, ControllerPresent):
        return f"start this with --redundant, to stand beside {', '.join(problem.present)}"
    if isinstance(problem, OtherDatapath) and not server.needs_same_namespace:
        return "start this with --listen ADDRESS:PORT and certificates, so that a bridge of another host can connect"
    return f"{connect_command(uplinks.bridge, server.target, is_redundant=options.redundant)}, on its host"


def _attach(options: Options, server: Server, uplinks: Uplinks, *, local: ManagementSwitch | None) -> None:
    bridge, wanted = uplinks.bridge, uplinks.datapath_id
    found = None
    if local is not None and wanted is not None:
        found = next((state.datapath_id for state in local.bridges() if state.name == bridge), None)
    if wanted is not None and found != f"{wanted:016x}":
        raise OtherDatapath(bridge=bridge, wanted=f"{wanted:016x}", found=found)
    if local is None:
        raise click.UsageError("--attach needs the database of the switch: --db or --lab.")
    if server.needs_same_namespace:
        _require_same_namespace(local, server.local_target)
    beside = None if options.redundant else frozenset[str]()
    attach(local.endpoint, bridge, target=server.local_target, beside=beside)


def _quicken(server: Server, wanted: Mapping[Uplinks, ManagementSwitch | None]) -> None:
    """Shorten the reconnect interval; a bridge that connects later has the longer one of Open vSwitch."""
    here = {local.endpoint for local in wanted.values() if local is not None}
    for endpoint in here:
        try:
            quicken(endpoint, target=server.local_target)
        except SwitchError as problem:
            warn("a bridge may take 8 s to reconnect to this controller", reason=str(problem))


def _require_same_namespace(local: ManagementSwitch, target: str) -> None:
    """Check that the bridge can connect: if not, it would lose its flows and get no others. Raises click.UsageError."""
    process = find_process(local.endpoint)
    if process is None or process.namespace is None or same_namespace(process):
        return
    raise click.UsageError(
        f"Open vSwitch runs in another network namespace, from where {target} does not lead here: leave --listen out, "
        f"or start this in there, with `nsenter --net=/proc/{process.pid}/ns/net` before it. Nothing was changed."
    )


# The engines of agents, for both ways to reach the switch.

_ONCE_TIMEOUT_S = 30.0
"""How long `agent --once` waits for the bridge to connect."""

_DB_TIMEOUT_S = 2.0
"""How long a round waits for the database, which it can do without."""

Resolve = Callable[[Balancer], Balancer]
"""As for Engine."""

Reach = Callable[[Uplinks, Resolve], tuple[Engine, ExpectedBridge | None]]
"""Returns the engine of one bridge, and the bridge as this controller expects it; None if it does not connect here."""


@contextmanager
def reaching(wanted: tuple[Uplinks, ...], options: Options) -> Iterator[Reach]:
    """Connect bridges until the end of the `with`. Raises click.UsageError, CannotListen, CertificateUnusable,
    SwitchError."""
    local = replace(connect(), db_timeout_s=_DB_TIMEOUT_S)
    _check_ovn(local, wanted)
    if not options.is_controller:
        yield lambda _uplinks, resolve: (Engine(local, resolve=resolve), None)
        return
    is_named = options.attach or bool(options.db or options.lab)
    here = {uplinks: local if is_here(local, uplinks, is_named=is_named) else None for uplinks in wanted}
    address = _address(options.listen, local)
    server = Server(address, _certificates(options, address), is_redundant=options.redundant)
    with closing(server):
        _await_bridges(server, options, here)

        def reach(uplinks: Uplinks, resolve: Resolve) -> tuple[Engine, ExpectedBridge]:
            _check_fail_mode(here[uplinks], uplinks)
            expected = server.expect(uplinks.bridge, uplinks.datapath_id)
            timeout_s = _ONCE_TIMEOUT_S if options.once else 0.0
            return engine_of(expected, ControllerSwitch(server.registry, here[uplinks], timeout_s, expected), resolve)

        yield reach


def _await_bridges(server: Server, options: Options, here: Mapping[Uplinks, ManagementSwitch | None]) -> None:
    """Let bridges connect, and wait a moment for them. `here`: for each, the Open vSwitch of this host if it is there.
    Raises click.UsageError, SwitchError."""
    # First of all, for a bridge may connect at any moment and would be refused.
    bridges = [server.expect(uplinks.bridge, uplinks.datapath_id) for uplinks in here]
    for expected, local in zip(bridges, here.values(), strict=True):
        if local is not None:
            # The command that connects a missing bridge names its own Open vSwitch.
            expected.target, expected.db = server.local_target, where_of(local.endpoint).db
    if options.attach:
        _attach_all(options, server, here)
    # Most bridges connect at once; then no log line reports them as missing.
    deadline = monotonic() + _CONNECT_TIMEOUT_S
    for expected in bridges:
        expected.wait(timeout_s=max(0.0, deadline - monotonic()))
    if options.attach:
        _quicken(server, here)
    if options.redundant or len(bridges) > 1:
        # A standby may wait for months, and no bridge waits for another one.
        notify("READY=1")


def engine_of(expected: ExpectedBridge, switch: ControllerSwitch, resolve: Resolve) -> tuple[Engine, ExpectedBridge]:
    """Return the engine of a bridge that connects to this controller, and the bridge."""
    follow = expected.proxy.follow
    return Engine(switch, resolve=resolve, follow=follow, ports_down=lambda: expected.ports_down), expected


def is_here(local: ManagementSwitch, uplinks: Uplinks, *, is_named: bool) -> bool:
    """Return whether a bridge is assumed to be on this host. `is_named`: whether the user has named its Open vSwitch.
    The name decides; a different datapath id shows when it connects."""
    has_one = local.endpoint.rundir is not None and uplinks.bridge in local.endpoint.bridges_with_socket()
    return has_one or (is_named and uplinks.datapath_id is None)


def _check_ovn(local: ManagementSwitch, wanted: Iterable[Uplinks]) -> None:
    """Warn of bridges that OVN shares. Raises BridgeOfOvn for one that it owns."""
    try:
        states = {state.name: state for state in local.bridges()}
    except SwitchError:
        # Each round checks again.
        return
    for uplinks in wanted:
        state = states.get(uplinks.bridge)
        if state is None or not is_of_datapath(state, uplinks):
            continue
        require_not_of_ovn(state)
        if state.ovn is not None:
            remedy = "flows for addresses of OVN's networks would take their packets"
            warn("OVN uses the bridge too", bridge=uplinks.label, evidence=state.ovn.evidence, remedy=remedy)


def _check_fail_mode(here: ManagementSwitch | None, uplinks: Uplinks) -> None:
    """Warn if the bridge drops its flows when it loses the controller."""
    try:
        state = None if here is None else here.describe(uplinks.bridge)
    except SwitchError:
        return
    if state is None or state.fail_mode == "secure" or not is_of_datapath(state, uplinks):
        return
    facts = {"fail_mode": state.fail_mode, "remedy": f"ovs-vsctl set-fail-mode {uplinks.bridge} secure"}
    warn("the bridge drops its flows when it loses this controller", bridge=uplinks.label, **facts)


def is_of_datapath(state: BridgeState, uplinks: Uplinks) -> bool:
    """Return whether `state` is of this bridge, and not of one with the same name on another host."""
    return uplinks.datapath_id is None or state.datapath_id == f"{uplinks.datapath_id:016x}"
