"""How many entries of the NIC's table a service takes once all its blocks have seen traffic."""

from __future__ import annotations

from xenoovs.compile.program import ServiceProgram
from xenoovs.model.service import Strategy


def hardware_entries(service: ServiceProgram) -> int:
    """Megaflows of a service: its flows in `classify` times the classes of its clients.

    Every ingress port, VIP and port mask is matched exactly, so each multiplies the classes. A class is a block; for
    strategy lpm it is a value of all bits that any rule looks at, since a packet is compared with the longest masks
    first. Counted for one client-side MAC (`rewrite_source_mac` needs as many again for each further one) and, where
    neighbour discovery has to be told from a service that takes any IPv6 protocol, for one IP protocol.
    """
    return len(service.classify) * _classes(service)


def _classes(service: ServiceProgram) -> int:
    rules = service.assignment.rules
    match service.service.strategy:
        case Strategy.DISJOINT:
            return len(rules)
        case Strategy.LPM:
            return 1 << max((rule.depth for rule in rules), default=0)
