"""Defaults of a health check; mistakes in it are in tests/golden/config_errors."""

from __future__ import annotations

from tests.judged import assert_recorded
from xenoovs.model.balancer import Health
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


NO_MORE = "timeout: 1ms, fast_interval: 1ms"
CHECKS: dict[str, tuple[str, str]] = {
    "the first port of the service": ("{probe: tcp}", "{}"),
    "the first port for a program too": ("{probe: exec, command: [/bin/a]}", "{}"),
    "no port for a probe without ports": ("{probe: icmp, port: 7}", "{}"),
    "fast interval and timeout follow the interval": ("{probe: icmp, interval: 8s}", "{}"),
    "a service overrides the file key by key": (
        "{port: 23, rise: 1}",
        "{probe: tcp, port: 22, rise: 7, on_all_down: drop}",
    ),
    "a service without the check of the file": ("{probe: none}", "{probe: tcp}"),
    "no check": ("{}", "{}"),
    **{
        f"an interval of {t}": (f"{{probe: icmp, interval: {t}, {NO_MORE}}}", "{}") for t in ("1ms", "1.5s", "2m", "1h")
    },
}


def test_defaults_and_times(*, update_golden: bool) -> None:
    found = {
        title: str(health(f"health: {service}", file=f"health: {file}")) for title, (service, file) in CHECKS.items()
    }
    assert_recorded("model/health.txt", found, update=update_golden)
