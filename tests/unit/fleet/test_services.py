"""An agent reads of a view only the services that have changed, and still compares them with the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from tests import fleet_support
from tests.fleet_support import EMPTY
from xenoovs.agent.health import Checks, FleetWatches, fleet_checks
from xenoovs.errors import ConfigError
from xenoovs.fleet.plan import Memo, ViewReader, _parse, next_change, with_intent
from xenoovs.model.fleet import NEUTRAL, join, parse_fleet
from xenoovs.model.load import compose_json
from xenoovs.model.values import MAX_SERVICES
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


def rows(text: str = _TEXT) -> dict[str, StoredService]:
    return dict(fleet_support.settled(fleet_support.given(EMPTY, text)).services)


@pytest.mark.parametrize("known", [["one"], ["one", "two"]], ids=["new", "changed"])
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
def test_a_service_that_clashes_with_another_one_is_refused_with_all_that_is_wrong(
    edits: dict[str, str], known: list[str]
) -> None:
    before = rows()
    reader = ViewReader()
    reader.read([before[name] for name in known], NEUTRAL, file="local")
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


def test_an_address_to_which_a_change_gives_a_second_mac_is_refused() -> None:
    one, two = _TEXT.replace("198.51.100.12", "198.51.100.11").split("  - name: two")
    before = rows(f"{one}  - name: two{two.replace('[80]', '[81]').replace('00:00:12', '00:00:11')}")
    after = before["two"].config.replace("00:00:11", "00:00:12")
    reader = ViewReader()
    reader.read(before.values(), NEUTRAL, file="local")
    with pytest.raises(ConfigError, match=r"02:00:5e:00:00:12 answers for 198.51.100.11, for which .* answers"):
        reader.read([before["one"], replace(before["two"], config=after)], NEUTRAL, file="local")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
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
def test_a_mistake_in_a_stored_service_is_reported_and_no_default_replaces_it(
    old: str, new: str, expected: str
) -> None:
    row = rows()["two"]
    assert old in row.config
    with pytest.raises(ConfigError) as refused:
        ViewReader().read([replace(row, config=row.config.replace(old, new))], NEUTRAL, file="local")
    place, _, message = str(refused.value).partition(": ")
    assert place.startswith("service two of the fleet:1:")
    assert message.startswith(expected)


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


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is parsed: `config` for that of a fleet, and the names of services as the store has them."""
    calls = list[str]()

    def counted(parse: Callable[..., object], text: str, *, file: str) -> object:
        calls.append("config" if parse is parse_fleet else file.split()[1])
        return parse(text, file=file)

    monkeypatch.setattr("xenoovs.fleet.plan.parse_fleet", partial(counted, parse_fleet))
    monkeypatch.setattr("xenoovs.model.fleet.compose_json", partial(counted, compose_json))
    _parse.cache_clear()
    return calls


def test_each_side_parses_a_changed_service_once(parsed: list[str]) -> None:
    """The command and the controller parse the config that was given, and the agent the text of this service."""
    before = fleet_support.settled(fleet_support.given(EMPTY, _TEXT))
    memo, agent = Memo(), ViewReader()
    assert next_change(before, memo=memo).is_empty
    agent.read(before.services.values(), NEUTRAL, file="local")
    text = _TEXT.replace("address: 192.0.2.12, weight: 1", "address: 192.0.2.12, weight: 2")
    parsed.clear()
    assert with_intent(before, text).changes.services.keys() == {"two"}
    # A command has no memory of what the store has, so it reads how the service was before.
    assert parsed == ["config", "two"]
    _parse.cache_clear()
    parsed.clear()
    view = fleet_support.given(before, text)
    change = next_change(view, memo=memo)
    view = fleet_support.committed(view, change.changes)
    assert change.changes.services.keys() == {"two"}
    assert next_change(view, memo=memo).is_empty
    assert parsed == ["config"]
    parsed.clear()
    agent.read(view.services.values(), NEUTRAL, file="local")
    assert parsed == ["two"]


def test_no_more_services_are_read_one_after_the_other_than_together() -> None:
    reader, row = ViewReader(), rows()["one"]
    many = []
    for number in range(MAX_SERVICES + 1):
        claim = f"10.0.{number >> 8}.{number & 255}"
        text = row.config.replace('"name":"one"', f'"name":"s{number}"').replace("198.51.100.11", claim)
        text = text.replace("192.0.2.11", f"10.1.{number >> 8}.{number & 255}")
        many.append(replace(row, name=f"s{number}", config=text, claim=row.claim.replace("198.51.100.11", claim)))
    reader.read(many[:-1], NEUTRAL, file="local")
    with pytest.raises(ConfigError, match="1001 items"):
        reader.read(many, NEUTRAL, file="local")


def test_a_dpu_announces_by_its_own_file_the_services_that_are_to_be_announced() -> None:
    text = _TEXT.replace("  - name: two\n", "  - name: two\n    announce: false\n")
    stored = fleet_support.settled(fleet_support.given(EMPTY, text)).services
    texts = {name: row.config for name, row in stored.items()}
    local = "version: 1\nswitch: {ingress: [p0], egress: p1}\n"
    assert join(local, texts, file="local").announced_vips == {}
    announcing = join(f"{local}announce: {{bgp: frr}}\n", texts, file="local")
    assert {str(vip): names for vip, names in announcing.announced_vips.items()} == {"198.51.100.11": ("one",)}


def test_a_backend_with_nat_is_read_with_its_address_and_port_as_it_was_written() -> None:
    text = _TEXT.replace(".11, weight", ".11, port: 8080, weight").replace("egress: out", "egress: egress")
    stored = fleet_support.settled(fleet_support.given(EMPTY, text)).services
    read, _ = ViewReader().read(stored.values(), NEUTRAL, file="local")
    written = parse_fleet(text, file="given").balancer
    assert [each.backends for each in read.services] == [each.backends for each in written.services]
