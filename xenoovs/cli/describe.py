"""`xenoovs describe`: everything about one server, in one place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from fractions import Fraction
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from xenoovs.cli.control import backend_request
from xenoovs.cli.status import config_instead
from xenoovs.dataclass import dataclass, replace
from xenoovs.display import decimal, duration, percent, printable, quantity
from xenoovs.errors import AgentMissing, CompileError, SwitchError, counted
from xenoovs.show.codec import parse, to_document
from xenoovs.show.column import Row
from xenoovs.show.snapshot import BackendView, BlockView, Event, Override, Snapshot, backend_rows, parse_snapshot
from xenoovs.terminal.agent_client import agent_of, agent_options, find_client
from xenoovs.terminal.load import load_resolved
from xenoovs.terminal.options import backend_argument, output_option
from xenoovs.terminal.output import echo, is_text, print_json, print_text
from xenoovs.terminal.reach import reach, where_of

if TYPE_CHECKING:
    from xenoovs.agent.control.client import Client
    from xenoovs.evidence.command_target import CommandTarget
    from xenoovs.model.balancer import Backend, Balancer
    from xenoovs.switch.management import ManagementSwitch

_SHOWN_BLOCKS, _SHOWN_EVENTS = 8, 5
BlocksOf = Callable[[str], tuple[BlockView, ...]]
"""Returns the blocks of a service, by its name."""
Facts = tuple[Snapshot, BlocksOf, tuple[str, ...]]
"""A snapshot, its blocks, and what could not be read."""


@dataclass(frozen=True, slots=True)
class Described:
    """One backend of a server. `override`: of an operator, None without one. `events`: the last that name it."""

    row: Row[BackendView]
    blocks: tuple[BlockView, ...]
    override: Override | None
    events: tuple[Event, ...]


@click.command("describe")
@backend_argument
@agent_options
@click.option(
    "--config", type=click.Path(path_type=Path), metavar="FILE", help="Config of the bridge without an agent."
)
@output_option
def describe_command(*, words: tuple[str, ...], config: Path | None) -> None:
    """Show everything about BACKEND of SERVICE, or about a server in all services.

    Without SERVICE, BACKEND is a name, or the MAC or the address of the server. SERVICE/BACKEND is the same as SERVICE
    BACKEND.

    From the running agent: health, weights, overrides, the last reply of `agent_check`, the last changes, blocks and
    where their megaflows run, traffic, and events. Without an agent, from the bridge and its config: shares, blocks and
    megaflows.
    """
    request = backend_request(words)
    balancer = None if config is None else load_resolved(config, of_dpu=True)
    names = () if balancer is None else (balancer.uplinks.label, balancer.uplinks.bridge)
    found: Facts | None = None
    try:
        client = agent_of(*names) or (find_client() if balancer is None else None)
        found = None if client is None else _from_agent(client)
    except AgentMissing as missing:
        config = config_instead(missing, "xenoovs describe SERVICE/BACKEND --config FILE", config)
    source = "bridge" if found is None else "agent"
    if found is None:
        assert config is not None  # noqa: S101 - `config_instead` has found one
        balancer = balancer or load_resolved(config, of_dpu=True)
        switch = reach()
        found = _from_bridge(balancer, switch, where_of(switch.endpoint, config))
    snapshot, blocks_of, remarks = found
    described = tuple(_described(snapshot, blocks_of, request))
    if not is_text():
        print_json({"from": source, "backends": [_document(each) for each in described]})
        return
    if source == "bridge":
        echo("from the bridge, which has no agent: health and overrides are not known\n")
    for index, each in enumerate(described):
        if index:
            echo()
        _show(each)
    for remark in remarks:
        print_text(f"\n{remark}", fg="yellow")


# Which backends.


def _described(snapshot: Snapshot, blocks_of: BlocksOf, request: dict[str, object]) -> Iterator[Described]:
    """Yield the requested backends. Raises RequestRefused."""
    chosen = _chosen(snapshot, request)
    overrides = {one.name: one for one in snapshot.overrides}
    for row in backend_rows(snapshot):
        name = row.parent.name, row.value.name
        if name in chosen:
            blocks = tuple(block for block in blocks_of(name[0]) if block.backend == name[1])
            events = tuple(event for event in snapshot.events if _is_about(event, *name))[-_SHOWN_EVENTS:]
            yield Described(row, blocks, overrides.get(name), events)


def _chosen(snapshot: Snapshot, request: dict[str, object]) -> set[tuple[str, str]]:
    """Return the names of the requested backends. Raises RequestRefused."""
    from xenoovs.agent.servers import find_named, find_server

    name = str(request["backend"])
    if "service" not in request:
        return set(find_server(_backends_of(snapshot), name))
    service = find_named("service", snapshot.services, str(request["service"]), "the config")
    return {(service.name, find_named("backend", service.backends, name, f"service {service.name}").name)}


def _backends_of(snapshot: Snapshot) -> dict[tuple[str, str], Backend]:
    """Return the backends of a snapshot as those of a config, with the values by which a server is found."""
    from xenoovs.model.balancer import Backend
    from xenoovs.model.next_hop import UNCHANGED, UNKNOWN_MAC, parse_next_hop

    def backend(view: BackendView) -> Backend:
        mac = view.mac if view.mac == UNCHANGED or view.mac.count(":") == 5 else UNKNOWN_MAC
        address = None if view.address is None else ip_address(view.address)
        return Backend(view.name, parse_next_hop(f"{mac}@{view.egress}"), Fraction(view.weight), address)

    return {(row.parent.name, row.value.name): backend(row.value) for row in backend_rows(snapshot)}


def _is_about(event: Event, service: str, backend: str) -> bool:
    facts = event.facts
    if (facts.get("service"), facts.get("backend")) == (service, backend):
        return True
    return f"{service}/{backend}" in str(facts.get("backends", "")).split(",")


# The facts, from the agent or from the bridge.


def _from_agent(client: Client) -> Facts:
    snapshot = parse_snapshot(client.ask("status")["snapshot"])
    events = tuple(parse(Event, event, "an event of an agent") for event in client.ask("events")["events"])
    return replace(snapshot, events=events), lambda service: tuple(_blocks(client, service)), ()


def _blocks(client: Client, service: str) -> Iterator[BlockView]:
    after: int | None = 0
    while after is not None:
        page = client.ask("blocks", query={"service": service, "after": after})
        yield from (parse(BlockView, block, "a block of an agent") for block in page["blocks"])
        after = page["next"]


def _from_bridge(balancer: Balancer, switch: ManagementSwitch, target: CommandTarget) -> Facts:
    """Return the facts from flows and megaflows."""
    from xenoovs.agent.snapshot_builder import Sampled, blocks_of, sampled_blocks, service_views
    from xenoovs.agent.state import AgentState
    from xenoovs.compile.program import compile_program
    from xenoovs.compile.read import drain_ports, read
    from xenoovs.diagnosis.offload import block_checker
    from xenoovs.evidence.collector import Collector

    checker = block_checker(balancer, Collector(switch, target=target))
    # From the bridge, not from the config: an agent that was killed may have drained a backend.
    observed = switch.dump_flows(balancer.uplinks.bridge)
    decision, transition = read(observed, balancer)
    if {made.service_id for made in checker.program.services} <= {service_id for service_id, _ in decision.services}:
        # It fails if a server that the config no longer has still has blocks; then the checker's program stays.
        with suppress(CompileError):
            program = compile_program(balancer, decision, transition, ofports=drain_ports(observed))
            checker = replace(checker, program=program)
    sampled: Sampled = {}
    remarks = checker.remarks
    try:
        findings = checker.check()
        sampled, remarks = sampled_blocks(findings), findings.remarks
    except SwitchError as error:
        remarks = (*remarks, f"megaflows cannot be read: {error}")
    views = service_views(AgentState(balancer, balancer), checker.program, sampled)
    snapshot = Snapshot(balancer.uplinks.label, "", "", 0.0, 0.0, views)
    return snapshot, partial(blocks_of, checker.program, sampled), remarks


# How it is shown.


def _document(each: Described) -> dict[str, Any]:
    return {
        "service": each.row.parent.name,
        "vips": list(each.row.parent.vips),
        **to_document(each.row.value),
        "override": to_document(each.override),
        "block_list": to_document(each.blocks),
        "events": to_document(each.events),
    }


def _show(each: Described) -> None:
    service = each.row.parent
    echo(f"{click.style(printable(f'{service.name}/{each.row.value.name}'), bold=True)}  {', '.join(service.vips)}")
    for title, text in _facts(each):
        echo(f"  {title + ':' if title else '':<13}{printable(text)}")


def _facts(each: Described) -> Iterator[tuple[str, str]]:
    from xenoovs.log import render_facts

    row, backend, now_s = each.row, each.row.value, each.row.now_s
    state, last_probe = BackendView.state_cell.text(row), BackendView.probe_cell.text(row)
    yield "server", f"{backend.mac}, port {backend.egress}, address {backend.endpoint or '-'}"
    if now_s:
        since = "" if backend.since_s is None else f" for {BackendView.since_cell.text(row)}"
        yield "state", f"{state}{since}{', without clients (ejected)' if backend.is_ejected else ''}"
        yield "last probe", f"{last_probe}; came up or went down {counted(backend.transitions, 'time')}"
    if backend.agent is not None:
        agent = backend.agent
        reply = f"{agent.state}, last reply {agent.reply!r}" if agent.reply else "no reply yet"
        yield "its agent", f"{reply}; now: {agent.problem}" if agent.problem else reply
    yield "weight", f"{decimal(backend.weight_in_use)} in use, {decimal(backend.weight)} in the config"
    if each.override is not None:
        until_s = each.override.until_s
        left = "" if until_s is None else f", {duration(until_s - now_s)} left"
        yield "override", f"{each.override.state} for {duration(now_s - each.override.since_s)}{left}"
    yield "clients", f"{percent(backend.share)}, target {percent(backend.target_share)}"
    if backend.rate is not None:
        rate = backend.rate
        sent = f"{quantity(rate.pps)} packets/s, {quantity(rate.bps)} bits/s"
        yield "traffic", f"{sent}, {percent(backend.hw_share)} in hardware"
    if now_s:
        yield "changes", f"{backend.changes}; last: {BackendView.last_change_cell.text(row)}"
    yield from _block_facts(each)
    for event in each.events:
        yield "event", f"{duration(now_s - event.time_s)} ago: {event.text} {render_facts(event.facts)}".rstrip()


def _block_facts(each: Described) -> Iterator[tuple[str, str]]:
    from xenoovs.openflow.text import render_bits

    verdicts = ", ".join(f"{count} {verdict.value}" for verdict, count in each.row.value.blocks.items() if count)
    yield "blocks", f"{len(each.blocks)}{f'; megaflows of them by entry: {verdicts}' if verdicts else ''}"
    for block in each.blocks[:_SHOWN_BLOCKS]:
        verdict = "-" if block.verdict is None else block.verdict.value
        value, mask = (render_bits(block.field, bits) for bits in (block.value, block.mask))
        yield "", f"{block.field}={value}/{mask}  {percent(block.size)}  {verdict}"
    if len(each.blocks) > _SHOWN_BLOCKS:
        yield "", f"and {len(each.blocks) - _SHOWN_BLOCKS} more; -o json has all"
