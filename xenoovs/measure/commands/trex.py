"""`xenoovs measure trex-profile`: the load of a config for the packet generator TRex."""

from __future__ import annotations

from pathlib import Path

import click

from xenoovs.lab.topology import IPNetwork, client_net, parse_net, used_addresses
from xenoovs.measure.trex_profile import trex_profile
from xenoovs.model.balancer import Balancer
from xenoovs.terminal.load import load
from xenoovs.terminal.options import bridge_option, config_argument
from xenoovs.terminal.output import echo


@click.command("trex-profile")
@config_argument
@bridge_option
@click.option(
    "--sources",
    multiple=True,
    metavar="NET",
    help="Net of the clients, one for each IP version; default: nets for benchmarks and documentation.",
)
def trex_profile_command(config: Path, sources: tuple[str, ...]) -> None:
    """Print a profile for the packet generator TRex that meets every block of FILE in its share.

    The profile is Python source for TRex's stateless API. It has a stream for each block, whose rate is the size of the
    block, and whose other address bits are random.

    \b
    Example:
      xenoovs measure trex-profile my.yaml > blocks.py
    In the console of TRex:
      start -f blocks.py -p 0 -m 10mpps -t --size 128 --clients 1000
    """
    balancer = load(config)
    nets = (*map(parse_net, sources), *_usual_nets(balancer))
    echo(trex_profile(balancer, sources=nets, file=str(config)), nl=False)


def _usual_nets(balancer: Balancer) -> list[IPNetwork]:
    families = {family for service in balancer.services for family in service.claim.served_families}
    return [client_net(family, used_addresses(balancer)) for family in families]
