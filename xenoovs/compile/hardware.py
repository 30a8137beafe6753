"""How many entries of the NIC's table a service takes once all its blocks have seen traffic."""

from __future__ import annotations

from collections import Counter

from xenoovs.compile.program import ServiceProgram
from xenoovs.openflow.field import Field
from xenoovs.openflow.flow import Flow


def hardware_entries(service: ServiceProgram) -> int:
    """Megaflows of a service: for each IP family, its flows in `classify` times its blocks.

    Every ingress port, VIP and port mask is matched exactly, so each multiplies the blocks. Counted for one client-side
    MAC (`rewrite_source_mac` needs as many again for each further one) and, where neighbour discovery has to be told
    from a service that takes any IPv6 protocol, for one IP protocol.
    """
    classify = Counter(map(_family, service.classify))
    blocks = Counter(_family(block.flow) for block in service.blocks)
    return sum(classify[family] * blocks[family] for family in classify)


def _family(flow: Flow) -> int | None:
    dl_type = flow.match.get(Field.DL_TYPE)
    return None if dl_type is None else dl_type.value
