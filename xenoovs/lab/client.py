"""The program that sends as the clients: `python -m xenoovs.lab.client`, flights on stdin, a tally on stdout.

Needs nothing but the standard library, for it starts often.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from xenoovs.lab.client_icmp import IcmpChannel
from xenoovs.lab.client_tcp import connect_all
from xenoovs.lab.client_udp import UdpChannel
from xenoovs.lab.datagrams import exchange_all
from xenoovs.lab.tally import Flight, Tally, packets_of, parse_round, render_tally


def main() -> int:
    """Send everything, wait for the answers, tell."""
    flights, lost = parse_round(sys.stdin.read())
    tally = Tally([0] * len(flights))
    try:
        _send_all(flights, tally, lost=lost)
    except OSError as error:
        print(f"cannot send: {error}", file=sys.stderr)
        return 1
    print(render_tally(tally))
    return 0


def _send_all(flights: Sequence[Flight], tally: Tally, *, lost: int) -> None:
    if packets := list(packets_of(flights, "udp")):
        exchange_all(UdpChannel(flights), packets, tally, lost=lost)
    if packets := list(packets_of(flights, "icmp")):
        exchange_all(IcmpChannel(flights), packets, tally, lost=lost)
    if packets := list(packets_of(flights, "tcp")):
        connect_all(flights, packets, tally, lost=lost)


if __name__ == "__main__":
    sys.exit(main())
