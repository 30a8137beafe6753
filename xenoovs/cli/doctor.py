"""`xenoovs doctor`: checks whether this host is ready for hardware offload, and fixes what is not."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from xenoovs.compile.plan import hardware_entries
from xenoovs.compile.program import Program, compile_onto
from xenoovs.compile.tunnel_ports import tagged_tunnels, wanted_ports
from xenoovs.dataclass import dataclass, replace
from xenoovs.datapath.fact import Fact, Unknown, Unresponsive
from xenoovs.datapath.host import BackendFacts, HostFacts
from xenoovs.datapath.tunnel_facts import TunnelEnd, tunnel_ends
from xenoovs.display import span
from xenoovs.errors import FileUnusable, ParseError, SwitchError, XenoovsError, counted, worded
from xenoovs.evidence.collector import Collector
from xenoovs.evidence.command_target import CommandTarget
from xenoovs.evidence.evidence import Evidence
from xenoovs.judge.doctor.check import (
    UNDO_LEFTOVERS,
    WRITE_KEYS,
    CheckResult,
    CheckState,
    DoctorCase,
    Fix,
    RemoteAnswers,
    RequiredBackend,
    RequiredKey,
    RequiredTunnel,
    Requirements,
)
from xenoovs.judge.doctor.examine import (
    BACKEND_CHECKS,
    HOST_CHECKS,
    examine,
    has_wrong,
    is_running,
    safe_fixes,
    to_json,
)
from xenoovs.judge.doctor.nic import TC_MODULES
from xenoovs.model.balancer import Balancer, Service
from xenoovs.model.next_hop import mac_and_port
from xenoovs.model.tunnel import PathSelector
from xenoovs.switch.devices import read_backend
from xenoovs.switch.endpoint import Endpoint, require_answers
from xenoovs.switch.host_facts import check_reachable, gather
from xenoovs.switch.management import ManagementSwitch
from xenoovs.switch.netns import Netns, run_changes
from xenoovs.switch.tape import is_replaying
from xenoovs.switch.vswitchd import place_of
from xenoovs.terminal.command import EXIT_DIFFERS, EXIT_FAILED, EXIT_OK
from xenoovs.terminal.defaults import environment_config, find_config, labs, option
from xenoovs.terminal.load import load, resolved
from xenoovs.terminal.options import (
    optional_config_argument,
    output_option,
    record_option,
    switch_options,
)
from xenoovs.terminal.output import answer, confirm, echo, is_text, print_json, print_table, print_text
from xenoovs.terminal.reach import connect, where_of

if TYPE_CHECKING:
    from xenoovs.judge.doctor.foreign_flows import ForeignFlows
    from xenoovs.judge.findings import PreemptingRule
    from xenoovs.switch.planned_restart import PlannedRestart
    from xenoovs.terminal.defaults import LabTarget

_STATE_DIRECTORY = Path("/run/xenoovs")
_COLOUR = {CheckState.OK: "green", CheckState.WRONG: "red", CheckState.UNKNOWN: "yellow"}


@click.command("doctor")
@optional_config_argument
@switch_options
@record_option("fix", "restart_ovs", "backends", "setting")
@click.option("--fix", is_flag=True, help="Apply safe fixes: settings of Open vSwitch, hw-tc-offload, a missing qdisc.")
@click.option(
    "--restart-ovs",
    is_flag=True,
    help="Restart Open vSwitch and restore all flows and groups, foreign too; with --fix only if a check needs it.",
)
@click.option("--backends", is_flag=True, help="Check the backends of FILE too; with --lab in their namespaces.")
@click.option(
    "--set",
    "setting",
    type=click.Choice(["offload=on", "offload=off"]),
    help="Turn offload on or off in the whole Open vSwitch, to compare both: set hw-offload, restart it as "
    "--restart-ovs does, and check the effect.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask before a change.")
@output_option
def doctor_command(
    config: Path | None,
    *,
    fix: bool,
    restart_ovs: bool,
    backends: bool,
    setting: str | None,
    yes: bool,
) -> int:
    """Check everything that hardware offload needs, from ovs-vswitchd to the NIC; change nothing without an option.

    With FILE, its bridge, ports and flows are checked; without, every bridge of this host. Each row is ok, wrong or
    unknown (it could not be checked, with the reason), with the command that fixes it. --fix shows what it will do, and
    asks for confirmation. Foreign flows are only reported; a restart restores them too.

    --restart-ovs alone checks nothing. It uses Open vSwitch's own flow-restore-wait: until its flows are back, the new
    ovs-vswitchd leaves those of the kernel's datapath alone, so that they go on forwarding. Rules in traffic control
    (hardware offload) forward until the new ovs-vswitchd starts, which deletes them: packets are lost until flows and
    rules are back. A datapath in user space forwards nothing from the end of the old ovs-vswitchd until then. Meters
    are not restored. Bridges of OVN are left to ovn-controller. It is completed also if this command is killed.

    --set asks too, and refuses if a restart could lose more than some packets. If it is interrupted or killed, the
    restart is completed.

    Exit status 0: nothing is wrong, 2: something is, 1: it could not check, or a fix failed. With --set, 0: offload is
    as it was set, 1: it is not, or the change was refused.
    """
    if setting and (fix or backends or restart_ovs):
        raise click.UsageError("--set excludes --fix, --backends and --restart-ovs: run doctor again for those.")
    is_restart = restart_ovs and not fix
    if is_restart and (config or backends):
        raise click.UsageError("--restart-ovs without --fix checks nothing: leave FILE and --backends out.")
    if yes and not (fix or setting or restart_ovs):
        raise click.UsageError("--yes goes with --fix, --set or --restart-ovs.")
    if not is_restart:
        config = config or (find_config() if backends else environment_config())
    balancer, switch = None if config is None else load(config, of_dpu=True), connect()
    check_reachable(switch.endpoint)
    place = labs().open_lab(lab) if (lab := option("lab")) else None
    show: Callable[[str], None] = echo if is_text() else lambda _text: None
    target = where_of(switch.endpoint, config)
    question = Question(balancer, switch, place, target=target, backends=backends)
    if is_restart:
        order = _restart_order(question)
        confirm("Restart Open vSwitch now?", yes=yes)
        done = _detached(lambda: _planned_restart(question, order))
        answer(lambda: restart_document(done), lambda: echo("\n".join(restart_lines(done))))
        return EXIT_OK
    if setting:
        document = _set_offload(question, show, wanted=setting == "offload=on", yes=yes)
        answer(lambda: document, lambda: None)
        return EXIT_OK
    if balancer is not None:
        question = replace(question, balancer=resolved(balancer))
    return _check(question, show, fix=fix, restart_ovs=restart_ovs, yes=yes)


def _check(question: Question, show: Callable[[str], None], *, fix: bool, restart_ovs: bool, yes: bool) -> int:
    """Print the checks of one bridge or of the host, and apply the fixes. Return the exit status."""
    target = question.target
    checks, document = _examine(question), dict[str, Any]()
    if is_text():
        _show_checks(checks, target)
    if fix and not is_running(checks):
        show("\n--fix does nothing while Open vSwitch does not answer: fix that first")
    elif fix:
        document = _fix(question, checks, show, restart_ovs=restart_ovs, yes=yes)
        checks = document.pop("checks")
        if document and is_text():
            echo("\nafter the fixes:")
            _show_checks(checks, target)
    if is_text():
        counts = Counter(check.state for check in checks)
        echo("\n" + ", ".join(click.style(f"{counts[state]} {state.value}", fg=_COLOUR[state]) for state in CheckState))
    else:
        print_json({"checks": to_json(checks, target), **document})
    has_failed = any(row["error"] for row in document.get("fixed", ()))
    return EXIT_FAILED if has_failed else EXIT_DIFFERS if has_wrong(checks) else EXIT_OK


def _examine(question: Question) -> tuple[CheckResult, ...]:
    more = BACKEND_CHECKS if question.backends else ()
    return examine(question.read(), checks=(*HOST_CHECKS, *more))


def _fix(
    question: Question, checks: tuple[CheckResult, ...], show: Callable[[str], None], *, restart_ovs: bool, yes: bool
) -> dict[str, Any]:
    """Apply safe fixes, check again, restart if it is still needed; return the results and the last `checks`."""
    from xenoovs.switch.planned_restart import RESTART_WARNING

    document: dict[str, Any] = {}
    # First of all, so that nothing is changed if a restart is impossible.
    order = _restart_order(question) if restart_ovs else None
    if fixes := safe_fixes(checks):
        show("\nsafe to do now:\n" + "\n".join(f"  {each.command(question.target)}" for each in fixes))
        confirm("Do this?", yes=yes)
        document["fixed"] = _run_fixes(question, fixes)
        for row in document["fixed"]:
            state = click.style("failed", fg="red") if row["error"] else click.style("done", fg="green")
            show(f"{state}: {row['fix']}" + (f": {row['error']}" if row["error"] else ""))
        checks = _examine(question)
    if order is not None and any(check.needs_restart for check in checks):
        show(f"\n{RESTART_WARNING}")
        confirm("Restart Open vSwitch now?", yes=yes)
        done = _detached(lambda: _planned_restart(question, order))
        document["restarted"] = restart_document(done)
        show("\n".join(restart_lines(done)))
        checks = _examine(question)
    elif order is not None:
        show("\nno check needs a restart of Open vSwitch, so it was not restarted")
    return {**document, "checks": checks}


def _set_offload(question: Question, show: Callable[[str], None], *, wanted: bool, yes: bool) -> dict[str, Any]:
    """Turn offload on or off and check that it is in effect. Raises SwitchError."""
    from xenoovs.evidence.collector import finish_leftovers
    from xenoovs.switch.offload_setting import OffloadSwitch
    from xenoovs.switch.planned_restart import RESTART_WARNING

    word, setting = "on" if wanted else "off", OffloadSwitch(question.endpoint)
    require_answers(question.endpoint)
    for message in finish_leftovers(question.endpoint):
        show(message)
    if setting.is_as(wanted=wanted):
        show(f"offload is {word} already: set, and in effect")
        return {"offload": word, "restarted": None}
    # First of all, so that nothing is changed if a restart is impossible.
    order = _restart_order(question)
    setting.require_safe(wanted=wanted)
    value = "true" if wanted else "false"
    show(f"This sets other_config:hw-offload={value} and restarts Open vSwitch.\n{RESTART_WARNING}")
    confirm(f"Turn offload {word} now?", yes=yes)

    def restart(set_it: Callable[[], None]) -> PlannedRestart:
        def set_and_restart() -> None:
            set_it()
            order()

        return _planned_restart(question, set_and_restart)

    done = _detached(lambda: setting.change(wanted=wanted, restart=restart))
    show("\n".join(restart_lines(done)))
    show(click.style(f"offload is {word}: set, and in effect since the restart", fg="green"))
    return {"offload": word, "restarted": restart_document(done)}


def _restart_order(question: Question) -> Callable[[], None]:
    """Return the function that restarts this Open vSwitch. Raises SwitchError if only its owner can restart it."""
    from xenoovs.switch.planned_restart import check_is_service, restart_service

    if question.lab is not None:
        return question.lab.restart_vswitchd
    check_is_service(question.endpoint)
    return restart_service


def _planned_restart(question: Question, order: Callable[[], None]) -> PlannedRestart:
    from xenoovs.switch.planned_restart import planned_restart

    # The flows are saved there until they are back on their bridges.
    directory = question.lab.directory if question.lab is not None else _STATE_DIRECTORY
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return planned_restart(question.switch, question.endpoint, order, directory=directory)


def _detached(work: Callable[[], PlannedRestart]) -> PlannedRestart:
    """Restart in a process that completes it even if this one is killed: otherwise ovs-vswitchd or its flows would be
    missing."""
    from xenoovs.switch.watchdog import run_detached

    try:
        return run_detached(work)
    except KeyboardInterrupt:
        echo("the restart is completed in the background", err=True)
        raise


def restart_document(done: PlannedRestart) -> dict[str, object]:
    counts = {"flows": dict(done.flows), "groups": dict(done.groups)}
    return {"gap_s": round(done.gap_s, 3), **counts, "left_to_ovn": list(done.of_ovn)}


def restart_lines(done: PlannedRestart) -> Iterator[str]:
    for bridge, flows in done.flows.items():
        back = worded(flows + done.groups[bridge], "is", "are")
        groups = f" and {counted(done.groups[bridge], 'group')}" if done.groups[bridge] else ""
        yield f"{bridge}: {counted(flows, 'flow')}{groups} {back} back"
    for bridge in done.of_ovn:
        yield f"{bridge}: left to ovn-controller, which installs its flows again"
    yield f"done: {span(done.gap_s)} from the order to restart until all was back"


def _run_fixes(question: Question, fixes: Iterable[Fix]) -> list[dict[str, str | None]]:
    """Run each fix, also after one that fails. Returns `fix` and `error` of each."""
    from xenoovs.cli.ipsec import write_keys
    from xenoovs.evidence.collector import finish_leftovers

    place = place_of(question.endpoint)
    done: list[dict[str, str | None]] = []
    for fix in fixes:
        error = None
        try:
            if fix.commands == (UNDO_LEFTOVERS,):
                finish_leftovers(question.endpoint)
            elif fix.commands == (WRITE_KEYS,) and question.balancer is not None:
                write_keys(question.balancer, question.endpoint)
            else:
                run_changes(fix.commands, endpoint=question.endpoint, place=place)
        except (SwitchError, FileUnusable) as failed:
            error = str(failed)
        done.append({"fix": fix.command(question.target), "error": error})
    return done


def _show_checks(checks: tuple[CheckResult, ...], target: CommandTarget) -> None:
    """Print the table, and below it a paragraph for each check that is wrong or has a command."""
    rows = [
        [click.style(each.state.value, fg=_COLOUR[each.state]), each.name, each.subject or "", each.seen]
        for each in checks
    ]
    print_table(["STATE", "CHECK", "SUBJECT", "SEEN"], rows)
    for check in checks:
        fix = check.fix
        if check.state is not CheckState.WRONG and (check.state is CheckState.OK or fix is None or fix.is_remote):
            continue
        about = f"{check.name} {check.subject}" if check.subject else check.name
        echo()
        print_text(f"{about}: {check.seen}", indent="  ", fg=_COLOUR[check.state])
        print_text(f"  why: {check.why}", indent="       ")
        if fix is not None:
            # Never wrapped, so that it can be copied.
            echo(f"  fix: {click.style(fix.text(target), bold=True)}")
            if check.has_safe_fix and not check.needs_restart:
                echo("       (--fix does it)")


# The facts that the checks need, from the config, the switch, the lab and the agent.


@dataclass(frozen=True, slots=True)
class Question:
    """The options of doctor. Without a config (`balancer`), every bridge is checked."""

    balancer: Balancer | None
    switch: ManagementSwitch
    lab: LabTarget | None
    target: CommandTarget
    backends: bool

    @property
    def endpoint(self) -> Endpoint:
        return self.switch.endpoint

    def read(self) -> DoctorCase:
        collector = Collector(self.switch, target=self.target)
        host = gather(self.endpoint, modules=TC_MODULES)
        if self.balancer is not None and self.balancer.announce is not None:
            from xenoovs.switch.vip_routes import read_bgp

            host = replace(host, bgp=read_bgp(self.balancer.announced_vips))
        if self.balancer is None:
            return DoctorCase(Evidence(collector.tunnels(host, _ends(host, None)), collector.lines(host)), None)
        program, foreign = self._on_bridge(self.balancer, host)
        host = collector.tunnels(host, _ends(host, program.balancer))
        case = DoctorCase(Evidence(host, collector.lines(host), target=self.target))
        return replace(case, required=self._wanted(program, foreign, host))

    def _on_bridge(self, balancer: Balancer, host: HostFacts) -> tuple[Program, Fact[ForeignFlows]]:
        """Return the program of the config with the drains of its bridge, and the foreign flows there."""
        bridge = balancer.uplinks.bridge
        try:
            if isinstance(host.daemon, Unresponsive):
                raise SwitchError(host.daemon.reason)
            program = compile_onto(balancer, self.switch.dump_flows(bridge))
            others = self.switch.dump_foreign_flows(bridge)
            version = None if isinstance(host.daemon, Unknown) else host.daemon.version
            # Imported here, as below: without Open vSwitch no flow is simulated and no rule compared.
            from xenoovs.judge.doctor.foreign_flows import foreign_flows

            flows = (seen.flow for seen in others)
            return program, foreign_flows(balancer, program, flows, version=version)
        except (SwitchError, ParseError) as error:
            return compile_onto(balancer, ()), Unknown(str(error))

    def _wanted(self, program: Program, foreign: Fact[ForeignFlows], host: HostFacts) -> Requirements:
        balancer = program.balancer
        uplinks = balancer.uplinks
        return Requirements(
            bridge=uplinks.bridge,
            ingress=uplinks.ingress,
            egress=balancer.egress_ports,
            entries=sum(map(hardware_entries, program.services)),
            foreign=foreign,
            backends=self._backends(balancer) if self.backends else (),
            preempting=_preempting(program, host),
            tunnels=tuple(self._tunnels(balancer)),
            keys=self._keys(balancer),
            tunnel_ports=wanted_ports(balancer),
            tagged=tagged_tunnels(balancer),
        )

    def _tunnels(self, balancer: Balancer) -> Iterator[RequiredTunnel]:
        probed = self._probed(balancer) if any(tunnel.probe for tunnel in balancer.tunnels) else ()
        for tunnel in balancer.tunnels:
            remotes = probed
            if not isinstance(probed, Unknown):
                remotes = tuple(remote for remote in probed if remote.name.startswith(f"{tunnel.name}/"))
            is_by_port = tunnel.paths.by is PathSelector.SOURCE_PORT
            has_source_ports = tunnel.source_ports is not None if is_by_port else None
            probe_port = None if tunnel.probe is None else tunnel.probe.port
            yield RequiredTunnel(tunnel.name, remotes if tunnel.probe else (), has_source_ports, probe_port)

    def _keys(self, balancer: Balancer) -> tuple[RequiredKey, ...]:
        # A record has no files with keys: they are on the host itself.
        if is_replaying() or all(tunnel.ipsec is None for tunnel in balancer.switch_tunnels):
            return ()
        from xenoovs.cli.ipsec import required_keys

        return tuple(required_keys(balancer, self.endpoint))

    def _probed(self, balancer: Balancer) -> Fact[tuple[RemoteAnswers, ...]]:
        """Return the state of remotes from the agent of the bridge."""
        # Imported here: they import HTTP, and most configs have no tunnels.
        from xenoovs.agent.control.client import Client
        from xenoovs.agent.control.files import agent_paths

        if is_replaying():
            return Unknown("a record has no answers of the agent")
        try:
            places = agent_paths(self.endpoint, env=os.environ, is_root=os.geteuid() == 0)
            path = places.running(balancer.uplinks.label)
            if path is None:
                return Unknown("no agent runs, which would probe the paths")
            found = Client(path).ask("paths")["remotes"]
        except XenoovsError as error:
            return Unknown(f"the state of the remotes is unknown: {error}")
        keys = ("name", "problem", "tos", "tos_sent", "returned")
        return tuple(RemoteAnswers(*(each[key] for key in keys)) for each in found)

    def _backends(self, balancer: Balancer) -> tuple[RequiredBackend, ...]:
        served: dict[tuple[str, str, str], list[Service]] = {}
        for service in balancer.services:
            for backend in service.backends:
                served.setdefault((backend.name, *mac_and_port(backend.next_hop)), []).append(service)
        return tuple(
            RequiredBackend(
                *key,
                vips=tuple(dict.fromkeys(str(vip) for service in services for vip in service.claim.vips)),
                facts=_facts(self.lab, mac=key[1], egress=key[2]),
            )
            for key, services in served.items()
        )


def _ends(host: HostFacts, balancer: Balancer | None) -> tuple[TunnelEnd, ...]:
    """Return the tunnels of Open vSwitch: those of the config's bridge, or without a config of all bridges."""
    if isinstance(host.database, Unknown):
        return ()
    remotes = {} if balancer is None else remotes_of(balancer)
    wanted = None if balancer is None else balancer.uplinks.bridge
    bridges = (bridge for bridge in host.database.bridges if wanted in (None, bridge.name))
    # Without its key a port does not show that it should be encrypted.
    encrypted = frozenset[str]() if balancer is None else balancer.ipsec_ports
    ends = (end for bridge in bridges for end in tunnel_ends(bridge, remotes))
    return tuple(replace(end, is_encrypted=end.is_encrypted or end.port in encrypted) for end in ends)


