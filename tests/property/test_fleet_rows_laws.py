"""The laws of what a fleet's store holds: written and read it is the same, and no text of an export is a crash."""

from __future__ import annotations

import json
from dataclasses import replace
from ipaddress import IPv4Address

from hypothesis import assume, given
from hypothesis import strategies as st

from tests import fleet_support
from tests.command_line import SMALL_CONFIG
from tests.fleet_support import EMPTY, committed
from tests.strategies import balancers
from xenoovs.errors import ConfigError, ExportMalformed, FleetRefused
from xenoovs.fleet.change import next_change
from xenoovs.fleet.restore import restoring
from xenoovs.fleet.services import ConfigReader
from xenoovs.model.balancer import Backend, Balancer
from xenoovs.model.emit import render_config
from xenoovs.model.fleet import parse_fleet, service_text
from xenoovs.model.load import compose, compose_json
from xenoovs.model.next_hop import Direct, Tunneled
from xenoovs.model.switch_tunnel import SwitchTunnel
from xenoovs.model.tunnel import TunnelType
from xenoovs.store.export import export_text, parse_export
from xenoovs.store.view import Dpu, FleetView

GROUPS = st.frozensets(st.sampled_from(["edge", "core", "lab"]), max_size=2)
REMOTES = st.integers(1, 3).map(lambda number: IPv4Address("192.168.77.0") + number)


@st.composite
def tunneled(draw: st.DrawFn) -> Balancer:
    """A config with some of its backends behind tunnels."""
    balancer = draw(balancers(most=3).filter(lambda balancer: balancer.services))

    def moved(backend: Backend) -> Backend:
        hop = backend.next_hop
        if not isinstance(hop, Direct) or backend.follows or not draw(st.booleans()):
            return backend
        port = draw(st.sampled_from(["gnv0", "vx0"]))
        return replace(backend, next_hop=Tunneled(hop.mac, port, draw(REMOTES), draw(st.integers(0, 0xFFFFFF))))

    services = [replace(each, backends=tuple(map(moved, each.backends))) for each in balancer.services]
    local = IPv4Address("192.168.77.9")
    tunnels = [SwitchTunnel("gnv0", TunnelType.GENEVE, local, dst_port=6081)]
    tunnels.append(SwitchTunnel("vx0", TunnelType.VXLAN, local, dst_port=4789))
    return replace(balancer, services=tuple(services), switch_tunnels=tuple(tunnels))


def text_of(balancer: Balancer) -> str:
    """The config of a fleet with the same meaning, if there is one."""
    text = ""
    try:
        text = render_config(balancer).replace("    local: 192.168.77.9\n", "")
        parse_fleet(text, file="drawn")
    except (ValueError, ConfigError):
        assume(False)
    return text


@given(tunneled())
def test_services_with_tunnels_are_stored_read_and_stored_as_the_same(balancer: Balancer) -> None:
    texts = texts_of(parse_fleet(text_of(balancer), file="drawn").balancer)
    assert texts_of(ConfigReader().read(texts)) == texts


@given(st.data())
def test_what_is_read_as_json_is_the_same_as_yaml(data: st.DataObject) -> None:
    text = json.dumps(data.draw(st.dictionaries(st.text(max_size=5), JSON, max_size=4)), ensure_ascii=False)
    if data.draw(st.booleans(), label="changed"):
        start = data.draw(st.integers(0, len(text)))
        text = text[:start] + data.draw(st.text('{}[]"\\:,#-& \t\n0x1e.\u2028', max_size=5)) + text[start:]
    try:
        read = compose_json(text, file="a text")
    except ConfigError:
        read = None
    if read is not None:
        assert repr(read) == repr(compose(text, file="a text").root)


def texts_of(balancer: Balancer) -> dict[str, str]:
    return {each.name: service_text(each, balancer.uplinks.egress) for each in balancer.services}


@st.composite
def fleets(draw: st.DrawFn) -> FleetView:
    """A fleet whose services and DPUs have groups."""
    dpus = {name: Dpu(name, draw(GROUPS)) for name in ("d1", "d2")}
    view = fleet_support.settled(fleet_support.given(replace(EMPTY, dpus=dpus), text_of(draw(tunneled()))))
    return replace(view, services={name: replace(each, groups=draw(GROUPS)) for name, each in view.services.items()})


@given(fleets())
def test_an_export_is_read_as_what_was_exported_and_each_dpu_has_what_it_had(view: FleetView) -> None:
    found = parse_export(export_text(view).encode(), file="fleet.json")
    assert found == replace(view, ack=0)
    after = committed(EMPTY, restoring(EMPTY, found, {}, now_ms=0))
    for name in (*view.dpus, "unknown"):
        had, has = view.of_dpu(name).services, after.of_dpu(name).services
        assert [(each.config, each.active) for each in has.values()] == [
            (each.config, each.active) for each in had.values()
        ]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


EXPORTED = export_text(
    fleet_support.settled(
        fleet_support.given(
            replace(EMPTY, dpus={"d1": Dpu("d1", frozenset({"edge"}))}),
            SMALL_CONFIG.replace("    vip:", "    groups: edge\n    vip:"),
        )
    )
)


@given(st.data())
def test_any_text_is_restored_or_is_refused(data: st.DataObject) -> None:
    text = EXPORTED
    if data.draw(st.booleans(), label="cut or changed as text"):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 20)))
        made = (text[:start] + data.draw(st.text(max_size=5)) + text[end:]).encode(errors="surrogatepass")
    else:
        document = json.loads(text)
        place, key = [document], 0
        while isinstance(place[key], (dict, list)) and place[key] and data.draw(st.integers(0, 9)):
            place = place[key]
            key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        place[key] = data.draw(JSON)
        made = json.dumps(document).encode()
    try:
        changes = restoring(EMPTY, parse_export(made, file="fleet.json"), {}, now_ms=0)
    except (ExportMalformed, FleetRefused):
        return
    # What is restored can be decided about, or its config is refused.
    next_change(committed(EMPTY, changes))
