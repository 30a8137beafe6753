"""An agent reads of a view only the services that have changed, and still compares them with the others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests import fleet_support
from tests.fleet_support import EMPTY
from xenoovs.agent.fleet_checks import FleetWatches, fleet_checks
from xenoovs.agent.health import Checks
from xenoovs.config.fleet import NEUTRAL, join
from xenoovs.errors import ConfigError
from xenoovs.fleet.services import ViewReader
from xenoovs.store.view import StoredService

_SERVICE = """
  - name: {name}
    vip: {vip}
    vip_mac: 02:00:5e:00:00:{number}
    protocol: tcp
    ports: [80]
    mode: nat
    backends: [{{name: b, mac: "02:00:5e:10:00:{number}", address: 192.0.2.{number}, weight: 1}}]
"""
_TEXT = "version: 1\nswitch: {ingress: [in], egress: out}\nservices:" + "".join(
    _SERVICE.format(name=name, vip=f"198.51.100.{number}", number=number) for name, number in (("one", 11), ("two", 12))
)


def rows() -> dict[str, StoredService]:
    return dict(fleet_support.settled(fleet_support.given(EMPTY, _TEXT)).services)


@pytest.mark.parametrize(
    "edits",
    [
        {'"name":"two"': '"name":"one"'},
        {"198.51.100.12": "198.51.100.11"},
        {"198.51.100.12": "198.51.100.11", "[80]": "[81]"},  # one address with two MACs
        {"192.0.2.12": "192.0.2.11"},
        {"192.0.2.12": "198.51.100.11"},
        {'"weight":1': '"weight":-1'},
    ],
)
def test_a_changed_service_that_clashes_with_another_one_is_refused_with_all_that_is_wrong(
    edits: dict[str, str],
) -> None:
    before = rows()
    reader = ViewReader()
    reader.read(before.values(), NEUTRAL, file="local")
    text = before["two"].config
    for old, new in edits.items():
        assert old in text
        text = text.replace(old, new)
    after = [before["one"], replace(before["two"], config=text)]
    with pytest.raises(ConfigError) as alone:
        ViewReader().read(after, NEUTRAL, file="local")
    with pytest.raises(ConfigError) as read:
        reader.read(after, NEUTRAL, file="local")
    assert read.value.findings == alone.value.findings


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            '"mac":"02:00:5e:10:00:12"',
            '"mac":"x"',
            "services[0].backends[0].mac: 'x' is not a MAC address; write one such",
        ),
        ('"weight":1', '"weight":-1', "services[0].backends[0].weight: -1 is below 0; write 0 for a backend"),
        ('"churn":"balanced"', '"newer":1', "services[0].newer: unknown key; known keys: name,"),
    ],
)
def test_a_mistake_in_a_stored_service_is_found_and_no_default_takes_its_place(old: str, new: str, said: str) -> None:
    row = rows()["two"]
    assert old in row.config
    with pytest.raises(ConfigError) as refused:
        ViewReader().read([replace(row, config=row.config.replace(old, new))], NEUTRAL, file="local")
    place, _, message = str(refused.value).partition(": ")
    assert place.startswith("service two of the fleet:1:")
    assert message.startswith(said)


@pytest.mark.parametrize(
    "stored",
    [
        '"health":{"probe":"exec","command":["/bin/evil"]}',
        '"health":{"command":["/bin/evil"]}',
        '"health":{},"notify":{"command":["/bin/evil"]}',
        '"agent_check":{"port":9707}',
    ],
)
def test_no_dpu_runs_a_program_that_the_store_names(stored: str) -> None:
    """Not even where the file of the DPU has a program for all services, whose arguments the store could replace."""
    local = NEUTRAL + "health: {probe: exec, command: [/bin/own]}\n"
    config = rows()["one"].config.removesuffix("}") + f",{stored}}}"
    balancer = join(local, {"one": config}, file="dpu.yaml")
    (service,) = balancer.services
    assert (service.health and service.health.command, service.notify, service.agent_check) == (
        ("/bin/own",),
        None,
        None,
    )
    assert fleet_checks(balancer, FleetWatches(1)) == Checks()


def test_services_that_did_not_change_are_not_read_again() -> None:
    before = rows()
    reader = ViewReader()
    first, decided = reader.read(before.values(), NEUTRAL, file="local")
    text = before["two"].config.replace("02:00:5e:10:00:12", "02:00:5e:10:00:13")
    second, again = reader.read([before["one"], replace(before["two"], config=text)], NEUTRAL, file="local")
    assert second.services[0] is first.services[0]
    assert again["one"] is decided["one"]
    assert second.services[1] != first.services[1]
