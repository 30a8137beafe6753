"""Hostile texts are refused before they take much memory or time, and the documented limits are met."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from xenoovs.errors import ConfigError
from xenoovs.model.include import MAX_SIZE_BYTES
from xenoovs.model.load import load_config, parse_config

MEGABYTE = 1_000_000
PREFIX = "version: 1\nswitch: {ingress: [p0], egress: p1}\nservices:\n"


def refused(text: str | bytes) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        parse_config(text, file="c.yaml")
    assert all(finding.line >= 1 and finding.column >= 1 for finding in caught.value.findings)
    return caught.value


def test_a_bomb_of_aliases() -> None:
    levels = "".join(f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 9)}]\n" for i in range(1, 12))
    tracemalloc.start()
    error = refused(f"l0: &l0 [x, x, x]\n{levels}")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "anchors" in str(error)
    assert peak < 10 * MEGABYTE


BACKEND = "{name: a, mac: 02:00:00:00:00:01, weight: 1}"


def services(count: int) -> str:
    return PREFIX + "".join(
        f"  - {{name: s{i}, vip: 10.0.{i >> 8}.{i & 255}, backends: [{BACKEND}]}}\n" for i in range(count)
    )


def backends(count: int) -> str:
    return f"{PREFIX}  - name: s\n    tolerance: 10%\n    backends:\n" + "".join(
        f"      - {{name: b{i}, mac: 02:00:00:00:{i >> 8:02x}:{i & 255:02x}, weight: 1}}\n" for i in range(count)
    )


MISTAKES = "".join(f"      - {{nam: b{i}}}\n" for i in range(1000))
SIGNS = ("[", "{a: ", "- ", "? ", "{", "[{a: ", "!", "&a ", '"', ":", "%", "|\n ", "\t")
HOSTILE: dict[str, tuple[Callable[[], str | bytes], int, str]] = {
    **{sign: (lambda sign=sign: sign * (10 * MEGABYTE // len(sign)), 1, "") for sign in SIGNS},  # type: ignore[misc]
    "random bytes": (lambda: random.Random(1).randbytes(10 * MEGABYTE), 1, ""),
    "random letters": (lambda: bytes(random.Random(1).choices(b"abcdefgh: -\n", k=10 * MEGABYTE)), 1, ""),
    "a larger file": (lambda: b"#" * (MAX_SIZE_BYTES + 1), 1, "larger than 32 MiB"),
    "deep nesting below a duplicate key": (lambda: "a: 1\na: " + "[" * MEGABYTE, 2, "nested deeper"),
    "many keys": (lambda: "".join(f"k{i}: 1\n" for i in range(100_000)), 1, "more than 100 keys"),
    "many duplicate keys": (lambda: "k: 1\n" * 100_000, 100, ""),
    "many mistakes": (lambda: f"{PREFIX}  - name: web\n    backends:\n{MISTAKES}", 101, "and 2900 more mistakes"),
    "many digits": (lambda: backends(1).replace("weight: 1", f"weight: 0.{'1' * MEGABYTE}"), 1, "more than 9 decimals"),
    "a lone surrogate": (lambda: "version: \ud800", 1, "U+D800"),
    "many services": (lambda: services(1001), 1, "1001 items are more than the 1000 that are supported"),
    "many backends": (lambda: backends(1001), 1, "1001 items are more than the 1000 that are supported"),
}


@pytest.mark.parametrize(("text", "findings", "message"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_text_is_refused(text: Callable[[], str | bytes], findings: int, message: str) -> None:
    error = refused(text())
    assert len(error.findings) == findings
    assert message in str(error)


@pytest.mark.parametrize("before", ["", "a: 1\n"], ids=["", "hidden under a duplicate key"])
def test_more_values_than_any_config_has(before: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xenoovs.model.load.MAX_VALUES", 1_000)
    assert "more than 1000 values" in str(refused(f"{before}a: [{'1,' * 1_001}]"))


def test_an_endless_file() -> None:
    with pytest.raises(ConfigError, match="larger than 32 MiB"):
        load_config(Path("/dev/zero"))


def test_a_thousand_services_and_a_thousand_backends() -> None:
    assert len(parse_config(services(1000), file="c.yaml").services) == 1000
    assert len(parse_config(backends(1000), file="c.yaml").services[0].backends) == 1000


def test_no_services_is_a_bridge_that_only_passes_traffic() -> None:
    assert parse_config(f"{PREFIX.rstrip()} []\n", file="c.yaml").services == ()
