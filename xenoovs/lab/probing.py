"""Health checks inside a lab: how the config changes for the lab, and what the machines answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from ipaddress import ip_address

from xenoovs.lab.responder import STATUS_PORT, CheckAnswer, Job
from xenoovs.lab.topology import Machine, Topology, mac_in_lab, vlan_in_lab
from xenoovs.model.balancer import Backend, Balancer, Health, ProbeKind, Service, probe_port

_ANSWERED = (ProbeKind.UDP, ProbeKind.DNS, ProbeKind.HTTP, ProbeKind.HTTPS)
"""Probes that the responder must answer; the kernel answers the others."""


def in_lab(balancer: Balancer, topology: Topology) -> Balancer:
    """Return the config for use in a lab: probes and agent checks are sent inside the lab.

    Backends without an address get one from the lab.

    `interface` and `netns` of the config are replaced, and any certificate is accepted. No VIP is announced: the route
    would be on this host, and lead its clients to a network that they cannot reach.
    """
    services = tuple(_service_in_lab(service, topology) for service in balancer.services)
    return replace(balancer, services=services, announce=None)


def _service_in_lab(service: Service, topology: Topology) -> Service:
    backends = tuple(_with_address(service, backend, topology) for backend in service.backends)
    health = service.health and _health_in_lab(service, service.health, topology)
    agent = service.agent_check and replace(service.agent_check, netns=topology.switch_namespace, interface=None)
    return replace(service, backends=backends, health=health, agent_check=agent)


def _health_in_lab(service: Service, health: Health, topology: Topology) -> Health:
    # Routes choose the device, except for an ARP probe, which needs its name.
    machines = [machine_of(service, backend, topology) for backend in service.backends]
    egresses = {(machine.egress, machine.vlan) for machine in machines if machine is not None}
    devices = (device.interface for device in topology.probe_devices if (device.egress, device.vlan) in egresses)
    interface = next(devices, None) if health.probe is ProbeKind.ARP else None
    health = replace(health, netns=topology.switch_namespace, interface=interface)
    return replace(health, insecure=True, ca_file=None) if health.probe is ProbeKind.HTTPS else health


def _with_address(service: Service, backend: Backend, topology: Topology) -> Backend:
    machine = machine_of(service, backend, topology)
    if machine is None or str(backend.address) in machine.own_addresses:
        return backend
    # The config has no address, or got one after the lab was built.
    return replace(backend, address=ip_address(machine.own_addresses[0]))


def machine_of(service: Service, backend: Backend, topology: Topology) -> Machine | None:
    """Return the machine that serves as a backend of a service; None if the lab was built for another config."""
    if backend.follows:
        return next((one for one in topology.machines if str(backend.address) in one.own_addresses), None)
    mac, port = mac_in_lab(service, backend, gateway_mac=topology.clients.gateway_mac), backend.next_hop.port
    vlan = vlan_in_lab(service, backend)
    named = (one for one in topology.machines if mac in one.macs and port in one.ports)
    return next((one for one in named if one.ends or one.vlan == vlan), None)


def job_of(
    machine: Machine, balancer: Balancer, topology: Topology, *, log: str, certificate: Callable[[], str]
) -> Job:
    """Return what a machine answers to clients and health checks. `certificate`: returns the PEM file for https."""
    healths = tuple(_healths(machine, balancer, topology))
    checks = tuple(_check(health, port) for health, port in healths if health.probe in _ANSWERED)
    ports = {("tcp" if check.kind.startswith("http") else "udp", check.port) for check in checks}
    tcp = {("tcp", port) for health, port in healths if health.probe is ProbeKind.TCP}
    local_addresses = () if topology.underlay is None else tuple(local for local, _ in topology.underlay.addresses)
    return Job(
        machine.label,
        machine.names,
        tuple(sorted({*machine.listen, *ports, *tcp, ("udp", STATUS_PORT)})),
        log,
        machine.own_addresses,
        checks,
        certificate=certificate() if any(check.kind == "https" for check in checks) else None,
        translated=machine.translated,
        probe_addresses=(*topology.probe_addresses, *local_addresses),
    )


def _healths(machine: Machine, balancer: Balancer, topology: Topology) -> Iterator[tuple[Health, int]]:
    """Yield the health checks of a machine that have a port, with that port."""
    for service in balancer.services:
        for backend in service.backends if service.health is not None else ():
            port = probe_port(service, backend)
            if service.health is not None and port is not None and machine_of(service, backend, topology) == machine:
                yield service.health, port


def _check(health: Health, port: int) -> CheckAnswer:
    text = health.expect if health.probe is ProbeKind.UDP else health.body
    return CheckAnswer(health.probe.value, port, health.path, health.status[0], text)
