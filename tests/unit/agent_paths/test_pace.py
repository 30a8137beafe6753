"""The budget of probes: intervals grow, and never shrink below what is configured."""

from __future__ import annotations

import pytest

from xenoovs.agent.paths.pace import MAX_SHARE, PROBES_PER_S, ProbeBudget


def test_a_few_remotes_are_probed_as_configured() -> None:
    pace = ProbeBudget()
    pace.plan([(4, 0.01)] * 50)
    assert pace.factor == 1.0


def test_a_hundred_remotes_with_four_paths_keep_the_budget() -> None:
    pace = ProbeBudget()
    pace.plan([(4, 0.01)] * 100)
    assert pace.factor == 2.0
    assert 100 * 4 / (0.01 * pace.factor) == PROBES_PER_S


def test_a_slow_machine_keeps_its_part_of_the_processor() -> None:
    pace = ProbeBudget()
    pace.plan([(4, 0.01)] * 100)
    for _ in range(200):
        pace.measured(probes=4, busy_s=4 * 100e-6)
    assert 100 * 4 / (0.01 * pace.factor) * 100e-6 == pytest.approx(MAX_SHARE)


def test_nothing_to_probe_costs_nothing() -> None:
    pace = ProbeBudget()
    pace.plan([])
    pace.measured(probes=0, busy_s=0.1)
    assert pace.factor == 1.0


def test_few_probes_beside_many_decisions_do_not_seem_to_cost_more_each() -> None:
    """Decisions about 100 remotes counted as the cost of probes, so fewer probes led to ever fewer probes."""
    pace = ProbeBudget()
    pace.plan([(4, 0.01)] * 100)
    pace.measured(probes=0, busy_s=1e-3)
    assert pace.factor == 2.0
    for _ in range(500):
        pace.measured(probes=4, busy_s=4 * 10e-6)
        pace.measured(probes=0, busy_s=4 * 20e-6)
    assert pace.cost_s == pytest.approx(30e-6, rel=0.2)
