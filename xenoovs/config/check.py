"""All checks between values, on the parts of a config that have the right form."""

from __future__ import annotations

from collections.abc import Iterator

from xenoovs.config.check_between import check_backend_ports, check_between, check_switch
from xenoovs.config.check_service import check_service
from xenoovs.config.check_shares import check_shares
from xenoovs.config.drain import check_drain
from xenoovs.config.health import check_health
from xenoovs.config.remark import Remark
from xenoovs.config.structure import Checked


def check_parts(checked: Checked) -> Iterator[Remark]:
    """Every mistake that two or more right values make together."""
    default_egress = checked.switch.egress if checked.switch is not None else None
    if checked.switch is not None:
        yield from check_switch(checked.switch)
        yield from check_backend_ports(checked.switch, checked.services)
    for i, service in checked.services:
        yield from check_service(service, ("services", i), default_egress=default_egress)
        yield from check_shares(service, ("services", i))
        yield from check_health(service, ("services", i), defaults=checked.health)
        yield from check_drain(service, ("services", i), defaults=checked.drain)
    yield from check_between(checked.services)
