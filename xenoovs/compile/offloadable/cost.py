"""What a program costs: entries of the NIC's table, and drawbacks for clients."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from xenoovs.compile.offloadable.table import DEFAULT_VERSION, Version
from xenoovs.compile.plan import hardware_entries, most_entries, return_entries
from xenoovs.compile.program import Program, ServiceProgram
from xenoovs.dataclass import dataclass
from xenoovs.decision.decide import lone_port
from xenoovs.errors import counted, first_names
from xenoovs.model.address import Family, prefix_of
from xenoovs.model.balancer import Backend, Balancer, DrainMode, KeyField, Protocol, Service, probe_port
from xenoovs.model.next_hop import NO_TAG, l4_port_of, vlan_of
from xenoovs.model.tunnel import LINUX_SOURCE_PORTS

SOME_CLIENT_MACS = 16
"""Assumed if `--client-macs` is not given: a small layer 2 network in front of the NIC."""

IPV6_TRIES = (3, 5)
"""Since this version Flow_Table has prefix tries of IPv6 addresses by default (ovs-vswitchd.conf.db(5), `prefixes`)."""

SOME_PROTOCOLS = 3
"""TCP, UDP and ICMPv6."""


class CostKind(Enum):
    """What makes a program expensive."""

    TABLE_FULL = "table-full"
    SOURCE_MAC = "source-mac"
    MATCH_COMBINATIONS = "match-combinations"
    """Ingress ports, VIPs and port ranges are matched exactly, so that each is a megaflow."""
    PREFIXES = "prefixes"
    """Matches distinguish destinations from longer VIPs."""
    ANY_PROTOCOL = "any-protocol"
    DRAIN = "drain"
    FOREIGN_FLOWS = "foreign-flows"
    """Packets of the services match foreign flows."""
    AFFINITY = "affinity"
    """Connections of one client go to several backends."""
    EVEN_PORTS = "even-ports"
    """A bit that is the same in most connections chooses the block."""
    SOURCE_PORTS = "source-ports"
    """Paths rewrite source ports, each of which is an entry."""
    NAT = "nat"
    """Costs and limits of NAT without state."""
    IPSEC = "ipsec"
    """Tunnels that the CPU encrypts."""
    ECN = "ecn"
    """Behind a tunnel a block has an entry for each ECN code point."""
    VLAN = "vlan"
    """A changed tag is matched with its priority."""
    BACKUP = "backup"
    """A service without a health check has backups."""
    FAILOVER = "failover"
    """The switch cannot move the clients of a service by itself."""


@dataclass(frozen=True, slots=True)
class CostFinding:
    """One cost. `service` is None for all services together."""

    cost: CostKind
    service: str | None
    entries: int
    text: str


def program_entries(program: Program, *, client_macs: int = 1) -> int:
    """Return the entries of all services after traffic to every block from `client_macs` client-side MACs."""
    return sum(_entries(service, client_macs) for service in program.services)


def check_cost(
    program: Program,
    *,
    client_macs: int | None = None,
    table_size: int | None = None,
    version: Version = DEFAULT_VERSION,
) -> tuple[CostFinding, ...]:
    """Return what makes the program expensive. `client_macs`: number of source MACs of clients' packets. `table_size`:
    entries that the NIC's table holds. Either is None if unknown."""
    found = [finding for service in program.services for finding in _service(service, client_macs)]
    found += _every_vlan(program)
    found += _ipv6_prefixes(program) if version < IPV6_TRIES else ()
    entries = program_entries(program, client_macs=client_macs or 1)
    if table_size is not None and entries > table_size:
        rest = entries - table_size
        text = f"{_entry_count(entries)} needed, the table holds {table_size}: {rest} stay in software"
        found.insert(0, CostFinding(CostKind.TABLE_FULL, None, entries, text))
    return tuple(found)


