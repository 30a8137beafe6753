"""ARP packets in the form that the simulation reads."""

from __future__ import annotations

from xenoovs.judge.simulate.walk import Headers
from xenoovs.openflow.flow import ETH_ARP, UNTAGGED, Field


def arp_request(in_port: str, *, sender_mac: int, sender: int, target: int, vlan: int = UNTAGGED) -> Headers:
    """Who has `target`? Addresses as integers, the Ethernet destination is broadcast (RFC 826).

    `vlan`: as `openflow.flow.Field.VLAN`.
    """
    return Headers(
        in_port,
        {
            Field.DL_SRC: sender_mac,
            Field.DL_DST: Field.DL_DST.all_ones,
            Field.VLAN: vlan,
            Field.DL_TYPE: ETH_ARP,
            Field.NW_SRC: sender,
            Field.NW_DST: target,
            Field.NW_PROTO: 1,
            Field.ARP_SHA: sender_mac,
        },
    )
