"""A fleet whose store is a cluster of three with TLS, and an agent that reads it through two tiers of relays."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.command_line import CommandLine, CommandResult, start
from tests.ovs.certificates import certificates
from tests.ovs.fleets import flow_changes, running_fleet
from tests.ovs.stores import first_view, loopback, service
from tests.patience import eventually
from xenoovs.errors import StoreRejected
from xenoovs.fleet.history import with_entry
from xenoovs.store.client import CommitOutcome, DpuStatusClient, StoreClient
from xenoovs.store.rows import StoreDatabase
from xenoovs.store.servers import OvsdbServer, server_of, server_state, stop_server
from xenoovs.store.view import Action, Changes, DpuStatus, Freeze
from xenoovs.switch.certificates import Certificates

HOSTS = [loopback(number, 236) for number in (1, 2, 3)]
NEAR, FAR = loopback(4, 236), loopback(5, 236)
"""Of the relays: the near one reads from the servers, the far one from the near one."""


def options_of(tls: Certificates) -> list[object]:
    return ["--tls-key", tls.key, "--tls-cert", tls.certificate, "--tls-ca", tls.authority]


@dataclass(frozen=True)
class Cluster:
    """The directories of its hosts, the options of their certificates, and the remotes that agents use."""

    xenoovs: CommandLine
    directories: list[Path]
    tls: list[object]
    remotes: list[object]

    def fleet(self, host: int, command: str, *arguments: object) -> CommandResult:
        return self.xenoovs("fleet", "--directory", self.directories[host], command, *arguments)

    @property
    def leader(self) -> int:
        remotes = [server_of(each, StoreDatabase.FLEET).remote for each in self.directories]
        return [server_state(remote, StoreDatabase.FLEET)["leader"] for remote in remotes].index(True)


@contextmanager
def running_cluster(directory: Path, xenoovs: CommandLine, authority: trustme.CA) -> Iterator[Cluster]:
    """As docs/how-to/fleet-set-up.md sets it up."""
    directories = [directory / f"host{number}" for number in (1, 2, 3)]
    tls = options_of(certificates(authority, directory, "store"))
    with ExitStack() as stack:

        def fleet(command: str, where: Path, *options: object) -> None:
            for name in (*(database.value for database in StoreDatabase), "relay", "operators"):
                stack.callback(stop_server, OvsdbServer(where, name))
            said = xenoovs("fleet", "--directory", where, command, *options, *tls)
            assert (said.status, said.err) == (0, ""), said.out + said.err

        for host, where in zip(HOSTS, directories, strict=True):
            fleet("init", where, "--servers", ",".join(HOSTS), "--local", host)
        for host, where in zip(HOSTS, directories, strict=True):
            fleet("server", where, "--listen", f"{host}:6661", "--listen-states", f"{host}:6663")
        source = ",".join(f"ssl:{host}:6661" for host in HOSTS)
        fleet("relay", directory / "near", "--from", source, "--listen", f"{NEAR}:6662")
        fleet("relay", directory / "far", "--from", f"ssl:{NEAR}:6662", "--listen", f"{FAR}:6662")
        states = ",".join(f"ssl:{host}:6663" for host in HOSTS)
        yield Cluster(xenoovs, directories, tls, ["--fleet", f"ssl:{FAR}:6662", "--fleet-state", states])


def test_a_fleet_is_restored_into_a_cluster_with_tls_and_followed_through_two_tiers_of_relays(
    tmp_path: Path, xenoovs: CommandLine
) -> None:
    authority, file = trustme.CA(), tmp_path / "fleet.json"
    with running_fleet(tmp_path, xenoovs, dpus=1) as store:
        (dpu,) = store.dpus
        assert store.fleet("weight", "dns", "fips2", "50").status == 0
        assert store.fleet("export", file).status == 0
        dpu.stop()
        store.end_controller()
        store.stop()
        with running_cluster(tmp_path, xenoovs, authority) as cluster:
            leader = cluster.leader
            follower = (leader + 1) % len(HOSTS)
            said = cluster.fleet(follower, "restore", file, "--yes")
            assert (said.status, said.err) == (0, ""), said.out
            store.controllers.append(start("fleet", "--directory", cluster.directories[leader], "serve"))
            with flow_changes(dpu, tmp_path / "changes") as changes:
                told = changes.read_text()
                tls = options_of(certificates(authority, tmp_path, "dpu1"))
                words = ["agent", dpu.config, "--db", dpu.bridge.ovs.db, *cluster.remotes, *tls, "--dpu", "dpu1"]
                dpu.process = start(*words)
                eventually(lambda: states(cluster, leader) == ["applied"], "the restored generation")
                assert changes.read_text() == told
            blocks = dpu.blocks()
            # A command at a follower, which passes it on to the leader.
            assert cluster.fleet(follower, "reset", "dns", "fips2").status == 0
            assert dpu.blocks() != blocks
            shown = document(cluster, leader)
            assert shown["dpus"][0]["certificate_left_s"] > 86_400
            servers = shown["servers"]
            assert all(each["certificate_left_s"] > 86_400 for each in servers)
            assert sorted(each["role"] for each in servers if each["database"] == "xenoovs") == ["leader"]
            dpu.stop()


def test_operators_at_a_follower_and_dpus_at_each_server_have_their_roles(tmp_path: Path, xenoovs: CommandLine) -> None:
    """Also at servers that joined the one that made the roles."""
    authority, operators = trustme.CA(), trustme.CA()
    dpu1, ann = certificates(authority, tmp_path, "dpu1"), certificates(operators, tmp_path, "ann")
    with running_cluster(tmp_path, xenoovs, authority) as cluster:
        follower = (cluster.leader + 1) % len(HOSTS)
        # The leader decides about what the relay of operators beside a follower gets.
        port = f"{HOSTS[follower]}:6664"
        gate = ["--only", "operators", "--listen-operators", port, "--operators-ca", ann.authority, *cluster.tls]
        assert cluster.fleet(follower, "server", *gate).status == 0
        ann_here = replace(ann, authority=dpu1.authority)
        with StoreClient(f"ssl:{port}", with_intents=True, tls=ann_here) as operator:
            view, freeze = first_view(operator), Changes(freezes={"fleet": Freeze("fleet", 1, "ann")})
            entry = Action(0, 1, "ann", "freeze", certificate="ann")
            assert operator.commit(0, with_entry(view, freeze, entry)) is CommitOutcome.COMMITTED
            made = Changes(services={"dns": service("dns", "a")})
            for refused in (made, with_entry(view, freeze, replace(entry, certificate=""))):
                with pytest.raises(StoreRejected, match="RBAC rules"):
                    operator.commit(1, refused)
        for host in HOSTS:
            with DpuStatusClient(f"ssl:{host}:6663", tls=dpu1) as writer:
                writer.put(DpuStatus("dpu2"))
                eventually(lambda: "RBAC rules" in writer.connection.problem, f"the refusal at {host}")
        assert cluster.fleet(follower, "server", "--stop").status == 0
        without = cluster.fleet(follower, "server", "--listen", f"{HOSTS[follower]}:6661")
        assert (without.status, "talks to its cluster at ssl:" in without.err) == (1, True)
        assert "give --tls-key, --tls-cert and --tls-ca" in without.err


def document(cluster: Cluster, host: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cluster.fleet(host, "status", "-o", "json").out)
    return found


def states(cluster: Cluster, host: int) -> list[str]:
    return [dpu["state"] for dpu in document(cluster, host)["dpus"]]