def check_ipsec(balancer: Balancer) -> tuple[CostFinding, ...]:
    """Return the tunnels of backends that the CPU handles because it encrypts them."""
    ports = balancer.cpu_encrypted_ports
    if not ports:
        return ()
    text = (
        f"encapsulation stays with the CPU at {first_names(sorted(ports))}: it encrypts these tunnels, and what a NIC "
        "encapsulates it would send unencrypted; `ipsec: {offload: packet}` needs SAs that the NIC has"
    )
    return (CostFinding(CostKind.IPSEC, None, 0, text),)


def check_clients(program: Program) -> tuple[CostFinding, ...]:
    """Return what the balancing of the services costs their clients."""
    return tuple(finding for service in program.services for finding in _clients(service))


def _entry_count(number: int) -> str:
    return counted(number, "entry", "entries")


def _service(service: ServiceProgram, client_macs: int | None) -> Iterator[CostFinding]:
    yield from _match_combinations(service)
    yield from _prefixes(service)
    yield from _any_protocol(service)
    yield from _source_mac(service, client_macs)
    yield from _vlan(service)
    yield from _drain(service)
    yield from _nat(service)
    yield from _clients(service)


def _match_combinations(service: ServiceProgram) -> Iterator[CostFinding]:
    times, entries = service.ways, hardware_entries(service) - return_entries(service)
    if times > 1 and not service.splits:
        claim = service.service.claim
        ports = len({flow.match.in_port for flow in service.classify})
        vips = max(1, len(claim.vips))
        parts = (
            (ports, "ingress ports"),
            (vips, "VIPs"),
            (times // (ports * vips), "masks of ports, IP versions or protocols"),
        )
        factors = " x ".join(f"{count} {what}" for count, what in parts if count > 1)
        product = f"{times} times {counted(entries // times, 'block')} = {_entry_count(entries)}"
        text = f"{factors} = {product}, because each is matched exactly"
        yield CostFinding(CostKind.MATCH_COMBINATIONS, service.service.name, entries, text)


def _prefixes(made: ServiceProgram) -> Iterator[CostFinding]:
    if made.splits:
        entries = hardware_entries(made)
        text = (
            f"{_entry_count(entries)} instead of {len(made.classify) * entries // made.ways}, as other VIPs are in its "
            "prefixes: packets are matched by as many bits of their destination as distinguish it from these; where "
            "these leave it some packets, for each protocol or range of ports of its clients"
        )
        yield CostFinding(CostKind.PREFIXES, made.service.name, entries, text)


def _ipv6_prefixes(program: Program) -> Iterator[CostFinding]:
    """Yield the services with an IPv6 prefix whose packets Open vSwitch looks up among longer VIPs without a trie."""
    vips = {vip for made in program.services for vip in made.service.claim.vips_of(Family.IPV6)}
    longest = max((prefix_of(vip)[1] for vip in vips), default=0)
    for made in program.services:
        shorter = [vip for vip in made.service.claim.vips_of(Family.IPV6) if prefix_of(vip)[1] < longest]
        if shorter:
            text = (
                f"{shorter[0]}: an entry for each destination of its clients, as longer VIPs of IPv6 are looked up "
                "first, and before 3.5 Open vSwitch has prefix tries for IPv4 only; `ovs-vsctl -- --id=@t create "
                f"Flow_Table prefixes=ip_dst,ipv6_dst,ipv6_src -- set Bridge {program.balancer.uplinks.bridge} "
                "flow_tables:0=@t`"
            )
            yield CostFinding(CostKind.PREFIXES, made.service.name, hardware_entries(made), text)


def _any_protocol(service: ServiceProgram) -> Iterator[CostFinding]:
    claim = service.service.claim
    if Family.IPV6 in claim.served_families and claim.protocol is None:
        entries = hardware_entries(service)
        text = (
            f"IPv6 of any protocol: {_entry_count(entries)} for each IP protocol of its clients "
            f"({SOME_PROTOCOLS * entries} for {SOME_PROTOCOLS}), because neighbour discovery "
            "is a protocol of its own; add `protocol:`"
        )
        yield CostFinding(CostKind.ANY_PROTOCOL, service.service.name, SOME_PROTOCOLS * entries, text)


def _source_mac(service: ServiceProgram, client_macs: int | None) -> Iterator[CostFinding]:
    if service.service.source_mac is not None:
        each, macs = hardware_entries(service), client_macs or SOME_CLIENT_MACS
        text = (
            f"rewrite_source_mac: {_entry_count(each)} for each source MAC of packets "
            f"({each * macs} for {macs}), because a rewritten field is matched exactly; "
            "remove it unless the backends need it"
        )
        yield CostFinding(CostKind.SOURCE_MAC, service.service.name, each * macs, text)


def _vlan(service: ServiceProgram) -> Iterator[CostFinding]:
    claim, name = service.service.claim, service.service.name
    retagged = [backend.name for backend in service.service.backends if vlan_of(backend.next_hop) is not None]
    if retagged and claim.vlan != NO_TAG:
        text = (
            f"vlan: blocks of {first_names(retagged)} have an entry for each priority (PCP) of clients' tags, because "
            "a tag that is changed is matched as a whole"
        )
        yield CostFinding(CostKind.VLAN, name, 0, text)


def _every_vlan(program: Program) -> Iterator[CostFinding]:
    claims = {made.service.name: made.service.claim for made in program.services if not made.service.is_remote}
    if any(claim.vlan is not None for claim in claims.values()):
        for name in (name for name, claim in claims.items() if claim.vlan is None):
            text = (
                "vlan: each block has an entry for each VLAN in use, because other services match theirs; add `vlan:`"
            )
            yield CostFinding(CostKind.VLAN, name, 0, text)


def _drain(service: ServiceProgram) -> Iterator[CostFinding]:
    if service.service.drain.mode is DrainMode.PIN and service.service.claim.protocol in (None, Protocol.TCP):
        entries = hardware_entries(service)
        text = (
            f"drain: {_entry_count(entries)}, and while blocks move one more for each of their TCP connections, "
            "matched by addresses, ports and TCP flags; `xenoovs plan` estimates how many"
        )
        yield CostFinding(CostKind.DRAIN, service.service.name, entries, text)


def _nat(made: ServiceProgram) -> Iterator[CostFinding]:
    """Yield the costs of NAT, and the packets that it cannot translate."""
    service, entries, back = made.service, hardware_entries(made), return_entries(made)
    if service.nat is None:
        return
    text = (
        f"nat: {counted(entries - back, 'entry', 'entries')} to backends, {back} back; not translated: ICMP errors (so "
        "path MTU discovery fails: lower the MTU of backends or clamp the MSS), later fragments, packets of a "
        "client that is a backend itself"
    )
    yield CostFinding(CostKind.NAT, service.name, entries, text)
    if service.claim.protocol is None:
        text = (
            f"nat of any protocol: {_entry_count(entries)} for each IP protocol of its clients, because Open vSwitch "
            "matches the protocol where it writes an address; add `protocol:`"
        )
        yield CostFinding(CostKind.ANY_PROTOCOL, service.name, SOME_PROTOCOLS * entries, text)
    if not service.nat.clients and any(_probes_what_it_serves(service, backend) for backend in service.backends):
        text = (
            "nat: answers to health probes get the source of the VIP too, if they pass the bridge from the port of the "
            "backends; probe from another network, or write `nat: {clients: ...}`"
        )
        yield CostFinding(CostKind.NAT, service.name, entries, text)


def _probes_what_it_serves(service: Service, backend: Backend) -> bool:
    """Return whether an answer to a health probe looks like one to a client."""
    port, served = probe_port(service, backend), l4_port_of(backend.next_hop)
    if port is None:
        return False
    return port == served if served else any(port in ports for ports in service.claim.ports)


def _ecn(made: ServiceProgram) -> Iterator[CostFinding]:
    """Yield the costs of fields that are copied to outer headers, and so matched."""
    least, most = hardware_entries(made), most_entries(made)
    if most > least:
        text = (
            f"{_entry_count(least)}, or up to {most} if packets use ECN, as Open vSwitch copies it to the outer header "
            "of a tunnel: two or three times as many where TCP negotiates ECN"
        )
        yield CostFinding(CostKind.ECN, made.service.name, most, text)


def _clients(made: ServiceProgram) -> Iterator[CostFinding]:
    service, entries = made.service, hardware_entries(made)
    if service.health is None and service.backups is not None:
        text = (
            "backups without a health check get clients only when the ports of all other backends fail, or when these "
            "are drained; add `health:`"
        )
        yield CostFinding(CostKind.BACKUP, service.name, entries, text)
    if service.backups is None and any(backend.is_backup and backend.weight for backend in service.backends):
        text = (
            "only backups have a weight, so they serve all the time, as if none had `backup: true`; remove it, or give "
            "another backend a weight"
        )
        yield CostFinding(CostKind.BACKUP, service.name, entries, text)
    if made.watch is not None and (port := lone_port(service)) is not None:
        text = (
            f"no failover in the switch: all backends are behind {port}, so no other could take over when it is dead; "
            "give backends an `egress` of their own"
        )
        yield CostFinding(CostKind.FAILOVER, service.name, entries, text)
    elif (
        made.watch is not None
        and service.drain.mode is DrainMode.PIN
        and service.claim.protocol in (None, Protocol.TCP)
    ):
        text = (
            "connections that open while a block drains have no group, as `learn` takes none: when their port dies, "
            "they are lost until the agent ejects the backend; run one, or remove `drain`"
        )
        yield CostFinding(CostKind.FAILOVER, service.name, entries, text)
    yield from _ecn(made)
    if service.is_remote:
        yield from _source_ports(made)
        return
    if service.key.field is not KeyField.SOURCE_PORT:
        return
    text = (
        "source_port: connections of one client may go to different backends; balance by source_address if a backend "
        "keeps state of its clients"
    )
    yield CostFinding(CostKind.AFFINITY, service.name, entries, text)
    depth = made.decision.home.depth
    used = range(depth) if service.key.positions is None else service.key.positions[:depth]
    if service.claim.protocol is Protocol.TCP and 0 in used:
        text = (
            "bit 0 of the source port: Linux opens TCP connections from even ports, so blocks of odd ports get almost "
            "no traffic; remove the bit from `bits`"
        )
        yield CostFinding(CostKind.EVEN_PORTS, service.name, entries, text)


def _source_ports(made: ServiceProgram) -> Iterator[CostFinding]:
    """Yield the costs of paths by source port."""
    service, ports, entries = made.service, made.service.rewritten_ports, hardware_entries(made)
    blocks = 1 << service.key.max_width
    if ports is None:
        return
    if ports == LINUX_SOURCE_PORTS:
        text = (
            f"paths by source port: up to {_entry_count(entries)}, one for each source port that Linux uses; bound "
            "them with `ip link add ... srcport 49152 49216` and `source_ports: 49152-49215`, or use `by: uplink`"
        )
        yield CostFinding(CostKind.SOURCE_PORTS, service.name, entries, text)
    elif len(ports) & (len(ports) - 1):
        text = (
            f"source_ports: {len(ports)} ports are no power of two, so blocks hold unequal numbers of them; use "
            f"{1 << (len(ports).bit_length() - 1)} ports"
        )
        yield CostFinding(CostKind.SOURCE_PORTS, service.name, entries, text)
    if len(ports) < blocks:
        text = (
            f"source_ports: {len(ports)} ports are fewer than the {blocks} blocks, so some blocks "
            "never have traffic; use more ports, or fewer `blocks`"
        )
        yield CostFinding(CostKind.SOURCE_PORTS, service.name, entries, text)


def _entries(service: ServiceProgram, client_macs: int) -> int:
    return hardware_entries(service) * (1 if service.service.source_mac is None else client_macs)
