"""A profile for the packet generator TRex, with packets for every block of a config by its share.

It uses the stateless API (trex_stl_lib.api; https://trex-tgn.cisco.com/trex/doc/cp_stl_docs/): a stream for each block,
with the block's size as its rate; the other address bits are random.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import click

from xenoovs import __version__
from xenoovs.compile.encoding import key_of
from xenoovs.compile.program import BlockFlow, compile_config
from xenoovs.errors import MeasureError
from xenoovs.lab.topology import client_net, parse_net, tried_ports, used_addresses
from xenoovs.measure.frames import SOURCE_PORT
from xenoovs.model.address import Family, IPAddress, IPNetwork
from xenoovs.model.balancer import MAX_KEY_BITS, Balancer, KeyField, Protocol, Service
from xenoovs.model.packet import own_addresses
from xenoovs.openflow.flow import ETH_IPV6, Field
from xenoovs.terminal.load import load
from xenoovs.terminal.options import config_argument
from xenoovs.terminal.output import echo

_FUNCTIONS = '''\

class Blocks(object):
    """One stream for each block; its rate is the size of the block, and every bit that the block leaves is random."""

    def get_streams(self, direction, tunables, **kwargs):
        parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
        parser.add_argument("--size", type=int, default=64, help="bytes of a frame, with its checksum")
        parser.add_argument("--clients", type=int, default=0, help="how many addresses send, about; 0: any")
        args = parser.parse_args(tunables)
        # Only the first port of a pair sends: backends answer the clients themselves.
        return [self.stream(block, args) for block in BLOCKS] if direction == 0 else []

    def stream(self, block, args):
        ethernet = Ether(dst=block["mac"]) if block["mac"] else Ether()
        addresses = {"src": block["source"], "dst": block["vip"]}
        layer3, l3 = (IPv6(**addresses), "IPv6") if ":" in block["vip"] else (IP(**addresses), "IP")
        ports = {"sport": block["sport"], "dport": block["port"]}
        layer4, l4 = (TCP(**ports), "TCP") if block["protocol"] == "tcp" else (UDP(**ports), "UDP")
        packet = ethernet / layer3 / layer4
        packet = packet / ("x" * max(0, args.size - 4 - len(packet)))
        commands = [
            self.variable("client", 4, args.clients * block["pps"] // TOTAL_PPS if args.clients else None),
            STLVmWrMaskFlowVar(
                fv_name="client",
                pkt_offset=l3 + ".src",
                offset_fixup=12 if l3 == "IPv6" else 0,
                pkt_cast_size=4,
                mask=block["free_source"],
            ),
        ]
        if block["free_sport"]:
            commands += [
                self.variable("sport", 2, None),
                STLVmWrMaskFlowVar(
                    fv_name="sport", pkt_offset=l4 + ".sport", pkt_cast_size=2, mask=block["free_sport"]
                ),
            ]
        kind = CTRexVmInsFixHwCs.L4_TYPE_TCP if l4 == "TCP" else CTRexVmInsFixHwCs.L4_TYPE_UDP
        commands.append(STLVmFixChecksumHw(l3_offset=l3, l4_offset=l4, l4_type=kind))
        return STLStream(
            name=block["name"],
            packet=STLPktBuilder(pkt=packet, vm=STLScVmRaw(commands)),
            mode=STLTXCont(pps=block["pps"]),
        )

    def variable(self, name, size, limit):
        highest = (1 << 8 * size) - 1
        if limit is None:
            return STLVmFlowVar(name=name, size=size, min_value=0, max_value=highest, op="random")
        return STLVmFlowVarRepeatableRandom(name=name, size=size, limit=max(1, limit), min_value=0, max_value=highest)


def register():
    return Blocks()
'''

_LOW_WORD = 0xFFFFFFFF
"""TRex writes at most 32 bits of an address at once."""


def trex_profile(balancer: Balancer, *, sources: Sequence[IPNetwork], file: str) -> str:
    """Return the Python source of a profile. `sources`: The net of clients for each IP version of the config.

    Raises MeasureError if TRex cannot send a service's packets, or all clients of a net are in one block;
    ToleranceUnreachable, BudgetUnreachable if no blocks fit the config.
    """
    blocks = []
    for service in compile_config(balancer).services:
        served = service.service.claim.served_families
        nets = {family: _net(service.service, family, sources) for family in served}
        vips = {family: own_addresses(service.service, family, balancer.services) for family in served}
        for number, block in enumerate(service.blocks):
            family = _family(block)
            blocks.append(_block(service.service, number, block, nets[family], vips[family]))
    rows = "".join(f"    {{{', '.join(f'{name!r}: {value}' for name, value in row.items())}}},\n" for row in blocks)
    return (
        '"""Packets to every block of a service, in its share. In the console of TRex, for example:\n\n'
        "    start -f blocks.py -p 0 -m 10mpps -t --size 128 --clients 1000\n"
        '"""\n\n'
        f"# Written by xenoovs {__version__} from {file!r}.\n\n"
        "import argparse\n\nfrom trex_stl_lib.api import *\n\n"
        "# free_source, free_sport: the bits of the client's address (its last four bytes) and port that are random.\n"
        f"BLOCKS = [\n{rows}]\n\nTOTAL_PPS = sum(block['pps'] for block in BLOCKS)\n\n{_FUNCTIONS}"
    )


