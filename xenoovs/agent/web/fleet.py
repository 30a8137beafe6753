"""The page of a fleet: its generation, its DPUs by state, and the servers of its store."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from xenoovs.agent.web.html import Markup, element, join
from xenoovs.agent.web.page import document, mount_documents
from xenoovs.display import decimal, duration, percent, quantity
from xenoovs.fleet.dpus import WORST_FIRST, DpuRow, DpuState
from xenoovs.fleet.snapshot import FleetSnapshot
from xenoovs.fleet.switch_time import LARGEST_ERROR_US
from xenoovs.fleet.targets import TargetState
from xenoovs.store.cluster import ServerFacts

_PILLS = {DpuState.APPLIED: "good", DpuState.BEHIND: "warn"}
_ALL = "all"


def fleet_page(snapshot: FleetSnapshot) -> str:
    """Return the whole document.

    The filter is a group of radio buttons before the part that is fetched again and again, so that the choice stays.
    """
    keys = (_ALL, *(_key(state) for state in DpuState))
    # An input has no end tag.
    filters = Markup(
        "".join(
            f'<input type="radio" name="filter" id="only-{key}" class="filter" '
            f'aria-label="DPUs: {key}"{" checked" if key == _ALL else ""}>'
            for key in keys
        )
    )
    name = "fleet" if snapshot.view is None else snapshot.view.name
    return document(name, fleet_body(snapshot), server="controller", before=filters)


def fleet_body(snapshot: FleetSnapshot) -> Markup:
    """Return the part of the page that is fetched again and again."""
    return join(
        _head(snapshot),
        *(element("p", problem, class_="notice bad") for problem in snapshot.problems),
        *(element("p", text, class_="notice warn") for text in snapshot.roll_out),
        _refused(snapshot),
        *_overrides(snapshot),
        _facts(snapshot),
        _dpus(snapshot),
        _servers(snapshot),
    )


def _key(state: DpuState) -> str:
    return state.value.replace(" ", "-")


def _head(snapshot: FleetSnapshot) -> Markup:
    view, (headline, how) = snapshot.view, snapshot.headline
    role = "controller active" if snapshot.is_active else "controller passive: its server does not lead"
    return element(
        "header",
        element("h1", "xenoovs fleet", element("span", "" if view is None else view.name, class_="bridge")),
        element(
            "p",
            element("span", headline, class_=f"pill {how}"),
            element("span", role, class_="pill good" if snapshot.is_active else "pill warn"),
            class_="badges",
        ),
    )


def _refused(snapshot: FleetSnapshot) -> Markup | None:
    newest = snapshot.newest
    if newest is None or not snapshot.is_refused:
        return None
    return element("p", f"config {newest.number} was refused: {newest.comment}", class_="notice bad")


def _overrides(snapshot: FleetSnapshot) -> list[Markup]:
    overrides = {} if snapshot.view is None else snapshot.view.overrides
    return [
        element(
            "p",
            f"{service}/{backend} "
            + (f"has the weight {decimal(one.weight)}" if one.weight else "is drained")
            + f", by {one.author}, for {duration(snapshot.now_s - one.since_ms / 1000)}",
            class_="notice",
        )
        for (service, backend), one in sorted(overrides.items())
    ]


def _facts(snapshot: FleetSnapshot) -> Markup:
    view, counts = snapshot.view, snapshot.counts()
    drift = sum(len(row.status.drift) for row in snapshot.rows)
    up = sum(row.state is not TargetState.DOWN for row in snapshot.targets)
    right = sum(row.is_clock_good for row in snapshot.rows)
    served = sum(server.is_connected for server in snapshot.servers)
    facts = (
        ("generation", "-" if view is None else str(view.generation), "of all blocks"),
        ("config", str(view.intent or "-") if view else "-", "entry of the history"),
        ("services", "-" if view is None else str(len(view.services)), "in the store"),
        ("DPUs", f"{counts[DpuState.APPLIED]} of {len(snapshot.rows)}", "have the newest generation"),
        ("health", f"{up} of {len(snapshot.targets)}", "probed targets are up"),
        ("drift", str(drift), "services differ on bridges"),
        ("clocks", f"{right} of {len(snapshot.rows)}", f"are right within {LARGEST_ERROR_US // 1000} ms"),
        ("databases", f"{served} of {len(snapshot.servers)}", "served by this host"),
    )
    tiles = (
        element("div", element("dt", name), element("dd", value), element("dd", under, class_="under"))
        for name, value, under in facts
    )
    return element("dl", *tiles, class_="facts of-fleet")


def _dpus(snapshot: FleetSnapshot) -> Markup:
    counts = snapshot.counts()
    choices = [(_ALL, "all", len(snapshot.rows)), *((_key(each), each.value, counts[each]) for each in WORST_FIRST)]
    labels = (
        element("label", f"{text} {count}", for_=f"only-{key}", class_=f"pill choose-{key}")
        for key, text, count in choices
    )
    groups = ("groups",) if snapshot.has_groups else ()
    head = ("DPU", *groups, "state", "generation", "in hardware", "reported", "clock", "version", "note")
    return element(
        "section",
        element("h2", "DPUs"),
        element("p", *labels, class_="badges filters"),
        element(
            "table",
            element("thead", element("tr", *(element("th", name, scope="col") for name in head))),
            element("tbody", *(_dpu(row, has_groups=snapshot.has_groups) for row in snapshot.worst_first())),
        ),
        class_="card fleet",
    )


def _dpu(row: DpuRow, *, has_groups: bool) -> Markup:
    return element(
        "tr",
        element("th", row.name, scope="row"),
        element("td", ", ".join(sorted(row.groups)) or "-", data_label="groups") if has_groups else None,
        element(
            "td", element("span", row.state.value, class_=f"pill {_PILLS.get(row.state, 'bad')}"), data_label="state"
        ),
        element("td", str(row.status.applied or "-"), data_label="generation"),
        element("td", percent(row.hw_share), data_label="in hardware"),
        element("td", "-" if row.seen_s is None else f"{duration(row.seen_s)} ago", data_label="reported"),
        element("td", _clock(row), data_label="clock"),
        element("td", row.status.version or "-", data_label="version"),
        element("td", row.note, data_label="note") if row.note else element("td"),
        class_=f"dpu {_key(row.state)}",
    )


def _clock(row: DpuRow) -> str | Markup:
    is_plain = row.is_clock_good or not row.status.seen_ms
    return row.clock if is_plain else element("span", row.clock, class_="pill warn")


def _servers(snapshot: FleetSnapshot) -> Markup:
    head = ("database", "server", "role", "term", "log index", "lag", "size / free")
    rows = [row for server in snapshot.servers for row in _server(server)]
    return element(
        "section",
        element("h2", "Servers of the store", element("small", "of this host, and those that it leads")),
        element(
            "table",
            element("thead", element("tr", *(element("th", name, scope="col") for name in head))),
            element("tbody", *rows),
        ),
        class_="card fleet",
    )


def _server(server: ServerFacts) -> list[Markup]:
    cluster = server.cluster
    room = f"{_bytes(server.size_bytes)} / {_bytes(server.free_bytes)}"
    term, index = ("-", "-") if cluster is None else (str(cluster.term), str(cluster.index))
    how = "good" if server.is_connected else "bad"
    rows = [_cells(server, "this host", (server.role.value, how), term, index, "-", room)]
    for member in () if cluster is None else cluster.members:
        lag = None if cluster is None else cluster.lag(member)
        if cluster is not None and lag is not None and not member.is_self:
            role = ("silent", "bad") if member in cluster.silent() else ("follower", "good")
            rows.append(_cells(server, member.address, role, "-", str(member.match_index), str(lag), "-"))
    return rows


def _cells(
    server: ServerFacts, where: str, role: tuple[str, str], term: str, index: str, lag: str, room: str
) -> Markup:
    return element(
        "tr",
        element("th", server.database.value, scope="row"),
        element("td", where, data_label="server"),
        element("td", element("span", role[0], class_=f"pill {role[1]}"), data_label="role"),
        element("td", term, data_label="term"),
        element("td", index, data_label="log index"),
        element("td", lag, data_label="lag"),
        element("td", room, data_label="size / free"),
    )


def _bytes(number: int | None) -> str:
    return "-" if number is None else f"{quantity(number)}B"


def mount_fleet_page(snapshot: Callable[[], FleetSnapshot]) -> Callable[[web.Application], None]:
    """Return what adds `/` and `/now`; `snapshot` is called in a thread."""
    return mount_documents(lambda: snapshot, lambda newest: fleet_page(newest()), lambda newest: fleet_body(newest()))
