"""From a file to the model: values of YAML 1.2, their forms, tolerances that weights can meet, backends by address."""

from __future__ import annotations

from fractions import Fraction
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from tests.judged import assert_recorded
from xenoovs.errors import ConfigError, ConfigUnreadable
from xenoovs.model.address import Mac
from xenoovs.model.balancer import (
    Balancer,
    Service,
    Sought,
    sought,
    with_macs,
)
from xenoovs.model.emit import render_config
from xenoovs.model.load import compose, load_config, parse_config
from xenoovs.model.next_hop import UNKNOWN_MAC, mac_of
from xenoovs.model.templates import read_template
from xenoovs.model.values import Number, Value, parse_plain_scalar
from xenoovs.partition.solve import partition

HEAD = "version: 1\nswitch: {ingress: p0, egress: p1}\n"


def minimal(service: str = "", weight: str = "1") -> Service:
    text = (
        f"{HEAD}services:\n  - name: web\n"
        f"    backends: [{{name: a, mac: 02:00:00:00:00:01, weight: {weight}}}]\n{service}"
    )
    return parse_config(text, file="c.yaml").services[0]


SHARES = ("5%", "0.05", "100%", "1", "'2.5 %'")
# Linux opens connections from even ports: by the low bits half of the blocks would get none of them.
BY_PORT = "protocol: {}\n    match: {{field: source_port, bits: {}}}"
FORMS = {
    "": ("claim", "key", "tolerance", "max_flows", "vip_mac", "source_mac"),
    **{f"tolerance: {text}": ("tolerance",) for text in SHARES},
    **{f"match: {{bits: {text}}}": ("key",) for text in ("auto", "3", "[9]")},
    "match: {field: ipv6_source}": ("claim",),
    "rewrite_source_mac: 02:00:00:00:00:09": ("source_mac",),
    **{BY_PORT.format(name, bits): ("key",) for bits in ("auto", "3", "[2, 0]") for name in ("udp", "sctp", "tcp")},
}


def test_forms_of_values_and_defaults(*, update_golden: bool) -> None:
    empty = parse_config(f"{HEAD}services: []\n", file="c.yaml")
    shown = {"no services": f"{empty}\n{empty.uplinks.label}"}
    for text, names in FORMS.items():
        service = minimal(f"    {text}\n")
        shown[text or "defaults"] = "\n".join(f"-> {name}: {getattr(service, name)}" for name in names)
    shown |= {f"weight: {text}": str(*minimal(weight=text).weights) for text in ("0.1", "1e3", "1000000000")}
    for written in ('"0000c470bda056ac"', "fFfFfFfFfFfFfFfF"):
        head = HEAD.replace("ingress", f"datapath_id: {written}, ingress")
        uplinks = parse_config(f"{head}services: []\n", file="c.yaml").uplinks
        shown[f"datapath_id: {written}"] = f"{uplinks.datapath_id:#x}, {uplinks.label}"
    assert_recorded("model/values.txt", shown, update=update_golden)


def test_the_same_mac_on_two_ports_is_two_servers() -> None:
    text = of_weights("5%", 4, (1, 1)).replace(":00:01, weight: 1}", ":00:00, weight: 1, egress: pf0hpf}")
    assert len({backend.next_hop for backend in parse_config(text, file="c.yaml").services[0].backends}) == 2


@pytest.mark.parametrize("name", ["missing.yaml", ".", "a\0b"])
def test_a_file_that_cannot_be_read(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigUnreadable) as caught:
        load_config(tmp_path / name)
    assert "cannot read the config" in str(caught.value)


@pytest.mark.parametrize("name", ["nothing", "../pyproject", ""])
def test_no_such_template(name: str) -> None:
    with pytest.raises(KeyError):
        read_template(name)


def of_weights(tolerance: str, bits: int, weights: tuple[int, ...]) -> str:
    backends = "".join(
        f"      - {{name: b{i}, mac: 02:00:00:00:00:{i:02x}, weight: {weight}}}\n" for i, weight in enumerate(weights)
    )
    return (
        f"{HEAD}services:\n  - name: web\n"
        f"    tolerance: {tolerance}\n    match: {{bits: {bits}}}\n    backends:\n{backends}"
    )


WEIGHTS = [(4, (70, 20, 10)), (3, (1, 1, 1)), (8, (997, 101, 53, 7)), (16, (1000, 1000, 1)), (2, (5, 1, 1, 1))]


