"""`weights: {from: FILE}`: weights of a service that another program writes, and mistakes in the right file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from xenoovs.errors import ConfigError
from xenoovs.model.include import ConfigSources
from xenoovs.model.load import load_config, parse_config

HEAD = """version: 1
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

Load = Callable[..., list[tuple[str, float]]]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Write a config and paths.json, and return the names and weights of the backends."""
    monkeypatch.chdir(tmp_path)

    def write_and_load(config: str, weights: object) -> list[tuple[str, float]]:
        Path("my.yaml").write_text(config)
        if weights is not None:
            Path("paths.json").write_text(weights if isinstance(weights, str) else json.dumps(weights))
        backends = load_config(Path("my.yaml")).services[0].backends
        return [(backend.name, float(backend.weight)) for backend in backends]

    return write_and_load


def mistakes(load: Load, config: str, weights: object) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(config, weights)
    return str(caught.value).splitlines()


def test_weights_come_from_the_file_and_where_it_lacks_a_backend_from_the_config(load: Load) -> None:
    document = {"version": 1, "total": "12.5", "weights": {"fips2": 3, "fips3": 0.5, "unused": 0}}
    assert load(HEAD + THIRD, document) == [("fips2", 3), ("fips3", 0.5)]
    assert load(HEAD + OWN, {"weights": {"fips2": 3}}) == [("fips2", 3), ("fips3", 2)]


def test_a_default_weight_is_no_weight_of_its_own(load: Load) -> None:
    config = f"defaults: {{backends: {{weight: 9}}}}\n{HEAD}{THIRD}"
    assert load(config, {"weights": {"fips2": 3, "fips3": 1}}) == [("fips2", 3), ("fips3", 1)]
    assert mistakes(load, config, {"weights": {"fips2": 3}}) == [
        "my.yaml:10:9: services[0].backends[1]: fips3 has no weight in paths.json, which has fips2; "
        "add `weight:` here or there"
    ]


@pytest.mark.parametrize(
    ("config", "weights", "mistake"),
    [
        (
            HEAD + OWN,
            {"weights": {"fips2": 3, "fips3": 1}},
            "my.yaml:9:57: services[0].backends[1].weight: paths.json has a weight of fips3 too; remove one of them",
        ),
        (
            HEAD,
            {"weights": {"fips2": 3, "fips9": 1}},
            "my.yaml:6:21: services[0].weights.from: paths.json has a weight of fips9, which is no backend here; "
            "add it, or give it the weight 0 there",
        ),
        (HEAD, None, "my.yaml:6:21: services[0].weights.from: paths.json cannot be read: No such file or directory"),
        (
            HEAD,
            '{"weights": [1]}',
            'paths.json:1:13: weights: it has no weights; write such as {"weights": {"fips2": 3, "fips3": 1}}',
        ),
    ],
    ids=["in both places", "of no backend", "no file", "no weights"],
)
def test_a_wrong_weight_is_one_mistake(load: Load, config: str, weights: object, mistake: str) -> None:
    assert mistakes(load, config, weights) == [mistake]


def test_mistakes_in_the_file_name_their_line(load: Load) -> None:
    text = '{\n  "weights": {\n    "fips2": -3,\n    "fips3": "x"\n  }\n}\n'
    assert mistakes(load, HEAD + THIRD, text) == [
        "paths.json:3:14: weights.fips2: -3 is below 0; write 0 for a backend that gets nothing",
        "paths.json:4:14: weights.fips3: 'x' is not a number; write one from 0 to 1000000000",
    ]
    assert mistakes(load, HEAD, "[")[0].startswith("paths.json:2:1: not valid YAML")


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
    assert message in mistakes(load, HEAD.replace("{from: paths.json}", written), None)
    assert not any("backends" in each for each in mistakes(load, HEAD.replace("{from: paths.json}", written), None))


def test_a_config_without_a_file_takes_no_weights_from_one() -> None:
    with pytest.raises(ConfigError, match=r"<stdin>:6:21: .*a config that is no file takes no weights from one"):
        parse_config(HEAD, file="<stdin>")


def test_a_change_of_the_file_is_a_change_of_the_config(tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text(HEAD)
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


def test_an_included_file_names_weights_beside_itself(tmp_path: Path) -> None:
    (tmp_path / "conf.d").mkdir()
    head, services = HEAD.split("services:\n")
    (tmp_path / "my.yaml").write_text(f"{head}include: conf.d\n")
    (tmp_path / "conf.d" / "dns.yaml").write_text(f"services:\n{services}")
    (tmp_path / "conf.d" / "paths.json").write_text('{"weights": {"fips2": 3}}')
    assert load_config(tmp_path / "my.yaml").services[0].backends[0].weight == 3
