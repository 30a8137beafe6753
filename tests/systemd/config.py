"""The config of the story: one service for each kind of probe."""

from __future__ import annotations

import json
from collections.abc import Mapping

from tests.systemd.guest import servers

MAC = "02:00:5e:10:00:02"
"""Of the server."""

CA = "/etc/xenoovs/ca.pem"
SERVER_NAME = "web1.example.org"
CHECK = "/usr/local/bin/check-web"
AWAY, LATE = "servers", "late"
"""Network namespaces: of the servers; one that is made when the agent runs."""
SERVER, INSIDE = "198.51.100.2", {AWAY: "203.0.113.2", LATE: "203.0.113.3"}
"""Addresses: of the server; of the namespaces, known in each alone."""

ANSWERED: Mapping[str, Mapping[str, object]] = {
    "icmp": {"probe": "icmp"},
    "arp": {"probe": "arp", "interface": "near"},
    "tcp": {"probe": "tcp", "port": servers.TCP},
    "http": {"probe": "http", "port": servers.HTTP, "path": "/health", "body": "fine"},
    "https": {"probe": "https", "port": servers.HTTPS, "path": "/health", "ca_file": CA, "server_name": SERVER_NAME},
    "dns": {"probe": "dns", "port": servers.DNS, "query": "www.example.org"},
    "udp": {"probe": "udp", "port": servers.UDP, "send": "ping", "expect": "pong"},
    "exec": {"probe": "exec", "command": [CHECK, "--quick"]},
    "netns": {"probe": "tcp", "port": servers.LOCAL, "netns": AWAY},
}
"""By service: a probe that its backend answers."""

SILENT = "silent"
"""A service whose backend refuses."""

WEIGHED = "icmp"
"""The service with two backends, web1 and web2."""

_HEALTH = {"interval": "10s", "timeout": "9s", "rise": 1, "initial": "down"}


def config(*, weight: int = 1, late: bool = False, on_agent_exit: str = "") -> str:
    """YAML.

    Args:
        weight: Of web2 of WEIGHED, that of web1 is 1.
        late: With a service that is probed from LATE.
        on_agent_exit: VIPs are announced, with this policy.
    """
    probes = {**ANSWERED, SILENT: {"probe": "tcp", "port": 9}}
    if late:
        probes[LATE] = {"probe": "icmp", "netns": LATE}
    services = [_service(name, number, probe, weight) for number, (name, probe) in enumerate(probes.items(), start=1)]
    switch = {"bridge": "ovsbr1", "ingress": ["p0"], "egress": "p1"}
    announce = {"announce": {"bgp": "frr", "on_agent_exit": on_agent_exit}} if on_agent_exit else {}
    # Every JSON text is YAML.
    return json.dumps({"version": 1, "switch": switch, **announce, "health": _HEALTH, "services": services})


def _service(name: str, number: int, probe: Mapping[str, object], weight: int) -> dict[str, object]:
    address = INSIDE[str(probe["netns"])] if "netns" in probe else SERVER
    backends: list[dict[str, object]] = [{"name": "web1", "mac": MAC, "weight": 1}]
    if name == WEIGHED:
        backends.append({"name": "web2", "mac": "02:00:5e:10:00:03", "weight": weight})
    for backend in backends:
        backend["address"] = address
    vip = f"192.0.2.{number}"
    return {"name": name, "vip": vip, "protocol": "tcp", "ports": [80], "health": probe, "backends": backends}
