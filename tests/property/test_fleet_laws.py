"""The laws of a fleet: its changes, and what its store holds and exports."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from ipaddress import IPv4Address

from hypothesis import assume, given
from hypothesis import strategies as st

from tests import fleet_support
from tests.command_line import SMALL_CONFIG
from tests.compiled import compiled, observed
from tests.fleet_support import EMPTY, committed
from tests.strategies import JSON, balancers, damaged, edits, share, with_backends
from xenoovs.compile.plan import summarise
from xenoovs.compile.program import compile_program
from xenoovs.compile.read import read
from xenoovs.decision.decide import decide
from xenoovs.decision.decision import DesiredState, ServiceDecision, Transition, follow, moved
from xenoovs.errors import ConfigError, ExportMalformed, FleetRefused, XenoovsError
from xenoovs.fleet.plan import (
    IN_USE,
    ROLLED_OUT,
    Availability,
    FleetChange,
    Memo,
    ViewReader,
    decision_of,
    digest,
    next_change,
    parse_intent,
    restoring,
    with_intent,
)
from xenoovs.fleet.rollout import next_step
from xenoovs.model.balancer import Backend, Balancer, Service
from xenoovs.model.emit import render_config
from xenoovs.model.fleet import NEUTRAL, neutral_service, parse_fleet, read_services, service_text
from xenoovs.model.load import compose, compose_json
from xenoovs.model.next_hop import NO_TAG, Direct, Tunneled
from xenoovs.model.tunnel import SwitchTunnel, TunnelType
from xenoovs.model.values import site_name
from xenoovs.store.export import export_text, parse_export
from xenoovs.store.view import Changes, Dpu, DpuStatus, FleetOverride, FleetView, IntentState

LOCAL = IPv4Address("192.168.77.9")


def text_of(balancer: Balancer) -> str:
    """The config of a fleet with the same meaning, if there is one."""
    text = ""
    try:
        text = render_config(balancer).replace(f"    local: {LOCAL}\n", "")
        parse_intent(text, file="drawn")
    except (ValueError, ConfigError):
        assume(False)
    return text


@st.composite
def views(draw: st.DrawFn) -> tuple[FleetView, Balancer]:
    """A fleet with some services."""
    balancer = draw(balancers(most=3).filter(lambda balancer: balancer.services))
    return fleet_support.settled(fleet_support.given(EMPTY, text_of(balancer))), balancer


@share(0.4)
@given(st.data(), views())
def test_no_more_clients_move_than_on_one_bridge(data: st.DataObject, drawn: tuple[FleetView, Balancer]) -> None:
    view, balancer = drawn
    text = text_of(data.draw(edits(balancer)))
    after = fleet_support.settled(fleet_support.given(view, text))
    old, stored = ViewReader().read(view.services.values(), NEUTRAL, file="old")
    new, assigned = ViewReader().read(after.services.values(), NEUTRAL, file="new")
    # As an agent does: with `drain: {mode: pin}` a backend with another next hop is another one.
    previous, _ = follow(decision_of(old, stored), Transition(), before=old, after=new)
    alone = decide(previous, DesiredState(new))
    before, theirs, ours = dict(previous.services), dict(alone.services), dict(decision_of(new, assigned).services)
    for service_id in before.keys() & ours.keys():
        assert moved(before[service_id], ours[service_id]) <= moved(before[service_id], theirs[service_id])


@share(0.4)
@given(st.data(), views())
def test_a_backend_with_another_tag_moves_as_many_clients_as_on_a_bridge(
    data: st.DataObject, drawn: tuple[FleetView, Balancer]
) -> None:
    view, balancer = drawn

    def tagged(service: Service, backend: Backend) -> Backend:
        hop = backend.next_hop
        if not isinstance(hop, Direct) or backend.follows:
            return backend
        vlan = data.draw(TAGS.filter(lambda tag: tag is None or tag != service.claim.vlan))
        return replace(backend, next_hop=replace(hop, vlan=vlan))

    after, installed = with_backends(balancer, tagged), compiled(balancer).flows
    text = text_of(after)
    steps = with_intent(view, text).steps
    before, _ = read(observed(installed), after)
    changes = summarise(compiled(after, installed=installed), before, installed)
    assert {each.name: each.clients for each in steps if each.clients} == {
        each.name: each.moved for each in changes if each.moved
    }


@share(0.4)
@given(views())
def test_the_decision_read_from_flows_has_the_digest_of_the_stored_one(drawn: tuple[FleetView, Balancer]) -> None:
    view, _ = drawn
    local = NEUTRAL.replace("egress: egress", "egress: p1")
    config, stored = ViewReader().read(view.services.values(), local, file="local")
    program = compile_program(config, decide(decision_of(config, stored), DesiredState(config, stored=stored)))
    for made in program.services:
        name = made.service.name
        assert digest(name, made.decision) == digest(name, stored[name])
        other = replace(made.decision, active=made.decision.active.renamed({"b0": "b9"}))
        assert isinstance(other, ServiceDecision)
        assert (digest(name, other) == digest(name, stored[name])) is ("b0" not in stored[name].active.owners)


def kinds(view: FleetView) -> set[str]:
    return {intent.state.value for intent in view.intents.values()}


@share(0.4)
@given(st.data(), views())
def test_a_roll_out_ends_current_or_refused_wherever_its_controller_is_killed(
    data: st.DataObject, drawn: tuple[FleetView, Balancer]
) -> None:
    """A controller has only the view and the reports; each step is by another controller."""
    view, balancer = drawn
    waves = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    names = [f"d{number}" for number in range(len(waves))]
    dpus = {name: Dpu(name, frozenset(), wave=wave) for name, wave in zip(names, waves, strict=True)}
    text = text_of(data.draw(edits(balancer)))
    before = replace(view, dpus=dpus)
    at_once = fleet_support.settled(fleet_support.given(before, text))
    view = fleet_support.given(before, text, IntentState.ROLLING)
    failing = data.draw(st.sampled_from(["", *names]))
    # An override or its end during the roll-out.
    weights = [(s.name, backend) for s in balancer.services for backend in s.backends if len(s.backends) > 1]
    override_of = data.draw(st.none() | st.sampled_from(weights)) if weights else None
    at = data.draw(st.integers(0, 3))
    for step in range(12):
        if step == at and override_of is not None:
            service, backend = override_of
            try:
                view = fleet_support.overridden(view, (service, backend.name), Fraction(1))
            except FleetRefused:
                override_of = None
                continue
        change = next_change(view)
        assert next_change(view) == change
        if not change.is_empty:
            # DPUs whose wave has not begun have the config in use.
            view = fleet_support.committed(view, change.changes)
            continue
        if "rolling" not in kinds(view):
            break
        reports = {
            name: DpuStatus(name, applied=view.generation, error="broken" if name == failing else "") for name in names
        }
        taken = next_step(view, reports, watched_s=0).changes
        assert taken is not None
        begun = {name for name in names if dpus[name].wave <= view.wave}
        after = fleet_support.committed(view, taken)
        assert ("refused" in kinds(after)) is (failing in begun)
        installed = {name: installed_by(view, name) for name in names}
        if override_of is None:
            assert installed == {name: installed_by(at_once if name in begun else before, name) for name in names}
        if "rolling" not in kinds(after) and "refused" not in kinds(after):
            assert all(installed_by(after, name) == blocks for name, blocks in installed.items())
        view = after
    assert "rolling" not in kinds(view)
    assert (view.wave, view.staged, view.removed) == (0, {}, frozenset())
    if override_of is None:
        wanted = before if "refused" in kinds(view) else at_once
        assert {name: each.active for name, each in view.services.items()} == {
            name: each.active for name, each in wanted.services.items()
        }


def installed_by(view: FleetView, dpu: str) -> dict[str, object]:
    own = view.of_dpu(dpu)
    # An agent saves that, and reads it when it boots without the store.
    assert own.of_dpu(dpu) == own
    return {name: (each.config, each.active) for name, each in own.services.items()}


LOCALS = [NEUTRAL, NEUTRAL.replace("egress: egress", "egress: p1"), "version: 1\nswitch: {ingress: p0, egress: p0}\n"]


@share(0.4)
@given(st.data(), views(), views())
def test_views_read_in_turn_give_the_same_as_each_alone(
    data: st.DataObject, drawn: tuple[FleetView, Balancer], other: tuple[FleetView, Balancer]
) -> None:
    """Also with services that cannot be together, cannot be read, or do not fit their blocks."""
    edited = fleet_support.settled(fleet_support.given(drawn[0], text_of(data.draw(edits(drawn[1])))))
    rows = [row for view in (drawn[0], edited, other[0]) for row in view.services.values()]
    rows += [replace(row, config=text) for row in rows[:2] for text in (rows[-1].config, "[")]
    reader = ViewReader()
    for _ in range(4):
        view = {row.name: row for row in data.draw(st.lists(st.sampled_from(rows), max_size=6))}.values()
        local = data.draw(st.sampled_from(LOCALS))
        alone = outcome(ViewReader().read, view, local, file="local")
        assert outcome(reader.read, view, local, file="local") == alone


def outcome(call: Callable[..., object], *arguments: object, **options: object) -> object:
    try:
        return call(*arguments, **options)
    except XenoovsError as error:
        return str(error)


@st.composite
def availabilities(draw: st.DrawFn, balancer: Balancer) -> Availability:
    """Some backends that are ejected, and some in a slow start."""
    names = [(service.name, backend.name) for service in balancer.services for backend in service.backends]
    parts = draw(st.dictionaries(st.sampled_from(names), st.sampled_from([Fraction(0), Fraction(1, 2)]), max_size=3))
    ejected = {
        service: frozenset(backend for (of, backend), part in parts.items() if of == service and not part)
        for service, _ in (name for name, part in parts.items() if not part)
    }
    held = {service: frozenset({backend}) for service, backend in draw(st.sets(st.sampled_from(names), max_size=2))}
    return Availability(ejected, {name: part for name, part in parts.items() if part}, held)


@st.composite
def next_views(draw: st.DrawFn, view: FleetView, balancer: Balancer) -> FleetView:
    """A view that may follow: another intent, an override, a damaged row or a removed row."""
    match draw(st.sampled_from(["intent", "roll-out", "override", "damage", "removal", "same"])):
        case "intent":
            return fleet_support.given(view, text_of(balancer))
        case "roll-out":
            return fleet_support.given(view, text_of(balancer), IntentState.ROLLING)
        case "override":
            service = draw(st.sampled_from(balancer.services))
            backend = draw(st.sampled_from(service.backends))
            weight, name = draw(st.sampled_from([Fraction(0), Fraction(3)])), (service.name, backend.name)
            override = FleetOverride(*name, weight, backend.weight, "", 0)
            ends = name in view.overrides and draw(st.booleans())
            return committed(view, Changes(overrides={name: None if ends else override}))
        case "damage" if view.services:
            row, other = (draw(st.sampled_from(sorted(view.services))) for _ in range(2))
            config = draw(st.sampled_from(["[", view.services[other].config]))
            return committed(view, Changes(services={row: replace(view.services[row], config=config)}))
        case "removal" if view.services:
            return committed(view, Changes(services={draw(st.sampled_from(sorted(view.services))): None}))
    return view


@share(0.4)
@given(st.data(), views())
def test_a_change_with_a_cache_is_that_without_one(data: st.DataObject, drawn: tuple[FleetView, Balancer]) -> None:
    """Over any sequence of views, also of those that no controller has written to, and that cannot be decided."""
    view, balancer = drawn
    view, memory = replace(view, dpus={"d": Dpu("d", frozenset(), wave=1)}), Memo()
    for _ in range(data.draw(st.integers(2, 6))):
        balancer = (
            data.draw(edits(balancer).filter(lambda edited: edited.services)) if data.draw(st.booleans()) else balancer
        )
        view = data.draw(next_views(view, balancer))
        each = availabilities(balancer)
        served = data.draw(st.none() | st.fixed_dictionaries({IN_USE: each, ROLLED_OUT: each}))
        change = outcome(next_change, view, served, memory)
        assert comparable(change) == comparable(outcome(next_change, view, served, Memo()))
        if isinstance(change, FleetChange) and data.draw(st.booleans()):
            view = committed(view, change.changes)


def comparable(change: object) -> object:
    """Errors are equal only to themselves."""
    if not isinstance(change, FleetChange):
        return change
    return replace(change, unusable=tuple(map(str, change.unusable)))  # type: ignore[arg-type]


TAGS = st.sampled_from((None, NO_TAG, 300))
GROUPS = st.frozensets(st.sampled_from(["edge", "core", "lab"]), max_size=2)
REMOTES = st.integers(1, 3).map(lambda number: IPv4Address("192.168.77.0") + number)


@st.composite
def tunneled(draw: st.DrawFn) -> Balancer:
    """A config with some of its backends behind tunnels."""
    balancer = draw(balancers(most=3).filter(lambda balancer: balancer.services))

    def moved(_: Service, backend: Backend) -> Backend:
        hop = backend.next_hop
        if not isinstance(hop, Direct) or backend.follows or not draw(st.booleans()):
            return backend
        port = draw(st.sampled_from(["gnv0", "vx0"]))
        return replace(backend, next_hop=Tunneled(hop.mac, port, draw(REMOTES), draw(st.integers(0, 0xFFFFFF))))

    tunnels = [SwitchTunnel("gnv0", TunnelType.GENEVE, LOCAL, dst_port=6081)]
    tunnels.append(SwitchTunnel("vx0", TunnelType.VXLAN, LOCAL, dst_port=4789))
    return replace(with_backends(balancer, moved), switch_tunnels=tuple(tunnels))


@share(0.4)
@given(tunneled())
def test_services_with_tunnels_are_stored_read_and_stored_as_the_same(balancer: Balancer) -> None:
    """What a controller decides for is what every DPU reads from the text, without reading it."""
    made = parse_fleet(text_of(balancer), file="drawn").balancer
    texts = {each.name: service_text(each, made.uplinks) for each in made.services}
    read = read_services(texts)
    assert read == {each.name: neutral_service(each, made.uplinks.egress) for each in made.services}
    assert {name: service_text(each, replace(made.uplinks, egress="egress")) for name, each in read.items()} == texts


@given(st.data())
def test_what_is_read_as_json_is_the_same_as_yaml(data: st.DataObject) -> None:
    text = json.dumps(data.draw(st.dictionaries(st.text(max_size=5), JSON, max_size=4)), ensure_ascii=False)
    if data.draw(st.booleans(), label="changed"):
        text = data.draw(damaged(text, st.text('{}[]"\\:,#-& \t\n0x1e.\u2028', max_size=5), longest=0))
    try:
        read = compose_json(text, file="a text")
    except ConfigError:
        read = None
    if read is not None:
        assert repr(read) == repr(compose(text, file="a text").root)


@st.composite
def fleets(draw: st.DrawFn) -> FleetView:
    """A fleet whose services and DPUs have groups."""
    dpus = {name: Dpu(name, draw(GROUPS)) for name in ("d1", "d2")}
    view = fleet_support.settled(fleet_support.given(replace(EMPTY, dpus=dpus), text_of(draw(tunneled()))))
    return replace(view, services={name: replace(each, groups=draw(GROUPS)) for name, each in view.services.items()})


@share(0.4)
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
        made = data.draw(damaged(text, st.text(max_size=5), longest=20)).encode(errors="surrogatepass")
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


SITES = ("east", "west", "lab")


@st.composite
def site_configs(draw: st.DrawFn) -> str:
    """A service with backends of some groups, and weights of their own there."""
    backends = []
    for number in range(1, 4):
        groups = draw(st.lists(st.sampled_from(SITES), unique=True, max_size=3))
        weights = draw(st.dictionaries(st.sampled_from(groups or SITES), st.integers(0, 3), max_size=2))
        mac = f"02:00:5e:10:00:0{number}"
        backend = {"name": f"b{number}", "mac": mac, "weight": draw(st.integers(1, 3)), "group_weights": weights}
        backends.append({**backend, **({"groups": groups} if groups else {})})
    service = {"name": "web", "vip": "192.0.2.80", "groups": list(SITES), "backends": backends}
    text = json.dumps({"version": 1, "switch": {"ingress": ["in"], "egress": "out"}, "services": [service]})
    try:
        parse_intent(text, file="drawn")
    except ConfigError:
        assume(False)
    return text


@share(0.4)
@given(st.data())
def test_dpus_of_one_site_agree_and_have_exactly_its_backends(data: st.DataObject) -> None:
    """Over any sequence of configs, and of drains and weights in a group or in all."""
    dpus = {f"{group}{number}": Dpu(f"{group}{number}", frozenset({group})) for group in SITES for number in (1, 2)}
    view, memory = replace(EMPTY, dpus=dpus), Memo()
    for _ in range(data.draw(st.integers(1, 4))):
        view = fleet_support.given(view, data.draw(site_configs()))
        for _ in range(data.draw(st.integers(0, 2))):
            group = data.draw(st.sampled_from(["", *SITES]))
            name = site_name("web", group), data.draw(st.sampled_from(["b1", "b2", "b3"]))
            with suppress(FleetRefused):
                view = fleet_support.overridden(view, name, Fraction(data.draw(st.integers(0, 2))))
        change = next_change(view, memo=memory)
        assert comparable(change) == comparable(next_change(view))
        view = committed(view, change.changes)
        assert next_change(view, memo=memory).is_empty
        config = parse_intent(view.intents[view.intent].text, file="in use")
        (service,) = config.balancer.services
        for group in SITES:
            (one,), (other,) = (view.of_dpu(f"{group}{number}").services.values() for number in (1, 2))
            assert one == other
            weights = config.weights(service, group)
            for names in ((site_name("web", each), backend) for each in ("", group) for backend in [*weights]):
                if names in view.overrides:
                    weights[names[1]] = view.overrides[names].weight
            assert one.active.owners == {backend for backend, weight in weights.items() if weight}
