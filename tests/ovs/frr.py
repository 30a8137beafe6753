"""Two routers with FRR for tests, each in a network namespace of its own: the host of an agent, and its neighbor."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from tempfile import mkdtemp

from tests.patience import eventually
from xenoovs.switch.process import run, try_run

_DAEMONS = Path("/usr/lib/frr")
_ADDRESSES = ("198.51.100.1", "2001:db8:0:1::1"), ("198.51.100.2", "2001:db8:0:1::2")
PAGE = Path(__file__).parents[2] / "docs/how-to/announce-a-vip.md"
_NEIGHBOR = """
router bgp 65002
 bgp router-id 198.51.100.2
 no bgp ebgp-requires-policy
 no bgp default ipv4-unicast
 neighbor 198.51.100.1 remote-as 65001
 neighbor 2001:db8:0:1::1 remote-as 65001
 address-family ipv4 unicast
  neighbor 198.51.100.1 activate
 address-family ipv6 unicast
  neighbor 2001:db8:0:1::1 activate
"""


def documented_configs() -> tuple[str, ...]:
    """The configurations of the how-to page: one that redistributes, one that names each network."""
    return tuple(re.findall(r"^```frr\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL))


@dataclass(frozen=True, slots=True)
class Router:
    """One FRR: zebra and bgpd. run: the directory of its sockets, its config and `vtysh`, which asks this FRR."""

    netns: str
    run: Path
    addresses: tuple[str, str]

    def start(self) -> None:
        """Start both daemons; they read the config of the directory."""
        for daemon in ("zebra", "bgpd"):
            argv = [str(_DAEMONS / daemon), "-d", "-f", str(self.run / "frr.conf"), "--vty_socket", str(self.run)]
            argv += [f"--pid_file={self.run / daemon}.pid", "-z", str(self.run / "zserv.api"), "-A", "127.0.0.1"]
            if daemon == "bgpd":
                argv += [word for address in self.addresses for word in ("-l", address)]
            # Zebra of FRR 10 keeps stderr: who reads it waits for the end of the daemon.
            in_netns = ["ip", "netns", "exec", self.netns, *argv]
            subprocess.run(in_netns, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def stop(self, *daemons: str, how: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to daemons, both if none is named; wait for the end of those that are killed."""
        for daemon in daemons or ("bgpd", "zebra"):
            with suppress(FileNotFoundError, ProcessLookupError):
                pid = int((self.run / f"{daemon}.pid").read_text())
                os.kill(pid, how)
                if how is signal.SIGKILL:
                    gone = Path(f"/proc/{pid}")
                    eventually(lambda gone=gone: not gone.exists(), f"{daemon} ends")  # type: ignore[misc]
                    (self.run / f"{daemon}.pid").unlink()

    def vtysh(self, command: str) -> str:
        return run([str(self.run / "vtysh"), "-c", command]).stdout

    def has(self, vip: str) -> bool:
        """Whether bgpd has a route for this address alone, or for this prefix."""
        done = try_run(
            [str(self.run / "vtysh"), "-c", f"show bgp ipv{ip_network(vip).version} unicast {ip_network(vip)} json"]
        )
        return done.exit_code == 0 and bool(json.loads(done.stdout).get("paths"))

    def ip(self, *arguments: str) -> str:
        return run(["ip", "-n", self.netns, *arguments]).stdout


@contextmanager
def two_routers(config: str) -> Iterator[tuple[Router, Router]]:
    """The host, with a configuration, and its neighbor, with BGP sessions over IPv4 and IPv6, within a `with`."""
    # FRR runs as a user of its own, which cannot enter the directories of pytest.
    top = Path(mkdtemp(prefix="xenoovs-frr-"))
    top.chmod(0o755)
    names = tuple(f"xofrr{top.name.rpartition('-')[2]}{end}" for end in "ab")
    routers = tuple(Router(name, top / name, addresses) for name, addresses in zip(names, _ADDRESSES, strict=True))
    try:
        for router in routers:
            run(["ip", "netns", "add", router.netns])
            router.ip("link", "set", "lo", "up")
        routers[0].ip("link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", routers[1].netns)
        for router in routers:
            for address, length in zip(router.addresses, ("24", "64"), strict=True):
                nodad = ["nodad"] if ":" in address else []
                router.ip("address", "add", f"{address}/{length}", "dev", "eth0", *nodad)
            router.ip("link", "set", "eth0", "up")
        for router, text in zip(routers, (config, _NEIGHBOR), strict=True):
            router.run.mkdir()
            shutil.chown(router.run, "frr", "frr")
            (router.run / "frr.conf").write_text(text)
            wrapper = router.run / "vtysh"
            wrapper.write_text(f'#!/bin/sh\nexec /usr/bin/vtysh --vty_socket {router.run} "$@"\n')
            wrapper.chmod(0o755)
            router.start()
        yield routers[0], routers[1]
    finally:
        for router in routers:
            router.stop(how=signal.SIGCONT)
            router.stop()
            try_run(["ip", "netns", "delete", router.netns])
        shutil.rmtree(top)