@pytest.mark.parametrize(("bits", "weights"), WEIGHTS)
def test_the_least_tolerance_works_when_typed_in_and_a_hundredth_of_a_percent_less_does_not(
    bits: int, weights: tuple[int, ...]
) -> None:
    with pytest.raises(ConfigError, match="the lowest possible") as caught:
        parse_config(of_weights("0.0001%", bits, weights), file="c.yaml")
    (finding,) = caught.value.findings
    assert finding.path == "services[0].tolerance"
    percent = Fraction(finding.message.partition("write ")[2].partition("%")[0])
    (service,) = parse_config(of_weights(f"{float(percent)}%", bits, weights), file="c.yaml").services
    assert partition(service.weights, tolerance=service.tolerance, width=bits).deviation <= service.tolerance
    with pytest.raises(ConfigError):
        parse_config(of_weights(f"{float(percent - Fraction(1, 100))}%", bits, weights), file="c.yaml")


def test_a_budget_replaces_the_tolerance() -> None:
    text = of_weights("0.0001%", 4, (70, 20, 10)).replace("    match:", "    max_flows: 3\n    match:")
    assert parse_config(text, file="c.yaml").services[0].max_flows == 3


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("a: [1, '2', {b: no}]\nc:\n", {"a": [1, "2", {"b": "no"}], "c": None}, id="values"),
        pytest.param("1: a\ntrue: b\n", {"1": "a", "true": "b"}, id="keys are text as written"),
        pytest.param("a: 1\r\nb: 2\rc: 3\n", {"a": 1, "b": 2, "c": 3}, id="line ends of any system"),
    ],
)
def test_a_tree_of_values(text: str, value: Value) -> None:
    assert compose(text, file="c.yaml").root == value


def test_places_count_from_one_and_in_characters() -> None:
    places = compose("é: ü\nb:\n  - {c: 7}\n", file="c.yaml").places
    assert places.of_value(("é",)) == (1, 4)
    assert places.of_value(("b", 0, "c")) == (3, 9)
    assert places.of_key(("b", 0, "c")) == (3, 6)
    # A missing value is at what is around it.
    assert places.of_value(("b", 0, "missing", "deeper")) == places.of_value(("b", 0))


def test_a_duplicate_key_keeps_the_first_value_and_reads_on() -> None:
    document = compose("a: 1\nb: 2\na: {x: [1, {y: 2}]}\nb: 3\n", file="c.yaml")
    assert document.root == {"a": 1, "b": 2}
    assert [(finding.line, finding.column) for finding in document.findings] == [(3, 1), (4, 1)]


TEXTS = "10:20:30:40:50:51 22:30 on no yes y 8000-8003 5% 2001:db8::1 0b1 1_000 ."
NUMBERS = f"0.1 1e30 -.5 .inf .nan 3. {'1' * 5000}"
SCALARS: dict[str, Value] = {
    **{text: text for text in TEXTS.split()},
    **{"53": 53, "-1": -1, "+7": 7, "0": 0, "true": True, "FALSE": False},
    **dict.fromkeys(("", "~", "null", "Null")),
    **{text: Number(text) for text in NUMBERS.split()},
}


@pytest.mark.parametrize(("text", "value"), SCALARS.items())
def test_plain_scalars_are_those_of_the_core_schema_and_other_numbers_keep_their_text(text: str, value: Value) -> None:
    parsed = parse_plain_scalar(text)
    assert parsed == value
    assert type(parsed) is type(value)


CONFIG = """\
version: 1
switch: {{ingress: [p0], egress: p1}}
services:
  - name: web
    health: {health}
    backends:
      - {{name: a, weight: 1, address: 192.0.2.1}}
      - {{name: b, weight: 2, mac: 02:00:00:00:00:02, address: 192.0.2.2}}
"""


def parsed(*, health: str = "{probe: icmp, interface: en0, netns: probes}") -> Balancer:
    return parse_config(CONFIG.format(health=health), file="c.yaml")


def test_what_is_sought_and_from_where() -> None:
    balancer = parsed()
    assert sought(balancer) == {Sought("probes", "en0", IPv4Address("192.0.2.1")): ("web/a",)}
    assert sought(parsed(health="{probe: icmp}")) == {Sought("", "", IPv4Address("192.0.2.1")): ("web/a",)}


def test_found_macs_are_set_and_backends_without_one_get_no_clients() -> None:
    balancer = parsed()
    (wanted,) = sought(balancer)
    found = with_macs(balancer, {wanted: Mac(7)}).services[0].backends
    assert [(mac_of(b.next_hop), int(b.weight)) for b in found] == [(Mac(7), 1), (Mac(0x020000000002), 2)]
    lost = with_macs(balancer, {}).services[0].backends
    assert [(mac_of(b.next_hop), int(b.weight)) for b in lost] == [(UNKNOWN_MAC, 0), (Mac(0x020000000002), 2)]


def test_it_is_written_as_it_was_read() -> None:
    text = render_config(parsed())
    assert "{name: a, weight: 1" in text
    assert parse_config(text, file="c.yaml") == parsed()
