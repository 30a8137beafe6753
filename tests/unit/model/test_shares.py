"""Weights that the tolerance cannot meet: the tolerance in the message is the least that can, when it is typed in."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest

from xenoovs.errors import ConfigError
from xenoovs.model.load import parse_config
from xenoovs.partition.solve import partition


def config(tolerance: str, bits: int, weights: tuple[int, ...]) -> str:
    backends = "".join(
        f"      - {{name: b{i}, mac: 02:00:00:00:00:{i:02x}, weight: {weight}}}\n" for i, weight in enumerate(weights)
    )
    return (
        "version: 1\nswitch: {ingress: p0, egress: p1}\nservices:\n  - name: web\n"
        f"    tolerance: {tolerance}\n    match: {{bits: {bits}}}\n    backends:\n{backends}"
    )


CASES = [(4, (70, 20, 10)), (3, (1, 1, 1)), (8, (997, 101, 53, 7)), (16, (1000, 1000, 1)), (2, (5, 1, 1, 1))]


def least(bits: int, weights: tuple[int, ...]) -> Fraction:
    with pytest.raises(ConfigError) as caught:
        parse_config(config("0.0001%", bits, weights), file="c.yaml")
    (finding,) = caught.value.findings
    assert finding.path == "services[0].tolerance"
    written = re.search(r"write ([0-9.]+)%, the lowest possible", finding.message)
    assert written
    return Fraction(written[1])


@pytest.mark.parametrize(("bits", "weights"), CASES)
def test_the_least_tolerance_works_when_typed_in_and_a_hundredth_of_a_percent_less_does_not(
    bits: int, weights: tuple[int, ...]
) -> None:
    percent = least(bits, weights)
    (service,) = parse_config(config(f"{float(percent)}%", bits, weights), file="c.yaml").services
    assert partition(service.weights, tolerance=service.tolerance, width=bits).deviation <= service.tolerance
    with pytest.raises(ConfigError):
        parse_config(config(f"{float(percent - Fraction(1, 100))}%", bits, weights), file="c.yaml")


def test_a_budget_replaces_the_tolerance() -> None:
    text = config("0.0001%", 4, (70, 20, 10)).replace("    match:", "    max_flows: 3\n    match:")
    assert parse_config(text, file="c.yaml").services[0].max_flows == 3
