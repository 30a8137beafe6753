"""Alerts and dashboards query only metrics and labels that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.promql import family_of, grouped_by, is_balanced, metrics_of
from xenoovs.fleet.snapshot import FLEET_TABLES
from xenoovs.show.column import Kind
from xenoovs.show.snapshot import HISTOGRAMS, TABLES

TEMPLATES = Path(__file__).parents[3] / "templates"
ALERTS = yaml.safe_load((TEMPLATES / "prometheus-alerts.yaml").read_text())
DASHBOARD = json.loads((TEMPLATES / "grafana-dashboard.json").read_text())
RULES: list[dict[str, Any]] = [rule for group in ALERTS["groups"] for rule in group["rules"]]

ALWAYS = [metric for table in (*TABLES, *FLEET_TABLES) if not table.is_optional for metric in table.metrics()]
BY_NAME = {metric.name: metric for metric in (*ALWAYS, *HISTOGRAMS)}
OF_PROMETHEUS = {"instance", "job", "le"}


def queries() -> Iterator[str]:
    yield from (rule["expr"] for rule in RULES)
    for panel in DASHBOARD["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]


@pytest.mark.parametrize("query", sorted(set(queries())))
def test_a_query_names_metrics_and_labels_that_exist_and_takes_rates_of_counters(query: str) -> None:
    found = list(metrics_of(query))
    assert found
    known = set[str]()
    for name, labels in found:
        metric = BY_NAME[family_of(name)]
        assert (family_of(name) != name) == (metric.kind is Kind.HISTOGRAM)
        assert labels <= {*metric.labels, *OF_PROMETHEUS}
        known |= set(metric.labels)
    assert grouped_by(query) <= known | OF_PROMETHEUS
    assert is_balanced(query)
    for name in re.findall(r"(?:rate|increase)\(([a-z_]+)", query):
        assert BY_NAME[family_of(name)].kind is not Kind.GAUGE


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_an_alert_has_the_keys_of_prometheus_and_a_text_with_labels_of_its_query(
    rule: dict[str, Any],
) -> None:
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert re.fullmatch(r"Xenoovs[A-Za-z]+", rule["alert"])
    assert re.fullmatch(r"[0-9]+[smhd]", rule.get("for", "0s"))
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert set(rule["annotations"]) == {"summary", "description"}
    labels = {label for name, _ in metrics_of(rule["expr"]) for label in BY_NAME[family_of(name)].labels}
    used = set(re.findall(r"\$labels\.([a-z_]+)", " ".join(rule["annotations"].values())))
    assert used <= labels | OF_PROMETHEUS


def test_panels_do_not_overlap() -> None:
    cells = set[tuple[int, int]]()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        own = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not own & cells
        assert at["x"] + at["w"] <= 24
        cells |= own
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_legends_use_labels_that_the_query_leaves() -> None:
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            used = set(re.findall(r"{{([a-z_]+)}}", target["legendFormat"]))
            labels = {label for name, _ in metrics_of(target["expr"]) for label in BY_NAME[family_of(name)].labels}
            assert used <= (grouped_by(target["expr"]) or labels)


RULE_TESTS = (Path(__file__).parents[2] / "prometheus" / "alerts.yaml").read_text()


def test_every_alert_is_fired_in_the_tests_of_the_rules() -> None:
    """promtool runs them: `promtool test rules tests/prometheus/alerts.yaml`."""
    fired = re.findall(r'alertname="(\w+)"', RULE_TESTS)
    assert set(fired) == {rule["alert"] for rule in RULES}


def test_the_tests_of_the_rules_have_series_that_an_agent_has() -> None:
    for test in yaml.safe_load(RULE_TESTS)["tests"]:
        for given in test["input_series"]:
            for name, labels in metrics_of(given["series"]):
                assert labels <= {*BY_NAME[name].labels, "instance"}
                assert set(BY_NAME[name].labels) <= labels or name == "xenoovs_build_info"
