"""Several bridges in one file: each gives exactly the config that a file with `switch` gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from xenoovs.compile.program import compile_config
from xenoovs.config.bridges import choose_bridge
from xenoovs.config.emit import render_config
from xenoovs.config.include import ConfigSources
from xenoovs.config.load import check_bridges, parse_config, split_config
from xenoovs.errors import BridgeNotChosen, ConfigError
from xenoovs.model.balancer import Balancer, ProbeKind

LEFT = "{bridge: ovsbr1, ingress: [p0], egress: pf0hpf}"
RIGHT = "{bridge: ovsbr2, ingress: [p1], egress: pf1hpf, other_traffic: drop}"
HEAD = f"version: 1\nbridges:\n  - {LEFT}\n  - {RIGHT}\n"


def service(name: str, number: int, *lines: str, weight: str = "1") -> str:
    more = "".join(f"    {line}\n" for line in lines)
    backend = f"      - {{name: one, mac: 02:00:5e:10:00:02, weight: {weight}}}\n"
    return f"  - name: {name}\n    vip: 10.3.10.{number}\n{more}    backends:\n{backend}"


def load(text: str, file: str = "my.yaml") -> dict[str, Balancer]:
    return {found.uplinks.label: found for found in check_bridges(split_config(text, file=file))}


def names(text: str) -> dict[str, list[str]]:
    return {label: [one.name for one in found.services] for label, found in load(text).items()}


def mistakes(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(text)
    return str(caught.value).splitlines()


def test_a_service_is_on_all_bridges_or_on_those_that_it_names() -> None:
    text = (
        f"{HEAD}services:\n{service('all', 1)}{service('left', 2, 'bridge: ovsbr1')}"
        f"{service('right', 3, 'bridge: [ovsbr2]')}{service('both', 4, 'bridge: [ovsbr2, ovsbr1]')}"
    )
    assert names(text) == {"ovsbr1": ["all", "left", "both"], "ovsbr2": ["all", "right", "both"]}


@pytest.mark.parametrize(("switch", "name"), [(LEFT, "ovsbr1"), (RIGHT, "ovsbr2")])
def test_a_bridge_of_several_has_the_config_and_the_flows_of_a_file_of_its_own(switch: str, name: str) -> None:
    rest = "health: {probe: icmp}\ndefaults: {backends: {address: 192.0.2.1}}\n".replace(
        "address: 192.0.2.1", "egress: p5"
    )
    rest = f"{rest}services:\n{service('web', 1, 'health: {probe: none}')}{service('dns', 2, 'health: {probe: none}')}"
    own = parse_config(f"version: 1\nswitch: {switch}\n{rest}", file="own.yaml")
    found = parse_config(HEAD + rest, file="my.yaml", bridge=name)
    assert found == own
    assert render_config(found) == render_config(own)
    assert compile_config(found).flows == compile_config(own).flows


def test_names_and_claims_are_unique_on_a_bridge_only() -> None:
    left, right = (service("web", 1, f"bridge: {name}") for name in ("ovsbr1", "ovsbr2"))
    assert names(f"{HEAD}services:\n{left}{right}") == {"ovsbr1": ["web"], "ovsbr2": ["web"]}
    assert mistakes(f"{HEAD}services:\n{left}{service('web', 1)}") == [
        "my.yaml:11:5: services[1]: web claims packets that services[0] (web) claims too (10.3.10.1, tcp); change vip, "
        "protocol or ports of one",
        "my.yaml:11:11: services[1].name: 'web' is already services[0]; name each once",
    ]


def test_defaults_may_name_the_bridge_of_included_files(tmp_path: Path) -> None:
    (tmp_path / "left.yaml").write_text(f"defaults: {{services: {{bridge: ovsbr1}}}}\nservices:\n{service('web', 1)}")
    (tmp_path / "right.yaml").write_text(f"services:\n{service('dns', 2, 'bridge: ovsbr9')}")
    main = tmp_path / "my.yaml"
    text = f"{HEAD}include: [left.yaml]\nservices:\n{service('all', 3)}"
    trees = split_config(text, file=str(main), sources=ConfigSources(main))
    assert [[one.name for one in found.services] for found in check_bridges(trees)] == [["all", "web"], ["all"]]
    wrong = text.replace("left.yaml", "left.yaml, right.yaml")
    with pytest.raises(ConfigError) as caught:
        check_bridges(split_config(wrong, file=str(main), sources=ConfigSources(main)))
    assert str(caught.value) == (
        f"{tmp_path}/right.yaml:4:13: services[0].bridge: the config has no bridge 'ovsbr9'; did you mean ovsbr2?"
    )


def test_what_stands_for_the_whole_file_is_for_every_bridge() -> None:
    text = f"{HEAD}health: {{probe: icmp}}\nservices:\n{service('web', 1)}".replace(
        "weight", "address: 192.0.2.1, weight"
    )
    found = [one.services[0].health for one in load(text).values()]
    assert [each and each.probe for each in found] == [ProbeKind.ICMP, ProbeKind.ICMP]


def test_all_mistakes_of_all_bridges_are_found_at_once_and_each_one_time() -> None:
    text = (
        "version: 1\nbridges:\n  - {bridge: ovsbr1, ingress: [p0], egress: p1}\n  - {bridge: ovsbr2, egres: p1}\n"
        f"services:\n{service('all', 1, weight='-1')}{service('right', 2, 'bridge: ovsbr2', weight='-2')}"
        f"{service('nowhere', 3, 'bridge: ovsbr3')}{service('number', 4, 'bridge: [5]')}"
    )
    assert mistakes(text) == [
        "my.yaml:4:5: bridges[1].egress: this key is required; add `egress:` here",
        "my.yaml:4:5: bridges[1].ingress: this key is required; add `ingress:` here",
        "my.yaml:4:22: bridges[1].egres: unknown key; did you mean egress?",
        "my.yaml:9:53: services[0].backends[0].weight: -1 is below 0; write 0 for a backend that gets nothing",
        "my.yaml:14:53: services[1].backends[0].weight: -2 is below 0; write 0 for a backend that gets nothing",
        "my.yaml:17:13: services[2].bridge: the config has no bridge 'ovsbr3'; did you mean ovsbr2?",
        'my.yaml:22:14: services[3].bridge[0]: 5 is not text; put it in quotes: "5"',
    ]


def test_a_service_of_an_unknown_bridge_has_its_other_mistakes_reported_too(tmp_path: Path) -> None:
    """Conflicts with services and ports of the existing bridges are left out: it may belong to another bridge."""
    wrong = service("web", 1, "bridge: ovsbr9", weight="-1").replace("weight", "egress: p0, weight")
    (tmp_path / "more.yaml").write_text(f"services:\n{wrong}")
    main = tmp_path / "my.yaml"
    text = f"{HEAD}include: more.yaml\nservices:\n{service('web', 1)}"
    expected = [
        f"{tmp_path}/more.yaml:4:13: services[0].bridge: the config has no bridge 'ovsbr9'; did you mean ovsbr2?",
        f"{tmp_path}/more.yaml:6:65: services[0].backends[0].weight: -1 is below 0; write 0 for a backend that gets "
        "nothing",
    ]
    trees = split_config(text, file=str(main), sources=ConfigSources(main))
    for chosen in (trees, trees[:1]):
        with pytest.raises(ConfigError) as caught:
            check_bridges(chosen)
        assert str(caught.value).splitlines() == expected


def test_a_mistake_on_one_bridge_does_not_keep_another_from_its_config() -> None:
    text = (
        f"{HEAD}services:\n{service('left', 1, 'bridge: ovsbr1')}{service('right', 2, 'bridge: ovsbr2', weight='-1')}"
    )
    assert [one.name for one in parse_config(text, file="my.yaml", bridge="ovsbr1").services] == ["left"]
    with pytest.raises(ConfigError, match=r"services\[1\]"):
        parse_config(text, file="my.yaml", bridge="ovsbr2")


def test_a_file_of_weights_that_is_missing_is_a_mistake_of_its_bridge_alone(tmp_path: Path) -> None:
    main = tmp_path / "my.yaml"
    right = service("right", 2, "bridge: ovsbr2", "weights: {from: weights.json}").replace(", weight: 1", "")
    text = f"{HEAD}services:\n{service('left', 1, 'bridge: ovsbr1')}{right}"
    found = parse_config(text, file=str(main), sources=ConfigSources(main), bridge="ovsbr1")
    assert [one.name for one in found.services] == ["left"]
    trees = split_config(text, file=str(main), sources=ConfigSources(main))
    missing = r"my.yaml:\d+:\d+: services\[1\]\.weights\.from: .*weights.json cannot be"
    with pytest.raises(ConfigError, match=missing):
        check_bridges(trees)
    with pytest.raises(ConfigError, match=missing):
        check_bridges([choose_bridge(trees, "ovsbr2", file=str(main))])


@pytest.mark.parametrize(
    ("bridges", "mistake"),
    [
        (
            "bridges: ovsbr1",
            "my.yaml:2:10: bridges: 'ovsbr1' is not a list; write items that start with a dash, each with",
        ),
        ("bridges: []", "my.yaml:2:10: bridges: the list is empty; write at least 1"),
        ("bridges: [x]", "my.yaml:2:11: bridges[0]: 'x' is not a mapping; write keys and values here: bridge, "),
        (f"bridges: [{LEFT}]\nswitch: {LEFT}", "my.yaml:2:1: bridges: the file has `switch` too; write that bridge as"),
        (f"bridges: [{LEFT}, {LEFT}]", "my.yaml:2:69: bridges[1].bridge: ovsbr1 is already bridges[0]; list each"),
        (f"bridge: {LEFT}", "my.yaml:2:1: bridge: unknown key; did you mean bridges?"),
    ],
)
def test_bridges_of_a_wrong_form(bridges: str, mistake: str) -> None:
    assert any(line.startswith(mistake) for line in mistakes(f"version: 1\n{bridges}\nservices: []"))


def test_bridges_of_one_name_are_distinguished_by_their_datapath_ids() -> None:
    one, two = (LEFT.replace(" ing", f' datapath_id: "{number:016x}", ing') for number in (1, 2))
    text = (
        f"version: 1\nbridges: [{one}, {two}]\nservices:\n{service('both', 1, 'bridge: ovsbr1')}"
        f"{service('second', 2, 'bridge: ovsbr1@0000000000000002')}"
    )
    labels = "ovsbr1@0000000000000001", "ovsbr1@0000000000000002"
    assert names(text) == dict(zip(labels, (["both"], ["both", "second"]), strict=True))
    assert parse_config(text, file="my.yaml", bridge=labels[1]).uplinks.datapath_id == 2
    with pytest.raises(BridgeNotChosen, match=f"2 bridges named ovsbr1 .{labels[0]}, {labels[1]}.: choose one"):
        parse_config(text, file="my.yaml", bridge="ovsbr1")
    (mistake,) = mistakes(text.replace('datapath_id: "0000000000000002", ', "").replace("@0000000000000002", ""))
    assert "ovsbr1 is already bridges[0]" in mistake


def test_one_of_several_has_to_be_chosen() -> None:
    text = f"{HEAD}services: []"
    with pytest.raises(BridgeNotChosen, match=r"my.yaml has 2 bridges \(ovsbr1, ovsbr2\): choose one with --bridge"):
        parse_config(text, file="my.yaml")
    with pytest.raises(
        BridgeNotChosen, match=r"my.yaml has no bridge ovsbr3, only ovsbr1, ovsbr2 .did you mean ovsbr2..$"
    ):
        parse_config(text, file="my.yaml", bridge="ovsbr3")


def test_a_file_with_switch_has_one_bridge_of_that_name() -> None:
    text = f"version: 1\nswitch: {LEFT}\nservices:\n{service('web', 1, 'bridge: ovsbr1')}"
    assert names(text) == {"ovsbr1": ["web"]}
    assert parse_config(text, file="my.yaml", bridge="ovsbr1") == parse_config(text, file="my.yaml")
    assert mistakes(text.replace("bridge: ovsbr1\n", "bridge: ovsbr2\n")) == [
        "my.yaml:6:13: services[0].bridge: the config has no bridge 'ovsbr2'; did you mean ovsbr1?"
    ]


def tunnel(name: str, *lines: str) -> str:
    """A tunnel as an item of a list."""
    more = "".join(f"    {line}\n" for line in lines)
    head = f"  - name: {name}\n    local: 192.168.200.2\n    host_port: p3\n"
    return f"{head}{more}    remotes: [{{name: b, address: 192.168.200.1}}]\n"


def test_a_tunnel_is_on_the_bridges_that_it_names_and_checked_on_these_alone() -> None:
    both = tunnel("both").replace("p3", "p4").replace("200.1}", "200.9}")
    text = f"{HEAD}services: []\ntunnels:\n{both}{tunnel('right', 'bridge: ovsbr2')}{tunnel('left', 'bridge: ovsbr1')}"
    found = {label: [each.name for each in balancer.tunnels] for label, balancer in load(text).items()}
    assert found == {"ovsbr1": ["both", "left"], "ovsbr2": ["both", "right"]}


def test_a_tunnel_of_an_unknown_bridge_is_an_error_in_its_line() -> None:
    """It was on no bridge, without an error."""
    text = f"{HEAD}services: []\ntunnels:\n{tunnel('one')}{tunnel('two', 'bridge: ovsbr3')}"
    assert mistakes(text) == [
        "my.yaml:14:13: tunnels[1].bridge: the config has no bridge 'ovsbr3'; did you mean ovsbr2?"
    ]


def test_a_mistake_in_a_tunnel_of_the_second_bridge_is_found_in_its_own_line() -> None:
    wrong = tunnel("two", "bridge: ovsbr2", "blocks: 5")
    (mistake,) = mistakes(f"{HEAD}services: []\ntunnels:\n{tunnel('one', 'bridge: ovsbr1')}{wrong}")
    assert mistake.startswith("my.yaml:16:13: tunnels[1].blocks: ")
