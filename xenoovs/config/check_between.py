"""What must hold between services, and between services and the switch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from xenoovs.config.build import claim_of
from xenoovs.config.claims import Occupancy
from xenoovs.config.remark import Remark
from xenoovs.config.salvage import Lost
from xenoovs.config.schema import ServiceConfig, SwitchConfig
from xenoovs.model.address import IPAddress, Mac
from xenoovs.model.balancer import OtherTraffic

Numbered = tuple[int, ServiceConfig]


def check_switch(switch: SwitchConfig, lost: Lost) -> Iterator[Remark]:
    """The bridge's own ports. `lost`: of the switch, what is not to be judged."""
    for index, port in enumerate(switch.ingress):
        if port in switch.ingress[:index]:
            yield Remark(("switch", "ingress", index), f"port {port} is listed twice; list each port once")
    if switch.egress in switch.ingress and not lost.has(("egress",)):
        yield Remark(
            ("switch", "egress"),
            f"{switch.egress} is an ingress port too; clients enter by one port and backends are behind another",
        )
    is_passthrough = switch.other_traffic is OtherTraffic.PASSTHROUGH and not lost.has(("other_traffic",))
    if is_passthrough and len(set(switch.ingress)) > 1:
        yield Remark(
            ("switch", "other_traffic"),
            f"passthrough with {len(switch.ingress)} ingress ports cannot tell by which of them a reply leaves; "
            "write `other_traffic: normal`",
        )


def check_backend_ports(switch: SwitchConfig, services: Iterable[Numbered]) -> Iterator[Remark]:
    """OpenFlow drops a packet that is output to the port it came from (OpenFlow 1.4.1, 7.2.1, OFPP_IN_PORT)."""
    for i, service in services:
        for j, backend in enumerate(service.backends):
            if backend.egress in switch.ingress:
                yield Remark(
                    ("services", i, "backends", j, "egress"),
                    f"{backend.egress} is an ingress port; a bridge does not send packets back where they entered, "
                    "so put the backend behind another port",
                )


def check_between(services: Iterable[Numbered], lost: Mapping[int, Lost] | None = None) -> Iterator[Remark]:
    """Names, packets and VIP MACs that more than one service claims. `lost`: by index, what is not to be judged."""
    numbered, wrong = tuple(services), lost or {}

    def sound(*names: str) -> tuple[Numbered, ...]:
        paths = [(name,) for name in names]
        return tuple((i, service) for i, service in numbered if i not in wrong or not wrong[i].has(*paths))

    named = sound("name")
    yield from _check_names(named)
    yield from _check_claims(sound("vip", "protocol", "ports", "match"), {i: service.name for i, service in named})
    yield from _check_vip_macs(sound("vip", "vip_mac"))


def _check_names(services: Iterable[Numbered]) -> Iterator[Remark]:
    first: dict[str, int] = {}
    for i, service in services:
        other = first.setdefault(service.name, i)
        if other != i:
            yield Remark(("services", i, "name"), f"'{service.name}' is already services[{other}]; name each once")


def _check_claims(services: tuple[Numbered, ...], names: Mapping[int, str]) -> Iterator[Remark]:
    """Services without a VIP go first: they claim packets of every VIP. `names`: as far as they are right."""
    occupancy = Occupancy()
    for i, service in sorted(services, key=lambda numbered: bool(numbered[1].vip)):
        clash = occupancy.add(claim_of(service), owner=i)
        if clash is not None:
            one, other = sorted((i, clash.owner))
            who, whose = names.get(other, "this service"), f"services[{one}]{_called(names, one)}"
            yield Remark(
                ("services", other),
                f"{who} claims packets that {whose} claims too ({clash}); change vip, protocol or ports of one",
            )


def _called(names: Mapping[int, str], index: int) -> str:
    return f" ({names[index]})" if index in names else ""


def _check_vip_macs(services: Iterable[Numbered]) -> Iterator[Remark]:
    first: dict[IPAddress, tuple[Mac, int]] = {}
    for i, service in services:
        if service.vip_mac is None:
            continue
        for vip in service.vip:
            mac, other = first.setdefault(vip, (service.vip_mac, i))
            if mac != service.vip_mac:
                yield Remark(
                    ("services", i, "vip_mac"),
                    f"{service.vip_mac} answers for {vip}, for which services[{other}] answers {mac}; "
                    "write one MAC for one address",
                )
                break
