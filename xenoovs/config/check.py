"""All checks between values, on the parts of a config that have the right form."""

from __future__ import annotations

from collections.abc import Iterator

from xenoovs.config.check_between import check_backend_ports, check_between, check_switch
from xenoovs.config.check_service import check_service
from xenoovs.config.check_shares import check_shares
from xenoovs.config.health import check_health
from xenoovs.config.remark import Remark
from xenoovs.config.salvage import Lost
from xenoovs.config.structure import Checked


def check_parts(checked: Checked) -> Iterator[Remark]:
    """Every mistake that two or more right values make together."""
    lost_switch = Lost(frozenset(path[1:] for path in checked.lost_around.paths if path[:1] == ("switch",)))
    is_egress_known = checked.switch is not None and not lost_switch.has(("egress",))
    default_egress = checked.switch.egress if checked.switch is not None and is_egress_known else None
    if checked.switch is not None:
        yield from check_switch(checked.switch, lost_switch)
        yield from check_backend_ports(checked.switch, checked.services)
    for i, service in checked.services:
        lost = checked.lost_of(i)
        yield from check_service(service, ("services", i), default_egress=default_egress, lost=lost)
        yield from check_shares(service, ("services", i), lost=lost)
        yield from check_health(service, ("services", i), defaults=checked.health, lost=lost)
    yield from check_between(checked.services, checked.lost)
