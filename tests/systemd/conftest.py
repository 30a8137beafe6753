"""A machine under systemd for each test, with a network in which a server is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.machines import install_packages
from tests.systemd.config import AWAY, INSIDE, MAC, SERVER
from tests.systemd.install import Installed, install
from tests.systemd.machine import Machine, booted

_NETWORK = f"""\
for port in p0 p1; do ip link add $port up type veth peer name $port-far; ip link set $port-far up; done
ip netns add {AWAY}
ip link add near type veth peer name far netns {AWAY}
ip addr add 198.51.100.1/24 dev near
ip link set near up
ip -n {AWAY} addr add {SERVER}/24 dev far
ip -n {AWAY} link set far address {MAC}
ip -n {AWAY} addr add {INSIDE[AWAY]}/32 dev lo
for device in lo far; do ip -n {AWAY} link set $device up; done
"""


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    install_packages()
    return install(tmp_path_factory.mktemp("install"))


@pytest.fixture
def machine(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with booted(tmp_path_factory.mktemp("machine"), installed) as made:
        made.must(_NETWORK)
        yield made
