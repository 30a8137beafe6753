"""Configs of several files, defaults, and files of weights: one tree, and mistakes in the right file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from xenoovs.errors import ConfigError
from xenoovs.model.balancer import Balancer, ProbeKind, Service
from xenoovs.model.include import MAX_FILES, MAX_NESTING, ConfigSources
from xenoovs.model.load import load_config, parse_config

HEAD = "version: 1\nswitch: {bridge: ovsbr1, ingress: [p0], egress: p1}\n"


def service(name: str, number: int, *lines: str) -> str:
    """A service as an item of a list."""
    more = "".join(f"    {line}\n" for line in lines)
    backend = "      - {name: one, mac: 02:00:5e:10:00:02, weight: 2}\n"
    return f"  - name: {name}\n    vip: 10.3.10.{number}\n{more}    backends:\n{backend}"


Load = Callable[[Mapping[str, str]], Balancer]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Write files by their names, and load my.yaml."""
    monkeypatch.chdir(tmp_path)

    def write_and_load(files: Mapping[str, str]) -> Balancer:
        for name, text in files.items():
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).write_text(text)
        return load_config(Path("my.yaml"))

    return write_and_load


def names(balancer: Balancer) -> list[str]:
    return [each.name for each in balancer.services]


def mistakes(load: Load, files: Mapping[str, str]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(files)
    return str(caught.value).splitlines()


def test_services_of_all_files_in_the_order_in_which_they_are_read(load: Load) -> None:
    files = {
        "my.yaml": f"{HEAD}include: [conf.d, more.yaml]\nservices:\n{service('own', 1)}",
        "conf.d/b.yaml": f"services:\n{service('second', 2)}",
        "conf.d/a.yml": f"version: 1\nservices:\n{service('first', 3)}",
        "conf.d/.hidden.yaml": "no: config",
        "conf.d/README": "no config",
        "conf.d/a.yaml.bak": "no config",
        "more.yaml": "include: below/last.yaml\n",
        "below/last.yaml": f"services:\n{service('last', 4)}",
    }
    assert names(load(files)) == ["own", "first", "second", "last"]


def test_paths_count_from_the_file_that_names_them_also_through_a_link(load: Load, tmp_path: Path) -> None:
    (tmp_path / "mounted").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "mounted" / "web.yaml").symlink_to(tmp_path / "elsewhere" / "data.yaml")
    files = {
        "my.yaml": f"{HEAD}include: mounted\n",
        "elsewhere/data.yaml": f"services:\n{service('web', 1)}include: more/dns.yaml\n",
        "mounted/more/dns.yaml": f"services:\n{service('dns', 2)}",
    }
    assert names(load(files)) == ["web", "dns"]


def only(balancer: Balancer) -> Service:
    (found,) = balancer.services
    return found


def test_defaults_fill_in_what_services_and_backends_lack(load: Load) -> None:
    text = f"""{HEAD}health: {{probe: icmp, rise: 7, fall: 8}}
defaults:
  services: {{protocol: tcp, ports: [80], health: {{probe: tcp, port: 8080, fall: 9}}, match: {{bits: 4}}}}
  backends: {{weight: 3, egress: p2, backup: true}}
services:
  - name: web
    vip: 10.3.10.1
    health: {{port: 81}}
    backends:
      - {{name: one, mac: 02:00:5e:10:00:02, address: 192.0.2.1, backup: false}}
      - {{name: two, mac: 02:00:5e:10:00:03, address: 192.0.2.2, weight: 0.5, egress: p1}}
"""
    web = only(load({"my.yaml": text}))
    assert [str(ports) for ports in web.claim.ports] == ["80"]
    assert web.key.width == 4
    assert web.health is not None
    assert (web.health.probe, web.health.port, web.health.fall, web.health.rise) == (ProbeKind.TCP, 81, 9, 7)
    one, two = web.backends
    assert (float(one.weight), str(one.next_hop), one.is_backup) == (3.0, "02:00:5e:10:00:02@p2", False)
    assert (float(two.weight), str(two.next_hop), two.is_backup) == (0.5, "02:00:5e:10:00:03@p1", True)


def test_defaults_hold_for_included_files_and_the_nearest_go_first(load: Load) -> None:
    files = {
        "my.yaml": f"{HEAD}defaults: {{services: {{tolerance: 10%, churn: least}}}}\ninclude: [a.yaml, b.yaml]\n",
        "a.yaml": f"defaults: {{services: {{churn: compact}}}}\nservices:\n{service('a', 1)}",
        "b.yaml": f"services:\n{service('b', 2)}",
    }
    a, b = load(files).services
    assert (float(a.tolerance), a.churn.value) == (0.1, "compact")
    assert (float(b.tolerance), b.churn.value) == (0.1, "least")


