"""Hostile texts are refused before they take much memory or time, and the documented limits are met."""

from __future__ import annotations

import random
import tracemalloc
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


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? ", "{", "[{a: ", "!", "&a ", '"', ":", "%", "|\n ", "\t"])
def test_ten_megabytes_of_one_sign(opening: str) -> None:
    refused(opening * (10 * MEGABYTE // len(opening)))


def test_deep_nesting_below_a_duplicate_key() -> None:
    error = refused("a: 1\na: " + "[" * MEGABYTE)
    assert "nested deeper" in str(error)


def test_ten_megabytes_of_random_bytes() -> None:
    assert len(refused(random.Random(1).randbytes(10 * MEGABYTE)).findings) == 1


def test_ten_megabytes_of_random_letters() -> None:
    letters = random.Random(1).choices(b"abcdefgh: -\n", k=10 * MEGABYTE)
    refused(bytes(letters))


@pytest.mark.parametrize("before", ["", "a: 1\n"], ids=["", "hidden under a duplicate key"])
def test_more_values_than_any_config_has(before: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xenoovs.model.load.MAX_VALUES", 1_000)
    assert "more than 1000 values" in str(refused(f"{before}a: [{'1,' * 1_001}]"))


def test_more_keys_than_any_mapping_has() -> None:
    assert "more than 100 keys" in str(refused("".join(f"k{i}: 1\n" for i in range(100_000))))


def test_thousands_of_duplicate_keys() -> None:
    assert len(refused("k: 1\n" * 100_000).findings) == 100


def test_larger_than_any_config() -> None:
    assert "larger than 32 MiB" in str(refused(b"#" * (MAX_SIZE_BYTES + 1)))


def test_an_endless_file() -> None:
    with pytest.raises(ConfigError, match="larger than 32 MiB"):
        load_config(Path("/dev/zero"))


def test_thousands_of_mistakes_are_counted_not_listed() -> None:
    backends = "".join(f"      - {{nam: b{i}}}\n" for i in range(1000))
    error = refused(f"{PREFIX}  - name: web\n    backends:\n{backends}")
    assert len(error.findings) == 101
    assert error.findings[-1].message.startswith("and 2900 more mistakes")


def test_a_number_with_a_million_digits() -> None:
    weights = f"[{{name: a, mac: 02:00:00:00:00:01, weight: 0.{'1' * MEGABYTE}}}]"
    assert "more than 9 decimals" in str(refused(f"{PREFIX}  - name: web\n    backends: {weights}\n"))


def test_a_lone_surrogate() -> None:
    assert "U+D800" in str(refused("version: \ud800"))


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
