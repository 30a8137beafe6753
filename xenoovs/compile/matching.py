"""The conditions that stages share: an IP family, a protocol, an address, in OpenFlow's fields."""

from __future__ import annotations

from xenoovs.model.address import Family, IPAddress
from xenoovs.openflow.field import ETH_IPV4, ETH_IPV6, Field
from xenoovs.openflow.match import Masked, exact

_DESTINATION = {Family.IPV4: Field.NW_DST, Family.IPV6: Field.IPV6_DST}
_ETHER_TYPE = {Family.IPV4: ETH_IPV4, Family.IPV6: ETH_IPV6}


def family_is(family: Family) -> Masked:
    return exact(Field.DL_TYPE, _ETHER_TYPE[family])


def destination_is(vip: IPAddress, family: Family) -> Masked:
    return exact(_DESTINATION[family], int(vip))
