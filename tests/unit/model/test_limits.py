"""The documented limits: 1,000 services, 1,000 backends in a service; one more is refused."""

from __future__ import annotations

import pytest

from xenoovs.errors import ConfigError
from xenoovs.model.load import parse_config

PREFIX = "version: 1\nswitch: {ingress: [p0], egress: p1}\nservices:\n"
BACKEND = "{name: a, mac: 02:00:00:00:00:01, weight: 1}"


def services(count: int) -> str:
    return PREFIX + "".join(
        f"  - {{name: s{i}, vip: 10.0.{i >> 8}.{i & 255}, backends: [{BACKEND}]}}\n" for i in range(count)
    )


def backends(count: int) -> str:
    return f"{PREFIX}  - name: s\n    tolerance: 10%\n    backends:\n" + "".join(
        f"      - {{name: b{i}, mac: 02:00:00:00:{i >> 8:02x}:{i & 255:02x}, weight: 1}}\n" for i in range(count)
    )


def test_a_thousand_services() -> None:
    assert len(parse_config(services(1000), file="c.yaml").services) == 1000


def test_a_thousand_backends() -> None:
    (service,) = parse_config(backends(1000), file="c.yaml").services
    assert len(service.backends) == 1000


@pytest.mark.parametrize("text", [services(1001), backends(1001)])
def test_one_more(text: str) -> None:
    with pytest.raises(ConfigError, match="1001 items are more than the 1000 that are supported"):
        parse_config(text, file="c.yaml")


def test_no_services_is_a_bridge_that_only_passes_traffic() -> None:
    assert parse_config(f"{PREFIX.rstrip()} []\n", file="c.yaml").services == ()
