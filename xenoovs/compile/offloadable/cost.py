"""What a program costs in entries of the NIC's table, with numbers, and why; and what it costs the clients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from xenoovs.compile.plan import hardware_entries
from xenoovs.compile.program import Program, ServiceProgram
from xenoovs.errors import counted
from xenoovs.model.address import Family
from xenoovs.model.balancer import DrainMode, KeyField, Protocol

SOME_CLIENT_MACS = 16
"""An example, where nobody says how many there are: a small layer 2 network before the NIC."""

SOME_PROTOCOLS = 3
"""TCP, UDP and ICMPv6."""


class Cost(Enum):
    """What makes a program dear."""

    TABLE_FULL = "table-full"
    SOURCE_MAC = "source-mac"
    ENTRANCES = "entrances"
    ANY_PROTOCOL = "any-protocol"
    DRAIN = "drain"
    FOREIGN_FLOWS = "foreign-flows"
    """Flows of others that our packets pass."""
    AFFINITY = "affinity"
    """Connections of one client go to several backends."""
    EVEN_PORTS = "even-ports"
    """Blocks are chosen by a bit that is the same in most connections."""


@dataclass(frozen=True, slots=True)
class CostFinding:
    """`entries`: of the NIC's table, with this cost. `service`: None for the whole program. `text`: with numbers."""

    cost: Cost
    service: str | None
    entries: int
    text: str


def program_entries(program: Program, *, client_macs: int = 1) -> int:
    """Entries of all services once every block has seen traffic, where `client_macs` MACs are before the NIC."""
    return sum(_entries(service, client_macs) for service in program.services)


def check_cost(
    program: Program, *, client_macs: int | None = None, table_size: int | None = None
) -> tuple[CostFinding, ...]:
    """What is dear. `client_macs`: MACs that clients' packets come with; `table_size`: entries that the NIC has."""
    found = [finding for service in program.services for finding in _service(service, client_macs)]
    entries = program_entries(program, client_macs=client_macs or 1)
    if table_size is not None and entries > table_size:
        text = f"{_entries_told(entries)} needed, {table_size} there: the rest, {entries - table_size}, in software"
        found.insert(0, CostFinding(Cost.TABLE_FULL, None, entries, text))
    return tuple(found)


def check_clients(program: Program) -> tuple[CostFinding, ...]:
    """Return what the clients of the services pay for how these are balanced."""
    return tuple(finding for service in program.services for finding in _clients(service))


def _entries_told(number: int) -> str:
    return counted(number, "entry", "entries")


def _service(service: ServiceProgram, client_macs: int | None) -> Iterator[CostFinding]:
    yield from _entrances(service)
    yield from _any_protocol(service)
    yield from _source_mac(service, client_macs)
    yield from _drain(service)
    yield from _clients(service)


def _entrances(service: ServiceProgram) -> Iterator[CostFinding]:
    times, entries = len(service.classify), hardware_entries(service)
    if times > 1:
        claim = service.service.claim
        ports = len({flow.match.in_port for flow in service.classify})
        vips = max(1, len(claim.vips))
        parts = (
            (ports, "ingress ports"),
            (vips, "VIPs"),
            (times // (ports * vips), "masks of ports, IP versions or protocols"),
        )
        told = " x ".join(f"{count} {what}" for count, what in parts if count > 1)
        product = f"{times} times {counted(entries // times, 'block')} = {_entries_told(entries)}"
        text = f"{told} = {product}, because each is matched exactly"
        yield CostFinding(Cost.ENTRANCES, service.service.name, entries, text)


def _any_protocol(service: ServiceProgram) -> Iterator[CostFinding]:
    claim = service.service.claim
    if Family.IPV6 in claim.served_families and claim.protocol is None:
        entries = hardware_entries(service)
        text = (
            f"IPv6 of any protocol: {_entries_told(entries)} for each IP protocol of its clients "
            f"({SOME_PROTOCOLS * entries} for {SOME_PROTOCOLS}), because neighbour discovery "
            "has to be told from it; write `protocol:`"
        )
        yield CostFinding(Cost.ANY_PROTOCOL, service.service.name, SOME_PROTOCOLS * entries, text)


def _source_mac(service: ServiceProgram, client_macs: int | None) -> Iterator[CostFinding]:
    if service.service.source_mac is not None:
        each, macs = hardware_entries(service), client_macs or SOME_CLIENT_MACS
        text = (
            f"rewrite_source_mac: {_entries_told(each)} for each MAC that packets come with "
            f"({each * macs} for {macs}), because what is rewritten is matched exactly; "
            "leave it out unless the backends need it"
        )
        yield CostFinding(Cost.SOURCE_MAC, service.service.name, each * macs, text)


def _drain(service: ServiceProgram) -> Iterator[CostFinding]:
    if service.service.drain.mode is DrainMode.PIN and service.service.claim.protocol in (None, Protocol.TCP):
        entries = hardware_entries(service)
        text = (
            f"drain: {_entries_told(entries)}, and while blocks move one more for each of their TCP connections, "
            "matched by addresses, ports and TCP flags; `xenoovs plan` estimates how many"
        )
        yield CostFinding(Cost.DRAIN, service.service.name, entries, text)


def _clients(made: ServiceProgram) -> Iterator[CostFinding]:
    service, entries = made.service, hardware_entries(made)
    if service.key.field is not KeyField.SOURCE_PORT:
        return
    text = (
        "source_port: each connection of a client may go to another backend; balance by source_address where a backend "
        "has to know its clients again"
    )
    yield CostFinding(Cost.AFFINITY, service.name, entries, text)
    depth = made.decision.home.depth
    used = range(depth) if service.key.positions is None else service.key.positions[:depth]
    if service.claim.protocol is Protocol.TCP and 0 in used:
        text = (
            "bit 0 of the source port: Linux opens TCP connections from even ports, so that blocks of odd ports get "
            "next to none; leave the bit out of `bits`"
        )
        yield CostFinding(Cost.EVEN_PORTS, service.name, entries, text)


def _entries(service: ServiceProgram, client_macs: int) -> int:
    return hardware_entries(service) * (1 if service.service.source_mac is None else client_macs)