def test_a_wrong_default_is_one_mistake_where_it_stands(load: Load) -> None:
    files = {
        "my.yaml": f"{HEAD}include: [a.yaml]\nservices:\n{service('one', 1)}{service('two', 2)}",
        "a.yaml": "defaults:\n  services: {tolerance: 900%, tolernace: 5%}\n  backends: {weight: -1}\nservices:\n"
        + service("three", 3)
        + "  - name: four\n    vip: 10.3.10.4\n    backends: [{name: one, mac: 02:00:5e:10:00:02}]\n",
    }
    assert mistakes(load, files) == [
        "a.yaml:2:25: defaults.services.tolerance: '900%' is outside the range; write a percentage such as 5%, above "
        "0% and at most 100%",
        "a.yaml:2:31: defaults.services.tolernace: unknown key; did you mean tolerance?",
        "a.yaml:3:22: defaults.backends.weight: -1 is below 0; write 0 for a backend that gets nothing",
    ]


@pytest.mark.parametrize(
    ("defaults", "found"),
    [
        # What a default makes wrong is found at the service.
        ("{services: {ports: [80]}}", ["my.yaml:5:5: services[0].ports: ports need a protocol"]),
        (
            "{services: {name: a}, backends: {address: 192.0.2.1}}",
            ["my.yaml:3:23: defaults.services.name: ", "my.yaml:3:44: defaults.backends.address: "],
        ),
    ],
)
def test_defaults_that_cannot_be(load: Load, defaults: str, found: list[str]) -> None:
    text = f"{HEAD}defaults: {defaults}\nservices:\n{service('web', 1)}"
    lines = mistakes(load, {"my.yaml": text})
    assert [line[: len(start)] for line, start in zip(lines, found, strict=True)] == found


def test_mistakes_point_into_their_files_and_name_the_other_one(load: Load) -> None:
    files = {
        "my.yaml": f"{HEAD}include: [a.yaml]\nservices:\n{service('dns', 9)}{service('web', 1)}",
        "a.yaml": "services:\n" + service("web", 1),
    }
    assert mistakes(load, files) == [
        "a.yaml:2:5: services[0]: web claims packets that services[1] of my.yaml:9 (web) claims too (10.3.10.1, tcp); "
        "change vip, protocol or ports of one",
        "a.yaml:2:11: services[0].name: 'web' is already services[1] of my.yaml:9; name each once",
    ]


def test_text_that_is_no_yaml_hides_no_mistake_of_other_files(load: Load) -> None:
    files = {
        "my.yaml": f"{HEAD}include: [a.yaml, b.yaml, c.yaml]\nservices: []\n",
        "a.yaml": "services: [",
        "b.yaml": "services: []\nservices: []\n",
        "c.yaml": "",
    }
    assert [line.partition(": ")[0] for line in mistakes(load, files)] == ["a.yaml:2:1", "b.yaml:2:1", "c.yaml:1:1"]


def test_what_only_the_first_file_has(load: Load) -> None:
    files = {"my.yaml": f"{HEAD}include: a.yaml\n", "a.yaml": f"{HEAD}drain: {{mode: pin}}\nservice: []\n"}
    assert mistakes(load, files) == [
        "a.yaml:2:1: switch: an included file has no `switch`, only the file that includes the others has; remove it "
        "here",
        "a.yaml:3:1: drain: an included file has no `drain`, only the file that includes the others has; write it "
        "there, or here as `defaults: {services: {drain: ...}}`",
        "a.yaml:4:1: service: unknown key; did you mean services?",
    ]


