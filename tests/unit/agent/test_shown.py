"""What is shown of an agent: conditions and their texts, the status page, metrics, and queries about them."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from aiohttp.web import RouteDef
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.core import Metric as Family
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families

from tests.agent_support import Scene
from tests.judged import assert_recorded
from tests.promql import family_of, grouped_by, is_balanced, metrics_of
from tests.snapshots import MOVED, NOW_S, blocks, blocks_of, lazy_snapshot, remote, snapshot, web
from tests.unix_http import ask
from xenoovs.agent.daemon import Agent
from xenoovs.agent.telemetry import Timings, exposition, metrics_routes, open_metrics
from xenoovs.agent.web.page import COLUMNS, MAX_SERVICES, agent_json, cells, page
from xenoovs.datapath.megaflow import Verdict
from xenoovs.errors import ParseError
from xenoovs.fleet.snapshot import FLEET_TABLES
from xenoovs.show.codec import to_json
from xenoovs.show.column import Kind, Metric
from xenoovs.show.conditions import addressed, hardware_share, headline, is_as_desired, notices, troubles
from xenoovs.show.snapshot import (
    BLOCKS,
    HISTOGRAMS,
    TABLES,
    AgentView,
    AnnouncementView,
    BackendState,
    BlockView,
    Insertion,
    PortView,
    Rate,
    ServiceView,
    Snapshot,
    parse_snapshot,
)

STOPPED = AgentView("down", 1.0, is_away=True, reply="down")


def with_backends(*backends: tuple[BackendState, float, bool], stopped: int = 0, name: str = "web") -> ServiceView:
    """A service whose backends have this state, this share of the addresses, and are out or not. stopped: how many of
    them are down by their agents."""
    made = (
        replace(web().backends[0], state=state, share=share, is_ejected=out, agent=STOPPED if n < stopped else None)
        for n, (state, share, out) in enumerate(backends)
    )
    return replace(web(), name=name, backends=tuple(made), draining=0)


def of(*services: ServiceView) -> Snapshot:
    return replace(WELL, services=services)


def with_rate(rate: Rate | None) -> Snapshot:
    (service,) = WELL.services
    first, *others = service.backends
    return of(replace(service, backends=(replace(first, rate=rate), *others)))


def at_backup(name: str) -> ServiceView:
    first = replace(web().backends[0], state=DOWN, share=0.0, is_ejected=True)
    return replace(
        web(), name=name, backends=(first, replace(first, name="sorry", state=UP, share=1.0, is_backup=True))
    )


def vip(*last: int, **view: Any) -> Snapshot:
    views = (AnnouncementView(f"192.0.2.{number}", **view) for number in last or (10,))
    return replace(WELL, announcements=tuple(views))


WELL = replace(snapshot(), services=snapshot().services[1:], overrides=())
UP, DOWN, UNCHECKED = BackendState.UP, BackendState.DOWN, BackendState.UNCHECKED
DROPPED = with_backends((DOWN, 0.0, True), (DOWN, 0.0, True))
ONE_KEPT = with_backends((DOWN, 0.0, True), (DOWN, 0.25, False), (UP, 0.75, False))
NAMES = [f"s{number}" for number in range(7)]
SHOWN: dict[str, Snapshot] = {
    "as configured": WELL,
    "one of several is down": snapshot(),
    "one of two is down": of(with_backends((DOWN, 0.0, True), (UP, 1.0, False))),
    "thirds": of(with_backends(*[(UP, 1 / 3, False)] * 3)),
    "unchecked": of(with_backends((UNCHECKED, 1.0, False))),
    "no backend answers": of(with_backends((DOWN, 0.5, False), (DOWN, 0.5, False))),
    "all are dropped": of(DROPPED),
    "one that does not answer is kept": of(ONE_KEPT),
    # Backends that answer probes but advertise that they are down are not called silent.
    "all advertise that they are down": of(with_backends((UP, 0.5, False), (UP, 0.5, False), stopped=2)),
    "some advertise that they are down": of(with_backends((UP, 0.5, False), (DOWN, 0.5, False), stopped=2)),
    "one of two advertises it": of(with_backends((UP, 0.25, False), (UP, 0.75, False), stopped=1)),
    "two services": of(ONE_KEPT, replace(DROPPED, name="dns")),
    "many services, the worst first": of(ONE_KEPT, *(with_backends((DOWN, 1.0, False), name=name) for name in NAMES)),
    "clients at a backup": of(at_backup("web")),
    "many services at backups": of(*map(at_backup, NAMES)),
    "no ports are known": replace(WELL, ports=None),
    "out of service": replace(WELL, not_ready="taken out of service by an operator"),
    "not confirmed": replace(WELL, confirm_by_s=NOW_S + 25, rolls_back_to="99887766aabb"),
    "moved by the switch": replace(WELL, moved_by_switch=(MOVED,)),
    "groups without a live port": replace(
        WELL, moved_by_switch=(replace(MOVED, to="", text="web: 3 blocks of b2: packets are dropped"),)
    ),
    "before the first round": replace(WELL, services=(DROPPED,), last_round_s=None),
    "announced": vip(is_announced=True, peers=2),
    "announced, neighbors unknown": vip(is_announced=True, problem="no vtysh"),
    "announced without a session": vip(is_announced=True, peers=0, problem="no session"),
    "not announced": vip(is_announced=False, problem="refused"),
    "withdrawn": vip(is_announced=False, reason="drained"),
    "many withdrawn": vip(*range(7), is_announced=False, reason="drained"),
    "an error of a host that is not ready": replace(
        WELL, last_error="no bridge", not_ready="reconcile fails: no bridge"
    ),
    "an error": replace(WELL, last_error="bridge ovsbr1 is not there"),
    "a port without link": replace(WELL, ports=(PortView("p1", 2, link_up=False),)),
    "a port that is gone": replace(WELL, ports=(PortView("p1", None, link_up=None),)),
    "a database that does not answer": replace(WELL, ports=None, ports_problem="cannot reach unix:/run/db.sock"),
    "changes held back": replace(WELL, is_paused=True, pending_flow_mods=3),
    "moves of blocks held back": replace(WELL, are_moves_paused=True),
    "a refused config": replace(WELL, config_problem="c.yaml:3:1: no services", candidate="0f1e2d3c4b5a"),
    "a config file that is gone": replace(WELL, config_problem="c.yaml: no such file"),
    "a config still to be tried": replace(WELL, candidate="0f1e2d3c4b5a"),
    **{
        f"{rate.hw_pps} of {rate.pps:g} packets a second in hardware": with_rate(rate)
        for rate in (Rate(pps, hw_pps, 1.0) for pps, hw_pps in ((100, None), (0, 0), (100, 75), (1000, 999), (100, 0)))
    },
    "no rate": with_rate(None),
}


def told(shown: Snapshot) -> str:
    """Headline and badge, then notices with how bad they are; those that are no trouble are in brackets."""
    badge = hardware_share(shown)
    head = [*headline(shown), *([] if badge is None else badge), *["as desired"] * is_as_desired(shown)]
    found = [*troubles(shown)]
    lines = (f"{level}: {text}" if (text, level) in found else f"({level}: {text})" for text, level in notices(shown))
    return "\n".join([", ".join(head), *(addressed(line, " --bridge ovsbr1") for line in lines)])


def test_conditions_and_their_texts(*, update_golden: bool) -> None:
    """Commands in them carry the options that reach the agent."""
    assert_recorded("cli/conditions.txt", {title: told(shown) for title, shown in SHOWN.items()}, update=update_golden)
    assert [service.unanswered for service in (DROPPED, ONE_KEPT)] == [1.0, 0.25]


@pytest.mark.parametrize("script", ["agent.js", "fleet.js"])
def test_the_page_loads_nothing_from_other_hosts_and_no_text_can_become_markup(script: str) -> None:
    """Nothing parses HTML, and no element has a style or a handler of its own."""
    document, headers = page(script)
    text = document.replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"url\((?!#)|@import|https?:|\bsrc=|srcset=|action=", text)
    assert all(value.startswith("data:") for value in re.findall(r'href="([^"]*)"', text))
    parsers = r"innerHTML|outerHTML|insertAdjacent|DOMParser|document\.write|eval\("
    assert not re.search(rf"{parsers}| style=| on[a-z]+=", text)
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert len(re.findall(r"'sha256-[A-Za-z0-9+/]{43}='", policy)) == 2


@pytest.mark.parametrize(
    ("field", "bits"), [("nw_src", "0.0.0.2/0.0.0.3"), ("ipv6_src", "::2/::3"), ("tp_src", "0x2/0x3")]
)
def test_few_blocks_are_drawn_as_they_are(field: str, bits: str) -> None:
    made = [replace(block, field=field) for block in blocks("0011", "hsa-")]
    drawn = cells(made)
    assert [tuple(cell.values())[:4] for cell in drawn] == [
        (block.start, block.size, block.backend, block.verdict and block.verdict.value) for block in made
    ]
    assert drawn[1]["tip"] == f"b0 · SW · {field}={bits}"


@given(st.integers(0, 4), st.integers())
def test_many_blocks_become_runs_that_fill_the_strip(backends: int, seed: int) -> None:
    depth, random = 11, Random(seed)
    owners = [f"b{random.randint(0, backends)}" for _ in range(1 << depth)]
    made = [
        BlockView(number, (1 << depth) - 1, number / (1 << depth), 1 / (1 << depth), owner, "nw_src", Verdict.HW)
        for number, owner in enumerate(owners)
    ]
    drawn = cells(made)
    assert len(drawn) <= COLUMNS
    assert drawn[0]["start"] == 0
    assert all(abs(a["start"] + a["size"] - b["start"]) < 1e-9 for a, b in pairwise(drawn))
    assert drawn[-1]["start"] + drawn[-1]["size"] == 1
    assert all(a["backend"] != b["backend"] for a, b in pairwise(drawn))


def test_of_very_many_services_those_in_trouble_are_shown() -> None:
    calm = snapshot().services[1]
    many = (*(replace(calm, name=f"calm{number}") for number in range(100)), snapshot().services[0])
    shown = json.loads(agent_json(lazy_snapshot(replace(snapshot(), services=many))))
    assert shown["snapshot"]["services"][0]["vips"] == ["192.0.2.80"]
    assert shown["left"].startswith(f"{101 - MAX_SERVICES} more services")


def test_commands_on_the_page_reach_its_agent() -> None:
    """With several agents, the commands on the page of one failed with `several agents run`."""
    paused = lazy_snapshot(replace(snapshot(), is_paused=True, pending_flow_mods=0))
    shown = agent_json(replace(paused, command_options=" --bridge ovsbr1"))
    assert "nothing is changed until `xenoovs pause --end --bridge ovsbr1`" in shown
    assert "nothing is changed until `xenoovs pause --end`" in agent_json(paused)


def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(to_json(snapshot()))
    return found


def test_a_snapshot_comes_back_from_json_with_keys_of_a_newer_agent_and_without_those_that_an_older_one_lacks() -> None:
    assert parse_snapshot(document()) == parse_snapshot({**document(), "moon_phase": "full"}) == snapshot()
    older = document()
    del older["overrides"]
    assert parse_snapshot(older) == replace(snapshot(), overrides=())


@pytest.mark.parametrize("other", [None, 3, [], {}, {"bridge": "b"}, {**document(), "services": 3}])
def test_anything_else_is_a_parse_error(other: object) -> None:
    with pytest.raises(ParseError, match="the status of an agent"):
        parse_snapshot(other)


METRICS = [*(metric for table in (*TABLES, BLOCKS) for metric in table.metrics()), *HISTOGRAMS]
BY_NAME = {metric.name: metric for metric in METRICS}


def in_trouble() -> Snapshot:
    """A snapshot in which rare metrics have a value too."""
    vips = (AnnouncementView("192.0.2.10", is_announced=True, peers=2),)
    return replace(
        snapshot(),
        confirm_by_s=1.0,
        last_error='it is\nnot "there"',
        config_problem="bad",
        insertion=Insertion(enqueued=3, inserted=8283, latency_s=0.014, pipe_resizes=25, upcall_drops=4),
        announcements=vips,
        remotes=(remote(),),
        moved_by_switch=(MOVED,),
    )


def fed() -> Timings:
    timings = Timings(HISTOGRAMS)
    timings.count("probe", 0.002, "http", "ok")
    timings.count("plan", 0.01)
    timings.count("apply", 0.2)
    return timings


def exposed(shown: Snapshot) -> bytes:
    blocks = [(name, blocks_of(name)) for name in ("web", "dns")]
    return exposition(TABLES, shown) + exposition([BLOCKS], blocks) + fed().text()


def families(shown: Snapshot) -> dict[str, Family]:
    return {
        family.name + ("_total" if family.type == "counter" else ""): family
        for family in text_string_to_metric_families(exposed(shown).decode())
    }


def values(name: str, shown: Snapshot) -> dict[tuple[str, ...], float]:
    labels = BY_NAME[name].labels
    return {tuple(sample.labels[label] for label in labels): sample.value for sample in families(shown)[name].samples}


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_declared_metric_is_there_with_its_type_help_and_labels(metric: Metric) -> None:
    family = families(in_trouble())[metric.name]
    assert family.type == metric.kind.value
    assert family.documentation == metric.help
    assert family.samples
    allowed = {*metric.labels, "le"} if metric.kind is Kind.HISTOGRAM else {*metric.labels}
    assert all(set(sample.labels) <= allowed >= set(metric.labels) for sample in family.samples)


def test_openmetrics_has_the_same_families_and_samples_and_none_that_is_not_declared_once() -> None:
    text = exposed(in_trouble())
    assert len(BY_NAME) == len(METRICS)
    found = {family.name: family for family in openmetrics_families(open_metrics(text).decode())}  # type: ignore[no-untyped-call]
    assert {f"{name}_total" if family.type == "counter" else name for name, family in found.items()} == set(BY_NAME)
    for family in text_string_to_metric_families(text.decode()):
        assert found[family.name].documentation == family.documentation
        assert found[family.name].samples == family.samples


FLEET_METRICS = [metric for table in FLEET_TABLES for metric in table.metrics()]


@pytest.mark.parametrize("metric", [*METRICS, *FLEET_METRICS], ids=lambda metric: metric.name)
def test_names_contain_the_kind_and_helps_are_sentences(metric: Metric) -> None:
    """Bug: helps had pronouns without a noun."""
    assert re.fullmatch(r"xenoovs_[a-z0-9_]+", metric.name)
    assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
    assert metric.help.endswith(".")
    assert not re.search(r"\b(it|them|they)\b", metric.help)
    assert (metric.of is None) == (metric.kind is Kind.HISTOGRAM) == bool(metric.buckets)


def test_what_is_not_known_is_not_shown() -> None:
    early = replace(snapshot(), services=snapshot().services[1:], sampled_s=None, last_round_s=None)
    for name in ("xenoovs_last_round_timestamp_seconds", "xenoovs_service_offload_ratio", "xenoovs_backend_blocks"):
        assert values(name, early) == {}


@given(st.text() | st.just('it is\nnot "there"'))
def test_any_text_comes_through_the_exposition(text: str) -> None:
    found = values("xenoovs_error_info", replace(snapshot(), last_error=text))
    assert found == ({(text,): 1} if text else {})


def test_a_scrape_is_compressed_if_the_client_accepts_it(scene: Scene) -> None:
    def routes(agent: Agent) -> list[RouteDef]:
        return metrics_routes(lambda: lambda: exposition(TABLES, agent.lazy_snapshot().snapshot()))

    with scene.agent(routes=routes) as (_, client):
        plain = ask(client.path, "/metrics", headers={"Accept-Encoding": "identity"})
        assert (plain.status, plain.headers["Content-Encoding"], plain.body[:7]) == (200, None, b"# HELP ")
        packed = ask(client.path, "/metrics", headers={"Accept-Encoding": "gzip, deflate"})
        assert (packed.headers["Content-Encoding"], gzip.decompress(packed.body)[:7]) == ("gzip", b"# HELP ")
        assert len(packed.body) < len(plain.body) / 2
        prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1"
        assert ask(client.path, "/metrics", headers={"Accept": prometheus}).body.endswith(b"\n# EOF\n")
        assert not plain.body.endswith(b"# EOF\n")


TEMPLATES = Path(__file__).parents[3] / "templates"
ALERTS = yaml.safe_load((TEMPLATES / "prometheus-alerts.yaml").read_text())
DASHBOARD = json.loads((TEMPLATES / "grafana-dashboard.json").read_text())
RULES: list[dict[str, Any]] = [rule for group in ALERTS["groups"] for rule in group["rules"]]

ALWAYS = [metric for table in (*TABLES, *FLEET_TABLES) for metric in table.metrics()]
QUERIED = {metric.name: metric for metric in (*ALWAYS, *HISTOGRAMS)}
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
        metric = QUERIED[family_of(name)]
        assert (family_of(name) != name) == (metric.kind is Kind.HISTOGRAM)
        assert labels <= {*metric.labels, *OF_PROMETHEUS}
        known |= set(metric.labels)
    assert grouped_by(query) <= known | OF_PROMETHEUS
    assert is_balanced(query)
    for name in re.findall(r"(?:rate|increase)\(([a-z_]+)", query):
        assert QUERIED[family_of(name)].kind is not Kind.GAUGE


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_an_alert_has_the_keys_of_prometheus_and_a_text_with_labels_of_its_query(rule: dict[str, Any]) -> None:
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert re.fullmatch(r"Xenoovs[A-Za-z]+", rule["alert"])
    assert re.fullmatch(r"[0-9]+[smhd]", rule.get("for", "0s"))
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert set(rule["annotations"]) == {"summary", "description"}
    labels = {label for name, _ in metrics_of(rule["expr"]) for label in QUERIED[family_of(name)].labels}
    used = set(re.findall(r"\$labels\.([a-z_]+)", " ".join(rule["annotations"].values())))
    assert used <= labels | OF_PROMETHEUS


def test_panels_do_not_overlap_and_their_legends_use_labels_that_the_query_leaves() -> None:
    cells = set[tuple[int, int]]()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        own = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not own & cells
        assert at["x"] + at["w"] <= 24
        cells |= own
        for target in panel["targets"]:
            used = set(re.findall(r"{{([a-z_]+)}}", target["legendFormat"]))
            labels = {label for name, _ in metrics_of(target["expr"]) for label in QUERIED[family_of(name)].labels}
            assert used <= (grouped_by(target["expr"]) or labels)
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


RULE_TESTS = (Path(__file__).parents[2] / "prometheus" / "alerts.yaml").read_text()


def test_every_alert_is_fired_in_the_tests_of_the_rules_by_series_that_an_agent_has() -> None:
    """promtool runs them: `promtool test rules tests/prometheus/alerts.yaml`."""
    assert set(re.findall(r'alertname="(\w+)"', RULE_TESTS)) == {rule["alert"] for rule in RULES}
    for test in yaml.safe_load(RULE_TESTS)["tests"]:
        for given_series in test["input_series"]:
            for name, labels in metrics_of(given_series["series"]):
                assert labels <= {*QUERIED[name].labels, "instance"}
                assert set(QUERIED[name].labels) <= labels or name == "xenoovs_build_info"
