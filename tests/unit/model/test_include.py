"""Configs of several files, defaults, and files of weights: one tree, and mistakes in the right file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.judged import assert_recorded
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


def written(files: Mapping[str, str]) -> Balancer:
    """Write files by their names, and load my.yaml."""
    for name, text in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)
    return load_config(Path("my.yaml"))


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    monkeypatch.chdir(tmp_path)
    return written


def names(balancer: Balancer) -> list[str]:
    return [each.name for each in balancer.services]


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
    """A config, and paths.json."""
    return {"my.yaml": config, "paths.json": weights if isinstance(weights, str) else json.dumps(weights)}


def weights_of(balancer: Balancer) -> list[tuple[str, float]]:
    return [(backend.name, float(backend.weight)) for backend in only(balancer).backends]


def test_weights_come_from_the_file_and_where_it_lacks_a_backend_from_the_config(load: Load) -> None:
    document = {"version": 1, "total": "12.5", "weights": {"fips2": 3, "fips3": 0.5, "unused": 0}}
    assert weights_of(load(with_weights(DNS + THIRD, document))) == [("fips2", 3), ("fips3", 0.5)]
    assert weights_of(load(with_weights(DNS + OWN, {"weights": {"fips2": 3}}))) == [("fips2", 3), ("fips3", 2)]


def test_a_default_weight_is_no_weight_of_its_own(load: Load) -> None:
    config = f"defaults: {{backends: {{weight: 9}}}}\n{DNS}{THIRD}"
    assert weights_of(load(with_weights(config, {"weights": {"fips2": 3, "fips3": 1}}))) == [("fips2", 3), ("fips3", 1)]


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


TWO = f"{DNS}{THIRD}"
WEB = f"{HEAD}services:\n{service('web', 1)}"
NESTED = {f"{depth}.yaml": f"include: {depth + 1}.yaml\n" for depth in range(MAX_NESTING + 4)}
MANY = {f"conf.d/{number:03}.yaml": "services: []\n" for number in range(MAX_FILES + 1)}
# More services than a config may have, so that there is one mistake of them.
HALF = "services: [" + "a," * 1_500 + "]"
LARGE = "#" * (2**19 - 100) + "\nservices: []\n"


def including(include: str, **files: str) -> dict[str, str]:
    """A config that includes, and files by their names without .yaml."""
    written = {f"{name}.yaml": text for name, text in files.items()}
    return {"my.yaml": f"{HEAD}include: {include}\nservices: []\n", **written}


def weighing(config: str, weights: object) -> dict[str, str]:
    return with_weights(config, {"weights": weights})


MISTAKES: dict[str, Mapping[str, str]] = {
    "a wrong default is one mistake where it stands": {
        "my.yaml": f"{HEAD}include: [a.yaml]\nservices:\n{service('one', 1)}{service('two', 2)}",
        "a.yaml": "defaults:\n  services: {tolerance: 900%, tolernace: 5%}\n  backends: {weight: -1}\nservices:\n"
        + service("three", 3)
        + "  - name: four\n    vip: 10.3.10.4\n    backends: [{name: one, mac: 02:00:5e:10:00:02}]\n",
    },
    "what a default makes wrong is found at the service": {
        "my.yaml": WEB.replace("services:", "defaults: {services: {ports: [80]}}\nservices:")
    },
    "names and addresses have no default": {
        "my.yaml": f"defaults: {{services: {{name: a}}, backends: {{address: 192.0.2.1}}}}\n{WEB}"
    },
    "mistakes point into their files and name the other one": {
        "my.yaml": f"{HEAD}include: [a.yaml]\nservices:\n{service('dns', 9)}{service('web', 1)}",
        "a.yaml": f"services:\n{service('web', 1)}",
    },
    "text that is no YAML hides no mistake of other files": including(
        "[a.yaml, b.yaml, c.yaml]", a="services: [", b="services: []\nservices: []\n", c=""
    ),
    "what only the first file has": including("a.yaml", a=f"{HEAD}drain: {{mode: pin}}\nservice: []\n"),
    "no such file": including("none.yaml"),
    "one of two is missing": including("[a.yaml, none]", a="services: []\n"),
    "a file that includes itself": including("my.yaml"),
    "through another": including("loop.yaml", loop="include: my.yaml\n"),
    "a file twice": including("[a.yaml, ./a.yaml]", a="services: []\n"),
    "a file and a link to it": including("[a.yaml, link.yaml]", a="services: []\n"),
    "a pipe": including("pipe.yaml"),
    "a number": including("7"),
    "an empty text": including('""'),
    "an empty list": including("[]"),
    "a mapping that is no YAML": including("a.yaml: {}"),
    "nesting is bounded": including("0.yaml") | NESTED,
    "the number of files is bounded": including("conf.d") | MANY,
    "the size of all files together is bounded": including("[a.yaml, b.yaml, c.yaml]", a=LARGE, b=LARGE, c=LARGE),
    "the values of all files together are bounded": including("[a.yaml, b.yaml]", a=HALF, b=HALF),
    "a default weight is none where a file has weights": weighing(
        f"defaults: {{backends: {{weight: 9}}}}\n{TWO}", {"fips2": 3}
    ),
    "a weight in both places": weighing(DNS + OWN, {"fips2": 3, "fips3": 1}),
    "a backend whose name is a list": weighing(DNS.replace("name: fips2", "name: [fips2]"), {"fips3": 1}),
    "a weight of no backend": weighing(DNS, {"fips2": 3, "fips9": 1}),
    "no file of weights": {"my.yaml": DNS},
    "no weights": weighing(DNS, [1]),
    "mistakes in the file of weights have their line": with_weights(
        TWO, '{\n  "weights": {\n    "fips2": -3,\n    "fips3": "x"\n  }\n}\n'
    ),
    "weights that are no YAML": with_weights(DNS, "["),
    "wrong forms do not also miss every weight": {"my.yaml": DNS.replace("{from: paths.json}", "paths.json")},
    "a mistyped key of weights": {"my.yaml": DNS.replace("from:", "form:")},
    "a number in place of a file of weights": {"my.yaml": DNS.replace("paths.json", "3")},
}


def test_mistakes_stand_in_the_right_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, update_golden: bool
) -> None:
    monkeypatch.setattr("xenoovs.model.include.MAX_SIZE_BYTES", 2**20)
    monkeypatch.setattr("xenoovs.model.load.MAX_VALUES", 3_000)
    said = dict[str, str]()
    for number, (title, files) in enumerate(MISTAKES.items()):
        (tmp_path / str(number)).mkdir()
        monkeypatch.chdir(tmp_path / str(number))
        Path("link.yaml").symlink_to("a.yaml")
        os.mkfifo("pipe.yaml")
        with pytest.raises(ConfigError) as caught:
            written(files)
        said[title] = str(caught.value)
    for title, text in (("an include of text", f"{HEAD}include: /etc/passwd\n"), ("weights of text", DNS)):
        with pytest.raises(ConfigError) as caught:
            parse_config(text, file="<stdin>")
        said[title] = str(caught.value)
    assert_recorded("model/files.txt", said, update=update_golden)
