"""Defaults of a health check; mistakes in it are in tests/golden/config_errors."""

from __future__ import annotations

import pytest

from xenoovs.model.balancer import AllDown, Health, ProbeKind
from xenoovs.model.load import parse_config

CONFIG = """\
version: 1
switch: {{ingress: [p0], egress: p1}}
{file}
services:
  - name: web
    vip: 192.0.2.10
    protocol: tcp
    ports: [8080, 9090]
    {service}
    backends:
      - {{name: b1, mac: 02:00:00:00:00:01, weight: 1, address: 192.0.2.1}}
"""


def health(service: str = "", *, file: str = "") -> Health | None:
    return parse_config(CONFIG.format(service=service, file=file), file="c.yaml").services[0].health


DEFAULTS: dict[str, tuple[str, str, Health | None]] = {
    "the first port of the service": ("{probe: tcp}", "{}", Health(ProbeKind.TCP, 8080)),
    "the first port for a program too": (
        "{probe: exec, command: [/bin/a]}",
        "{}",
        Health(ProbeKind.EXEC, 8080, command=("/bin/a",)),
    ),
    "no port for a probe without ports": ("{probe: icmp, port: 7}", "{}", Health(ProbeKind.ICMP)),
    "fast interval and timeout follow the interval": (
        "{probe: icmp, interval: 8s}",
        "{}",
        Health(ProbeKind.ICMP, interval_ms=8000, fast_interval_ms=2000, timeout_ms=4000),
    ),
    "a service overrides the file key by key": (
        "{port: 23, rise: 1}",
        "{probe: tcp, port: 22, rise: 7, on_all_down: drop}",
        Health(ProbeKind.TCP, 23, rise=1, on_all_down=AllDown.DROP),
    ),
    "a service without the check of the file": ("{probe: none}", "{probe: tcp}", None),
    "no check": ("{}", "{}", None),
}


@pytest.mark.parametrize(("service", "file", "expected"), DEFAULTS.values(), ids=DEFAULTS)
def test_defaults(service: str, file: str, expected: Health | None) -> None:
    assert health(f"health: {service}", file=f"health: {file}") == expected


@pytest.mark.parametrize(("text", "milliseconds"), [("1ms", 1), ("1.5s", 1500), ("2m", 120_000), ("1h", 3_600_000)])
def test_times(text: str, milliseconds: int) -> None:
    found = health(f"health: {{probe: icmp, interval: {text}, timeout: 1ms, fast_interval: 1ms}}")
    assert found is not None
    assert found.interval_ms == milliseconds
