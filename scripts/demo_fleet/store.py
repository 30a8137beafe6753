"""The store of the demo: three servers with a controller each, two relays, and the agents of the DPUs."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from scripts.demo_fleet.place import Place
from xenoovs.errors import StoreUnreachable
from xenoovs.store.rows import StoreDatabase
from xenoovs.store.servers import OvsdbServer, create_databases, parse_server, server_of, server_state
from xenoovs.switch.process import run

HOSTS = {"store1": "127.0.0.1", "store2": "127.0.0.2", "store3": "127.0.0.3"}
"""Addresses on the loopback of one namespace: without TLS nothing listens elsewhere."""

NAMESPACE = "store"
RELAYS = {"relay1": "127.0.0.1:6662", "relay2": "127.0.0.2:6662"}
_DPU = "version: 1\nswitch: {bridge: ovsbr1, ingress: [p0], egress: p1}\n"


def directory_of(place: Place, host: str) -> Path:
    """Return the directory of a server of the store."""
    return place.directory / host


def start_server(place: Place, host: str) -> None:
    """Create the databases of a host, start their servers, and the controller beside them."""
    directory, address = directory_of(place, host), HOSTS[host]
    servers = [parse_server(other) for other in HOSTS.values()]
    create_databases(directory, name="demo", servers=servers, local=list(HOSTS).index(host))
    options = ["--directory", str(directory)]
    _run(place, host, *options, "server", "--listen", f"{address}:6661", "--listen-states", f"{address}:6663")
    place.start(host, f"{host}.log", "xenoovs", "fleet", *options, "serve", namespace=NAMESPACE)


def start_relay(place: Place, relay: str) -> None:
    """Start a relay of all servers."""
    source = ",".join(f"tcp:{address}:6661" for address in HOSTS.values())
    options = ["--directory", str(place.directory / relay)]
    _run(place, relay, *options, "relay", "--from", source, "--listen", RELAYS[relay])


def _run(place: Place, host: str, *words: str) -> None:
    run(place.python(NAMESPACE, "xenoovs", "fleet", *words), env=place.marks(host), timeout_s=60.0)


def start_agent(place: Place, dpu: str) -> None:
    """Start the agent of a DPU, in its namespace; unix sockets stand for the network of the management."""
    config = place.directory / f"{dpu}.yaml"
    config.write_text(_DPU)
    relays = (OvsdbServer(place.directory / relay, "relay").remote for relay in RELAYS)
    states = (server_of(directory_of(place, host), StoreDatabase.STATES).remote for host in HOSTS)
    store = ["--fleet", ",".join(relays), "--fleet-state", ",".join(states), "--dpu", dpu]
    db = f"unix:{place.directory / dpu / 'db.sock'}"
    place.start(dpu, f"{dpu}.log", "xenoovs", "agent", str(config), "--db", db, *store)


def leader(place: Place) -> str | None:
    """Return the host whose server leads the cluster of the services; None: an election goes on."""
    for host in HOSTS:
        with suppress(StoreUnreachable):
            remote = server_of(directory_of(place, host), StoreDatabase.FLEET).remote
            if server_state(remote, StoreDatabase.FLEET)["leader"]:
                return host
    return None