def _preempting(program: Program, host: HostFacts) -> tuple[PreemptingRule, ...]:
    """Return the rules of other programs that match packets of services before Open vSwitch's rules do."""
    devices = () if isinstance(host.devices, Unknown) else host.devices.values()
    rules = ((device.name, device.rules) for device in devices if not isinstance(device.rules, Unknown))
    filters = [(name, one) for name, found in rules for one in found.filters]
    if not filters:
        return ()
    from xenoovs.judge.expected import expected_services
    from xenoovs.judge.foreign import preempting_rules

    return preempting_rules(expected_services(program), filters)


def _facts(lab: LabTarget | None, *, mac: str, egress: str) -> Fact[BackendFacts]:
    if lab is None:
        return Unknown("the backend is not reachable from this host")
    namespace = lab.namespace_of(mac, egress)
    if namespace is None:
        return Unknown(f"lab {lab.name} has no machine with this MAC")
    return read_backend(Netns(Path("/run/netns") / namespace), "eth0")


def remotes_of(balancer: Balancer) -> dict[str, tuple[str, ...]]:
    """Return the tunnel ports of backends, with the remotes behind them."""
    found: dict[str, dict[str, None]] = {}
    for end in balancer.remote_ends:
        found.setdefault(end.port, {})[str(end.remote)] = None
    return {port: tuple(remotes) for port, remotes in found.items()}
