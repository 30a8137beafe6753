"""What the controller of a fleet writes, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.command_line import SMALL_CONFIG
from tests.fleet_support import EMPTY, committed, given, settled
from xenoovs.decision.decision import Blocks
from xenoovs.errors import ConfigError, FleetRefused
from xenoovs.fleet.commands.change import _read as read_text_of
from xenoovs.fleet.history import MAX_COMMENT, MAX_ENTRIES, history, oldest_entries, with_entry
from xenoovs.fleet.plan import MAX_INTENTS, ViewReader, next_change, parse_intent
from xenoovs.model.include import MAX_SIZE_BYTES
from xenoovs.model.load import parse_config
from xenoovs.partition.block import Block
from xenoovs.store.view import Action, Changes, Dpu, IntentState


@pytest.mark.parametrize("state", [IntentState.STAGED, IntentState.ROLLING])
def test_a_wrong_intent_is_refused_and_the_one_before_stays(state: IntentState) -> None:
    view = settled(given(replace(EMPTY, dpus={"dpu1": Dpu("dpu1", frozenset(), wave=1)}), SMALL_CONFIG))
    after = settled(given(view, SMALL_CONFIG.replace("weight: 30", "weight: no"), state))
    assert (after.intent, after.wave, after.services) == (1, 0, view.services)
    assert (after.intents[1].state, after.intents[2].state) == (IntentState.CURRENT, IntentState.REFUSED)
    assert "is not a number" in after.intents[2].comment


def test_a_service_whose_row_is_damaged_is_written_again() -> None:
    view = settled(given(EMPTY, SMALL_CONFIG))
    dns = view.services["dns"]
    hole = Blocks.of([(Block(0, 1), "fips2")])
    for damaged in (
        replace(dns, config="{"),
        replace(dns, config="[]"),
        replace(dns, config=dns.config.replace("fips3", "\N{BELL}")),
        replace(dns, active=Blocks.of([(Block(0, 0), "unknown")])),
        replace(dns, active=hole),
        replace(dns, home=hole),
        replace(dns, claim="another"),
    ):
        change = next_change(replace(view, services={"dns": damaged}))
        assert len(change.unusable) == 1
        assert change.changes.services["dns"] == replace(dns, generation=view.generation + 1)


def test_the_last_intents_stay() -> None:
    view = EMPTY
    for weight in range(1, MAX_INTENTS + 5):
        view = settled(given(view, SMALL_CONFIG.replace("weight: 30", f"weight: {weight}")))
    assert sorted(view.intents) == list(range(5, MAX_INTENTS + 5))
    assert view.intents[view.intent].state is IntentState.CURRENT


TUNNELED = SMALL_CONFIG.replace("services:", "tunnels: [{name: gnv0, type: geneve, key: 5001}]\nservices:") + (
    '      - {name: far, mac: "02:00:5e:10:00:0d", weight: 30, egress: gnv0, remote: 192.168.77.11}\n'
)


def test_a_tunnel_of_the_fleet_has_its_end_in_the_file_of_each_dpu() -> None:
    view = settled(given(EMPTY, TUNNELED))
    assert next_change(view).is_empty
    local = "version: 1\nswitch: {ingress: [p0], egress: p1, fleet_ports: {gnv0: tun9}}\n"
    decided = []
    for ports, port in (("shared", "tun9"), ("each", "tun9-c0a84d0b")):
        tunnels = f"tunnels: [{{name: tun9, type: vxlan, local: 192.168.77.1, ports: {ports}}}]\n"
        balancer, stored = ViewReader().read(view.services.values(), local + tunnels, file="dpu1.yaml")
        (far,) = (backend for backend in balancer.services[0].backends if backend.name == "far")
        assert str(far.next_hop) == f"02:00:5e:10:00:0d/192.168.77.11/5001@{port}"
        decided.append(stored)
    # Clients are at the same backends, whichever ports a DPU has.
    assert decided[0] == decided[1]
    # A name that is a list once ended the agent with a TypeError.
    for place, tunnels in (("1:1", ""), ("3:10", "tunnels: [{name: [tun9]}]\n")):
        with pytest.raises(
            ConfigError, match=rf"dpu1.yaml:{place}: tunnels: this DPU has no tunnel tun9, needed by .* dns"
        ):
            ViewReader().read(view.services.values(), local + tunnels, file="dpu1.yaml")


def test_bug_a_dpu_whose_switch_fails_over_alone_had_votes_that_move_other_clients() -> None:
    """It is refused until the fleet decides by whole blocks too; the other way round, votes move whole blocks."""
    alone = "version: 1\nswitch: {ingress: [p0], egress: p1, failover: in_switch}\n"
    in_switch = SMALL_CONFIG.replace("egress: p1", "egress: p1, failover: in_switch")
    before, after = (settled(given(EMPTY, text)) for text in (SMALL_CONFIG, in_switch))
    reader = ViewReader()
    with pytest.raises(
        ConfigError, match=r"dpu1.yaml:2:\d+: switch.failover: the config of the fleet has no `failover"
    ):
        reader.read(before.services.values(), alone, file="dpu1.yaml")
    for local, buckets in ((alone, 2), (alone.replace(", failover: in_switch", ""), 0)):
        balancer, _ = reader.read(after.services.values(), local, file="dpu1.yaml")
        assert balancer.uplinks.buckets == buckets


HOST = "tunnels: [{name: h, local: 192.0.2.1, host_port: p2, remotes: [{name: b, address: 192.0.2.2}]}]\nservices:"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (", remote: 192.168.77.11", "", "gnv0 is a tunnel; add `remote:`"),
        ("key: 5001", "dst_port: 7000", "neither far nor gnv0 has a key"),
        ("egress: gnv0", "egress: gnv1", "far is behind no tunnel; name one as `egress`, such as gnv0"),
        ("protocol: udp", "protocol: udp\n    mode: nat", "through which there is no NAT"),
        ("type: geneve", "type: geneve, host_port: p2", "remotes: this key is required"),
        (TUNNELED, SMALL_CONFIG.replace("services:", HOST), "tunnels of hosts .* belong to each DPU"),
        (TUNNELED, SMALL_CONFIG + "announce: {bgp: frr}\n", "`announce` belongs to each DPU"),
    ],
)
def test_mistakes_are_found_before_any_dpu_reads_them(old: str, new: str, message: str) -> None:
    assert old in TUNNELED
    with pytest.raises((ConfigError, FleetRefused), match=message):
        parse_intent(TUNNELED.replace(old, new), file="my.yaml")


def test_the_history_loses_its_oldest_entries_a_hundred_at_a_time() -> None:
    entries = {number: Action(number, number, "ann", "drain") for number in range(1, MAX_ENTRIES + 101)}
    assert oldest_entries(replace(EMPTY, actions=dict(list(entries.items())[1:]))) == {}
    assert oldest_entries(replace(EMPTY, actions=entries)) == dict.fromkeys(range(1, 101))


def test_a_config_of_an_earlier_version_has_an_entry_and_a_comment_has_a_bound() -> None:
    """It wrote its configs into the table of configs alone."""
    view = settled(given(EMPTY, SMALL_CONFIG))
    view = committed(view, with_entry(view, Changes(), Action(0, 9, "ann", "reset", comment="c" * 300)))
    entries = [(action.text, len(action.comment), intent and intent.state.value) for action, intent in history(view)]
    assert entries == [("reset", MAX_COMMENT, None), ("apply", 0, "current")]


def test_bug_apply_read_a_pipe_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    endless = BytesIO(b"#" * (MAX_SIZE_BYTES + 1000))
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=endless))
    with pytest.raises(ConfigError, match="the config is larger than"):
        read_text_of(Path("-"))
    assert endless.tell() == MAX_SIZE_BYTES + 1


def test_groups_are_for_the_config_of_a_fleet() -> None:
    with pytest.raises(ConfigError, match="`groups` is for the config of a fleet"):
        parse_config(SMALL_CONFIG.replace("    vip:", "    groups: [edge]\n    vip:"), file="my.yaml")
    with pytest.raises(ConfigError, match="write `groups` in each service"):
        parse_intent("defaults: {services: {groups: [edge]}}\n" + SMALL_CONFIG, file="my.yaml")