@pytest.mark.parametrize(
    ("include", "message"),
    [
        ("none.yaml", "my.yaml:3:10: include: none.yaml cannot be read: No such file or directory"),
        ("[a.yaml, none]", "my.yaml:3:19: include[1]: none cannot be read: No such file or directory"),
        ("my.yaml", "my.yaml:3:10: include: my.yaml includes itself, directly or through other files; remove it here"),
        (
            "loop.yaml",
            "loop.yaml:1:10: include: my.yaml includes itself, directly or through other files; remove it here",
        ),
        ("[a.yaml, ./a.yaml]", "my.yaml:3:19: include[1]: a.yaml is included already, by my.yaml; remove one"),
        ("[a.yaml, link.yaml]", "my.yaml:3:19: include[1]: link.yaml is included already, by my.yaml; remove one"),
        (
            "pipe.yaml",
            "my.yaml:3:10: include: pipe.yaml cannot be read: it is a pipe or a device, not a file to read again",
        ),
        ("7", "my.yaml:3:10: include: 7 is not a path; write one such as conf.d or web.yaml"),
        ('""', "my.yaml:3:10: include: '' is not a path; write one such as conf.d or web.yaml"),
        ("[]", "my.yaml:3:10: include: an empty list says nothing; write a value"),
        ("a.yaml: {}", "my.yaml:3:16: not valid YAML: mapping values are not allowed"),
    ],
)
def test_includes_that_cannot_be(load: Load, include: str, message: str) -> None:
    Path("link.yaml").symlink_to("a.yaml")
    os.mkfifo("pipe.yaml")
    files = {
        "a.yaml": "services: []\n",
        "loop.yaml": "include: my.yaml\n",
        "my.yaml": f"{HEAD}include: {include}\nservices: []\n",
    }
    (line,) = mistakes(load, files)
    assert line.startswith(message)


def test_text_that_is_no_file_includes_none() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(f"{HEAD}include: /etc/passwd\n", file="<stdin>")
    assert str(caught.value) == (
        "<stdin>:3:10: include: a config that is no file includes none; name the config by its path"
    )


def test_nesting_is_bounded(load: Load) -> None:
    files = {f"{depth}.yaml": f"include: {depth + 1}.yaml\n" for depth in range(20)}
    message = f"{MAX_NESTING - 1}.yaml:1:10: include: files are included more than {MAX_NESTING} deep; include "
    (line,) = mistakes(load, {**files, "my.yaml": f"{HEAD}include: 0.yaml\n"})
    assert line.startswith(message)


def test_the_number_of_files_is_bounded(load: Load) -> None:
    files = {f"conf.d/{number:03}.yaml": "services: []\n" for number in range(MAX_FILES + 3)}
    lines = mistakes(load, {**files, "my.yaml": f"{HEAD}include: conf.d\n"})
    assert set(lines) == {f"my.yaml:3:10: include: more than {MAX_FILES} files are included; join some of them"}