def _family(block: BlockFlow) -> Family:
    dl_type = block.flow.match.get(Field.DL_TYPE)
    return Family.IPV6 if dl_type is not None and dl_type.value == ETH_IPV6 else Family.IPV4


def _net(service: Service, family: Family, sources: Iterable[IPNetwork]) -> IPNetwork:
    net = next((net for net in sources if net.max_prefixlen == family.bits), None)
    if net is None:
        version = 4 if family is Family.IPV4 else 6
        raise MeasureError(
            f"service {service.name} serves IPv{version}; name a net of IPv{version} clients with --sources"
        )
    return net


def _block(
    service: Service, number: int, block: BlockFlow, net: IPNetwork, vips: Sequence[IPAddress]
) -> dict[str, str]:
    """Return the template values of a block, as Python source."""
    protocol, family = service.claim.protocol or Protocol.UDP, _family(block)
    if protocol not in (Protocol.UDP, Protocol.TCP):
        raise MeasureError(f"service {service.name} serves {protocol.value}; a profile can send UDP and TCP alone")
    if service.claim.vlan:
        raise MeasureError(f"service {service.name} is in a VLAN; a profile sends frames without a tag")
    if not vips:
        raise MeasureError(f"service {service.name} has no `vip`; add one, so that a profile has where to send to")
    by_port = service.key.field is KeyField.SOURCE_PORT
    condition = key_of(block.flow, service.key.field)
    value, mask = (0, 0) if by_port else (condition.value, condition.mask)
    host_bits = int(net.hostmask)
    if mask & ~host_bits:
        raise MeasureError(
            f"service {service.name} splits clients by bit {mask.bit_length() - 1} of their address, which is the same "
            f"for all of {net}; name a larger net with --sources"
        )
    address = IPv4Address if family is Family.IPV4 else IPv6Address
    sport, free_sport = (condition.value, 0xFFFF & ~condition.mask) if by_port else (SOURCE_PORT, 0)
    return {
        "name": repr(f"{service.name}-{'v6-' if family is Family.IPV6 else ''}{number}-{block.backend.name}"),
        "pps": str(1 << MAX_KEY_BITS - block.rule.depth),
        "mac": repr("" if service.vip_mac is None else str(service.vip_mac)),
        "vip": repr(str(vips[0])),
        "protocol": repr(protocol.value),
        "port": str(tried_ports(service.claim)[0]),
        "source": repr(str(address(int(net.network_address) | value))),
        "free_source": f"{host_bits & ~mask & _LOW_WORD:#x}",
        "sport": str(sport),
        "free_sport": f"{free_sport:#x}",
    }


@click.command("trex-profile")
@config_argument
@click.option(
    "--sources",
    multiple=True,
    metavar="NET",
    help="Net of the clients, one for each IP version; default: nets for benchmarks and documentation.",
)
def trex_profile_command(config: Path, sources: tuple[str, ...]) -> None:
    """Print a profile for the packet generator TRex, with packets for every block of FILE by its share.

    The profile is Python source for TRex's stateless API. It has a stream for each block, with the block's size as its
    rate; the other address bits are random.

    \b
    Example:
      xenoovs measure trex-profile my.yaml > blocks.py
    In the console of TRex:
      start -f blocks.py -p 0 -m 10mpps -t --size 128 --clients 1000
    """
    balancer = load(config)
    families = {family for service in balancer.services for family in service.claim.served_families}
    usual = (client_net(family, used_addresses(balancer)) for family in families)
    nets = (*map(parse_net, sources), *usual)
    echo(trex_profile(balancer, sources=nets, file=str(config)), nl=False)
