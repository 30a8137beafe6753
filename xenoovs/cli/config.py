"""Commands about a config alone: new, validate."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from xenoovs.compile.offloadable.check import check_program, describe
from xenoovs.compile.offloadable.cost import check_clients
from xenoovs.compile.offloadable.table import DEFAULT_VERSION, Profile, render_version
from xenoovs.compile.plan import hardware_entries
from xenoovs.compile.program import Program, ServiceProgram, compile_config, sorted_flows
from xenoovs.decision.decide import tolerance_of
from xenoovs.display import percent
from xenoovs.errors import ConfigError, FileUnusable, Finding, ParseError, XenoovsError, counted, did_you_mean, worded
from xenoovs.model.templates import describe_templates, read_template, template_names
from xenoovs.openflow.flow import Command, GroupMod
from xenoovs.openflow.group import with_groups
from xenoovs.openflow.text import render_flow, render_flow_to_send, render_group_mod
from xenoovs.terminal.completion import complete_template
from xenoovs.terminal.defaults import option
from xenoovs.terminal.load import load, load_resolved
from xenoovs.terminal.options import config_argument, findings_option
from xenoovs.terminal.output import SarifResult, answer, echo, is_text, print_table, print_text

if TYPE_CHECKING:
    from xenoovs.migrate.draft import Draft, DraftSwitch

SOURCES = ("xenoflow", "keepalived", "haproxy", "ovn", "flows")
_LARGEST = 16 << 20
"""Most bytes of a source of `new --from`; configs that people write are smaller."""


@click.command("new")
@click.argument("template", required=False, metavar="[TEMPLATE|FILE]", shell_complete=complete_template)
@click.option("--from", "source", metavar="SOURCE", type=click.Choice(SOURCES), help="Convert FILE, `-` for stdin.")
@click.option("--bridge", metavar="BRIDGE", help="With --from: the bridge, if FILE names none.  [default: ovsbr1]")
@click.option(
    "--ingress", metavar="PORT", multiple=True, help="With --from: a port where clients enter.  [default: p0]"
)
@click.option("--egress", metavar="PORT", help="With --from: the port towards the servers.  [default: p1]")
def new_command(
    template: str | None, *, source: str | None, bridge: str | None, ingress: tuple[str, ...], egress: str | None
) -> None:
    """Print the config TEMPLATE; without a name, list the templates. With --from, convert FILE.

    \b
    SOURCE is one of:
      xenoflow    backends.json, or the answer of GET /api
      keepalived  keepalived.conf: virtual_server and real_server
      haproxy     haproxy.cfg: listen, frontend and backend
      ovn         the output of `ovn-nbctl lb-list`
      flows       the output of `ovs-ofctl dump-flows`, or flows for `add-flows`

    Every word of FILE is converted, or a comment in the result names it with the reason. No config of
    a load balancer names bridge and ports: give them here, or edit the result. Then `xenoovs validate` checks it.

    Exit status 1: FILE cannot be read, or has no service.

    \b
    Examples:
      xenoovs new quickstart > my.yaml
      xenoovs new --from keepalived /etc/keepalived/keepalived.conf > my.yaml
      ovn-nbctl lb-list | xenoovs new --from ovn - --ingress p0 --egress pf0hpf > my.yaml
      ovs-ofctl --names dump-flows ovsbr1 | xenoovs new --from flows - > my.yaml
    """
    if source is not None:
        from xenoovs.migrate.draft import DraftSwitch

        if template is None:
            raise click.UsageError("FILE is missing: name the file to convert, or `-` for standard input.")
        _convert(source, Path(template), DraftSwitch(bridge, ingress or None, egress))
        return
    if bridge or ingress or egress:
        raise click.UsageError("--bridge, --ingress and --egress go with --from.")
    if template is None:
        print_table(["TEMPLATE", "CONFIG"], map(list, describe_templates().items()))
        return
    if template not in (names := template_names()):
        guess = did_you_mean(template, names) or f" There are {', '.join(names)}."
        raise click.UsageError(f"There is no template {template!r}.{guess}")
    echo(read_template(template), nl=False)


def reader_of(source: str) -> Callable[[str], Draft]:
    """Return the function that reads a source."""
    name = "read_lb_list" if source == "ovn" else f"read_{source}"
    read: Callable[[str], Draft] = getattr(import_module(f"xenoovs.migrate.{source}"), name)
    return read


def _convert(source: str, file: Path, switch: DraftSwitch) -> None:
    """Print the config of another load balancer as one of xenoovs. Raises FileUnusable, XenoovsError."""
    from xenoovs.migrate.draft import render

    name = "standard input" if str(file) == "-" else file.name
    try:
        draft = reader_of(source)(_text(file))
    except ParseError as error:
        raise FileUnusable(file=name, reason=str(error)) from None
    echo(render(draft, source=name, switch=switch), nl=False)
    services, omitted = len(draft.services), len(draft.every_omission)
    if draft.tunnels and not services:
        echo(f"{counted(len(draft.tunnels), 'tunnel')} imported", err=True)
        return
    if not services and draft.own_flows:
        raise FileUnusable(file=name, reason=_of_xenoovs(draft.own_flows))
    if not services:
        raise FileUnusable(file=name, reason=f"no service was found, so nothing was imported; is it from {source}?")
    note = f"{counted(services, 'service')} imported"
    echo(f"{note}, {counted(omitted, 'comment')} on what is not converted" if omitted else note, err=True)


def _of_xenoovs(flows: int) -> str:
    return (
        f"{counted(flows, 'flow')} {worded(flows, 'is', 'are')} of xenoovs itself and no other one makes a service, so "
        "nothing was imported; `xenoovs history` lists what was applied to a bridge, `xenoovs history NUMBER` prints "
        "the config of it, and `xenoovs status` names the config of a running agent"
    )


def _text(file: Path) -> str:
    stream = sys.stdin.buffer if str(file) == "-" else file.open("rb")
    with stream:
        data = stream.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise XenoovsError(f"{file} has more than {_LARGEST >> 20} MiB")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise XenoovsError(f"{file} is not UTF-8 text (byte {error.start})") from None


@click.command("validate")
@config_argument
@click.option(
    "--flows", is_flag=True, help="Print the OpenFlow flows instead, as `ovs-ofctl --names --no-stats dump-flows` does."
)
@findings_option
def validate_command(config: Path, *, flows: bool) -> None:
    """Check the config FILE, and report mistakes with file, line and column: all wrong values at once, then
    values that contradict each other.

    For a valid config, prints the blocks and hardware entries of each service, and whether a NIC behind the kernel's
    traffic control can offload the flows (`xenoovs lint` shows details). A note names a drawback for the clients of a
    service, such as connections of one client at several backends.

    `ovs-ofctl -O OpenFlow14 --bundle add-flows` accepts the text of --flows; where it has groups, for `failover:
    in_switch`, `bundle` instead of `add-flows` does. No switch is needed.
    """
    if flows:
        _print_flows(config)
        return
    try:
        balancer = load(config, of_dpu=True)
    except ConfigError as error:
        if option("output") == "sarif":
            mistakes = error.findings
            answer(dict, lambda: None, lambda: map(_mistake, mistakes))
        raise
    program = compile_config(balancer)
    services, notes = [_facts(service) for service in program.services], check_clients(program)
    profile, version = Profile.TC, render_version(DEFAULT_VERSION)
    encrypted = balancer.cpu_encrypted_ports
    offload = describe(check_program(program, profile=profile, version=DEFAULT_VERSION, encrypted=encrypted))
    if not is_text():
        lint = {"profile": profile.value, "ovs": version, "summary": offload}
        documents = [{"service": note.service, "note": note.cost.value, "text": note.text} for note in notes]
        document = {"valid": True, "flows": len(program.flows), "services": services, "notes": documents, "lint": lint}
        found = [SarifResult(each.cost.value, "note", f"{each.service}: {each.text}", str(config)) for each in notes]
        answer(lambda: document, lambda: None, lambda: found)
        return
    rows = [
        [percent(value) if name == "tolerance" else str(value) for name, value in facts.items()] for facts in services
    ]
    headers = ["SERVICE", "BACKENDS", "SOURCE BITS", "TOLERANCE", "BLOCKS", "HARDWARE ENTRIES"]
    print_table(headers, rows, right=range(1, 6))
    for note in notes:
        print_text(f"\nnote: {note.service}: {note.text}", fg="yellow")
    echo(f"\n{config}: valid, {counted(len(program.flows), 'flow')}")
    echo(f"offload ({profile.value}, Open vSwitch {version}): {offload}")


def _mistake(found: Finding) -> SarifResult:
    text = f"{found.path}: {found.message}" if found.path else found.message
    return SarifResult("config", "error", text, found.file, found.line, found.column)


def _facts(compiled: ServiceProgram) -> dict[str, Any]:
    """Return the values in the order of the columns."""
    return {
        "service": compiled.service.name,
        "backends": len(compiled.service.backends),
        "source_bits": compiled.decision.active.depth,
        "tolerance": float(tolerance_of(compiled.service)),
        "blocks": len(compiled.blocks),
        "hardware_entries": hardware_entries(compiled),
    }


def _print_flows(config: Path) -> None:
    program = compile_config(load_resolved(config))
    groups, flows = with_groups(sorted_flows(program.flows))
    lines = [render_group_mod(GroupMod(Command.ADD, group)) for group in groups]
    lines += [f"{'flow add ' if groups else ''}{render_flow_to_send(flow)}" for flow in flows]
    answer(lambda: _document(program), lambda: echo("\n".join(lines)))


def _document(program: Program) -> dict[str, object]:
    return {
        "flows": [render_flow(flow) for flow in program.flows],
        "services": [
            {
                "name": service.service.name,
                "id": service.service_id,
                "source_bits": service.decision.active.depth,
                "blocks": [
                    {"backend": block.backend.name, "depth": block.rule.depth, "flow": render_flow(block.flow)}
                    for block in service.blocks
                ],
            }
            for service in program.services
        ],
    }