def test_the_size_of_all_files_together_is_bounded(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xenoovs.model.include.MAX_SIZE_BYTES", 2**20)
    large = {f"{name}.yaml": "#" * (2**19 - 100) + "\nservices: []\n" for name in ("a", "b", "c")}
    (line,) = mistakes(load, {**large, "my.yaml": f"{HEAD}include: [a.yaml, b.yaml, c.yaml]\n"})
    assert line == "my.yaml:3:27: include[2]: c.yaml cannot be read: the files together are larger than 1 MiB"


def test_the_values_of_all_files_together_are_bounded(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xenoovs.model.load.MAX_VALUES", 3_000)
    # More services than a config may have, so that there is one mistake of them.
    half = "services: [" + "a," * 1_500 + "]"
    lines = mistakes(load, {"a.yaml": half, "b.yaml": half, "my.yaml": f"{HEAD}include: [a.yaml, b.yaml]\n"})
    message = "the config holds more than 3000 values; split it over several bridges"
    assert [line.partition(":")[0] for line in lines if message in line] == ["b.yaml"]


# `weights: {from: FILE}`: weights of a service that another program writes.

DNS = """version: 1
switch: {bridge: ovsbr1, ingress: p0, egress: p1}
services:
  - name: dns
    vip: 10.3.10.45
    weights: {from: paths.json}
    backends:
      - {name: fips2, mac: "02:00:5e:10:00:02"}
"""
THIRD = '      - {name: fips3, mac: "02:00:5e:10:00:03"}\n'
OWN = THIRD.replace("}", ", weight: 2}")


def with_weights(config: str, weights: object) -> dict[str, str]:
    """A config, and paths.json unless there are no weights."""
    text = weights if isinstance(weights, str) else json.dumps(weights)
    return {"my.yaml": config} | ({} if weights is None else {"paths.json": text})


def weights_of(balancer: Balancer) -> list[tuple[str, float]]:
    return [(backend.name, float(backend.weight)) for backend in only(balancer).backends]


def test_weights_come_from_the_file_and_where_it_lacks_a_backend_from_the_config(load: Load) -> None:
    document = {"version": 1, "total": "12.5", "weights": {"fips2": 3, "fips3": 0.5, "unused": 0}}
    assert weights_of(load(with_weights(DNS + THIRD, document))) == [("fips2", 3), ("fips3", 0.5)]
    assert weights_of(load(with_weights(DNS + OWN, {"weights": {"fips2": 3}}))) == [("fips2", 3), ("fips3", 2)]


def test_a_default_weight_is_no_weight_of_its_own(load: Load) -> None:
    config = f"defaults: {{backends: {{weight: 9}}}}\n{DNS}{THIRD}"
    assert weights_of(load(with_weights(config, {"weights": {"fips2": 3, "fips3": 1}}))) == [("fips2", 3), ("fips3", 1)]
    assert mistakes(load, with_weights(config, {"weights": {"fips2": 3}})) == [
        "my.yaml:10:9: services[0].backends[1]: fips3 has no weight in paths.json, which has fips2; "
        "add `weight:` here or there"
    ]


@pytest.mark.parametrize(
    ("config", "weights", "mistake"),
    [
        (
            DNS + OWN,
            {"weights": {"fips2": 3, "fips3": 1}},
            "my.yaml:9:57: services[0].backends[1].weight: paths.json has a weight of fips3 too; remove one of them",
        ),
        (
            DNS,
            {"weights": {"fips2": 3, "fips9": 1}},
            "my.yaml:6:21: services[0].weights.from: paths.json has a weight of fips9, which is no backend here; "
            "add it, or give it the weight 0 there",
        ),
        (DNS, None, "my.yaml:6:21: services[0].weights.from: paths.json cannot be read: No such file or directory"),
        (
            DNS,
            '{"weights": [1]}',
            'paths.json:1:13: weights: it has no weights; write such as {"weights": {"fips2": 3, "fips3": 1}}',
        ),
    ],
    ids=["in both places", "of no backend", "no file", "no weights"],
)
def test_a_wrong_weight_is_one_mistake(load: Load, config: str, weights: object, mistake: str) -> None:
    assert mistakes(load, with_weights(config, weights)) == [mistake]


def test_mistakes_in_the_file_name_their_line(load: Load) -> None:
    text = '{\n  "weights": {\n    "fips2": -3,\n    "fips3": "x"\n  }\n}\n'
    assert mistakes(load, with_weights(DNS + THIRD, text)) == [
        "paths.json:3:14: weights.fips2: -3 is below 0; write 0 for a backend that gets nothing",
        "paths.json:4:14: weights.fips3: 'x' is not a number; write one from 0 to 1000000000",
    ]
    assert mistakes(load, with_weights(DNS, "["))[0].startswith("paths.json:2:1: not valid YAML")


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (
            "paths.json",
            "my.yaml:6:14: services[0].weights: 'paths.json' is not a mapping; write keys and values here: from",
        ),
        ("{form: paths.json}", "my.yaml:6:15: services[0].weights.form: unknown key; did you mean from?"),
        ("{from: 3}", "my.yaml:6:21: services[0].weights.from: 3 is not a path; write one such as conf.d or web.yaml"),
    ],
)
def test_wrong_forms_do_not_also_miss_every_weight(load: Load, written: str, message: str) -> None:
    found = mistakes(load, {"my.yaml": DNS.replace("{from: paths.json}", written)})
    assert message in found
    assert not any("backends" in each for each in found)


def test_a_config_without_a_file_takes_no_weights_from_one() -> None:
    with pytest.raises(ConfigError, match=r"<stdin>:6:21: .*a config that is no file takes no weights from one"):
        parse_config(DNS, file="<stdin>")


def test_a_change_of_the_file_is_a_change_of_the_config(tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text(DNS)
    (tmp_path / "paths.json").write_text('{"weights": {"fips2": 3}}')
    sources = ConfigSources(tmp_path / "my.yaml")
    parse_config(sources.read(tmp_path / "my.yaml"), file=str(tmp_path / "my.yaml"), sources=sources)
    before = sources.digest
    assert not sources.is_touched
    (tmp_path / "paths.json").write_text('{"weights": {"fips2": 31}}')
    assert sources.is_touched
    again = ConfigSources(tmp_path / "my.yaml")
    parse_config(again.read(tmp_path / "my.yaml"), file=str(tmp_path / "my.yaml"), sources=again)
    assert again.digest != before


def test_an_included_file_names_weights_beside_itself(load: Load) -> None:
    head, services = DNS.split("services:\n")
    files = {
        "my.yaml": f"{head}include: conf.d\n",
        "conf.d/dns.yaml": f"services:\n{services}",
        "conf.d/paths.json": '{"weights": {"fips2": 3}}',
    }
    assert weights_of(load(files)) == [("fips2", 3)]
