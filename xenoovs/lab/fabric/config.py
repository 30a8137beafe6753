"""The config of each DPU of a fabric lab."""

from __future__ import annotations

from xenoovs.lab.fabric.plan import BRIDGE, PROBE_PORT, SOURCE_PORTS, UPLINK, Fabric, Site
from xenoovs.lab.topology import HOST_PORT

_CONFIG = """\
# {dpu}: the tunnels of {host} choose their paths through the fabric.
version: 1
switch: {{bridge: {bridge}, ingress: [{uplink}], egress: {host_port}}}
services: []
tunnels:
  - name: fabric
    type: vxlan
    local: {local}
    host_port: {host_port}
    source_ports: {first}-{last}
    remotes:
{remotes}
    paths: {{by: source_port, count: {paths}, discover: ttl}}
    probe: {{port: {probe_port}, gateway: "{gateway}"}}
    margin: {margin_us}us             # a quarter of a full queue
    reflect: l3
"""


def render_dpu_config(fabric: Fabric, site: Site) -> str:
    shape = fabric.shape
    full_us = shape.buffer_bytes * 8 * 1_000_000 // shape.rate_bps
    remotes = [other for other in fabric.sites if other.leaf != site.leaf]
    return _CONFIG.format(
        dpu=site.dpu,
        host=site.host,
        bridge=BRIDGE,
        uplink=UPLINK,
        host_port=HOST_PORT,
        local=site.port.ip,
        first=SOURCE_PORTS[0],
        last=SOURCE_PORTS[1],
        remotes="\n".join(f"      - {{name: {other.host}, address: {other.port.ip}}}" for other in remotes),
        paths=shape.paths,
        margin_us=full_us // 4,
        probe_port=PROBE_PORT,
        gateway=site.gateway.mac,
    )
