"""Rows of the store as values, and changes of values as operations of one transaction (RFC 7047, 5.2).

A row is a map from its columns to Python values: text, integers, booleans, frozensets of text, maps of text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from fractions import Fraction
from functools import partial
from hashlib import sha256
from importlib.resources import files
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from xenoovs.dataclass import dataclass, fields, replace
from xenoovs.decision.decision import Blocks
from xenoovs.errors import StoreMalformed, StoreNewer, StoreRejected
from xenoovs.regex import regex
from xenoovs.store.view import (
    FORMAT,
    Action,
    Changes,
    Dpu,
    DpuStatus,
    FleetOverride,
    FleetView,
    Freeze,
    Intent,
    IntentState,
    StoredService,
    Watch,
    blocks_from_map,
    blocks_to_map,
)

Row = Mapping[str, Any]
"""Columns and their values."""

Operation = dict[str, Any]
"""An operation of RFC 7047, 5.2, as JSON."""

_Value = TypeVar("_Value")

FORBIDDEN = regex("[\\0\ud800-\udfff]")
_WEIGHT = regex(r"(0|[1-9][0-9]{0,9})(/[1-9][0-9]{0,9})?")


class StoreDatabase(Enum):
    """The two databases of a fleet; the values are their names."""

    FLEET = "xenoovs"
    STATES = "xenoovs_state"


def schema_text(database: StoreDatabase) -> str:
    """Return the schema of a database, in the form of ovsdb-tool(1)."""
    return (files("xenoovs.store") / "schema" / f"{database.value}.ovsschema").read_text()


READER_ROLE, DPU_ROLE, OPERATOR_ROLE = "reader", "dpu", "operator"
"""The roles of clients of network ports: those that change nothing, DPUs that report, and operators."""
_ROLES, _PERMISSIONS = "RBAC_Role", "RBAC_Permission"


def role_tables() -> dict[str, Any]:
    """Return the schema of the tables of roles (ovsdb(7), "RBAC")."""
    tables = json.loads(schema_text(StoreDatabase.FLEET))["tables"]
    return {name: tables[name] for name in (_ROLES, _PERMISSIONS)}


def role_operations(database: StoreDatabase, *, is_frozen: bool = False) -> list[Operation]:
    """Return the operations that replace the roles of a database with those of this version. A role has only the
    permissions listed here. A DPU may insert and delete the row whose name is the CN of its certificate, and change all
    of it but the name. Operators may change what the table in SECURITY.md lists, in a freeze only what stops a roll-out
    or ends the freeze."""
    roles: list[Operation] = [{"op": "delete", "table": table, "where": []} for table in (_ROLES, _PERMISSIONS)]
    roles.append({"op": "insert", "table": _ROLES, "row": {"name": READER_ROLE}})
    if database is StoreDatabase.FLEET:
        return roles + _role(OPERATOR_ROLE, _OPERATORS | _FROZEN if is_frozen else _OPERATORS)
    columns = frozenset(STATUSES.columns) - {"name"}
    return roles + _role(DPU_ROLE, {STATUSES.name: (columns, "name", True)})


_Permission = tuple[frozenset[str], str, bool]
"""The permission of a role in a table: the columns that it may update, the column that must have the CN of the client
(empty for any row), and whether it may insert and delete rows."""


def _role(name: str, permissions: Mapping[str, _Permission]) -> list[Operation]:
    made: list[Operation] = []
    for table, (updates, owner, inserts) in permissions.items():
        row = {"table": table, "authorization": owner, "insert_delete": inserts, "update": atom(updates)}
        made.append({"op": "insert", "table": _PERMISSIONS, "row": row, "uuid-name": table})
    given = ["map", [[table, ["named-uuid", table]] for table in permissions]]
    return [*made, {"op": "insert", "table": _ROLES, "row": {"name": name, "permissions": given}}]


def monitored_schema(database: StoreDatabase, columns: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """Return the schema of a database, reduced to these tables and columns in this order.

    So the monitor requests of all clients are equal, byte for byte. Types have no constraints: servers may be newer,
    and send differences larger than both values; `ovs.db.idl` skips what a type does not allow, or takes the default.
    """
    schema: dict[str, Any] = json.loads(schema_text(database))
    tables = schema["tables"]
    schema["tables"] = {
        table: {**tables[table], "columns": {name: _unconstrained(tables[table]["columns"][name]) for name in names}}
        for table, names in columns.items()
    }
    return schema


_CONSTRAINTS = frozenset(("enum", "minInteger", "maxInteger", "minReal", "maxReal", "minLength", "maxLength"))
"""The constraints of a <base-type> (RFC 7047, 3.2)."""


def _unconstrained(declared: Any) -> Any:
    if not isinstance(declared, dict):
        return declared
    kept = ((name, each) for name, each in declared.items() if name not in _CONSTRAINTS)
    return {name: "unlimited" if name == "max" else _unconstrained(each) for name, each in kept}


@dataclass(frozen=True, slots=True)
class StoreTable(Generic[_Value]):
    """A table whose rows are values. `columns`: in the order of requests. `key`: returns the columns of a row's index.
    `make`: returns the value of a row's columns, after those in `parsers`; `row` turns a value into a row."""

    name: str
    columns: tuple[str, ...]
    key: Callable[[Row], Any]
    make: Callable[..., _Value]
    row: Callable[[_Value], Row]
    parsers: Mapping[str, Callable[[Any], Any]]

    def value(self, row: Row) -> _Value:
        """Return the value of a row. Raises StoreMalformed, StoreNewer."""
        found = dict[str, Any]()
        for column in self.columns:
            try:
                found[column] = self.parsers.get(column, _plain)(row[column])
            except (RecursionError, ValueError) as error:
                key = self.key(row)
                name = "/".join(key) if isinstance(key, tuple) else str(key)
                raise StoreMalformed(table=self.name, row=name, column=column, reason=str(error)) from None
        return self.make(**found)


def _plain(value: Any) -> Any:
    """Return the value of a column, with a set for a list of a file."""
    return frozenset(value) if isinstance(value, (list, tuple, set)) else value


def _row(value: Any, columns: Iterable[str]) -> dict[str, Any]:
    """Return the columns of a value, which are its fields."""
    found = ((column, getattr(value, column)) for column in columns)
    return {
        column: each.value if isinstance(each, Enum) else str(each) if isinstance(each, Fraction) else each
        for column, each in found
    }


def plain_row(row: Row) -> dict[str, Any]:
    """Return a row as plain JSON: sets are lists in order."""
    return {column: sorted(value) if isinstance(value, frozenset) else value for column, value in row.items()}


_PLANNED = "planned"
"""The column with the home blocks that are not active blocks too. It is mostly empty, which keeps rows short."""


def _object(text: str) -> str:
    if not isinstance(json.loads(text), dict):
        raise ValueError("not a JSON object")
    return text


def _weight(text: str) -> Fraction:
    if not _WEIGHT.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is no weight: expected a whole number or a fraction, such as 7/2")
    return Fraction(text)


_CONTENT_DIGITS = 16


def _hash(value: object) -> str:
    return sha256(json.dumps(value, separators=(",", ":")).encode()).hexdigest()[:_CONTENT_DIGITS]


def _service(
    name: str, claim: str, groups: frozenset[str], config: str, generation: int, blocks: Blocks, planned: Blocks
) -> StoredService:
    rows = (sorted(blocks_to_map(each).items()) for each in (blocks, planned))
    content = _hash([name, claim, config, sorted(groups), *rows])
    home = planned.over(blocks)
    return StoredService(name, groups, config, claim, generation, active=blocks, home=home, content=content)


def _service_row(service: StoredService) -> Row:
    plain = _row(service, ("name", "groups", "config", "claim", "generation"))
    home = service.home.without(service.active)
    return {**plain, "blocks": blocks_to_map(service.active), _PLANNED: blocks_to_map(home)}


def _table(
    name: str,
    kind: type[_Value],
    make: Callable[..., _Value] | None = None,
    *,
    keys: int = 1,
    parsers: Mapping[str, Callable[[Any], Any]] = MappingProxyType({}),
) -> StoreTable[_Value]:
    """Return the table whose columns are the fields of `kind`. `make`: if not `kind` itself makes a value of them.
    `keys`: how many of the first columns are the index."""
    columns = tuple(each.name for each in fields(kind))  # type: ignore[arg-type]
    key, row = itemgetter(*columns[:keys]), partial(_row, columns=columns)
    return StoreTable(name, columns, key, make or kind, row, parsers)


def _intent(*, number: int, state: str, **columns: Any) -> Intent:
    if state not in {each.value for each in IntentState}:
        raise StoreNewer(table=INTENTS.name, row=str(number), column="state", value=repr(state))
    return Intent(number=number, state=IntentState(state), **columns)


SERVICES = StoreTable(
    "Service",
    ("name", "claim", "groups", "config", "generation", "blocks", _PLANNED),
    itemgetter("name"),
    _service,
    _service_row,
    {"config": _object, "blocks": blocks_from_map, _PLANNED: blocks_from_map},
)
STAGED = replace(SERVICES, name="Staged")
DPUS, WATCHES = _table("Dpu", Dpu), _table("Watch", Watch)
OVERRIDES = _table("Override", FleetOverride, keys=2, parsers={"weight": _weight, "configured": _weight})
ACTIONS, FREEZES = _table("Action", Action), _table("Freeze", Freeze)
INTENTS = _table("Intent", Intent, _intent)
STATUSES = _table("Dpu_State", DpuStatus, lambda **columns: DpuStatus(**columns).bounded)

FLEET = "Fleet"
COMMIT_ID = "commit_id"
"""The column with a random number of the newest transaction, by which a writer without an answer recognises its own."""
_FLEET_COLUMNS = ("name", "format", "generation", COMMIT_ID, "intent", "ack", "wave", "switch_at_ms", "removed")
_SILENT = "silent"
"""The column with the silent DPUs. DPUs do not request it."""

_OPERATORS: dict[str, _Permission] = {
    FLEET: (frozenset(("generation", COMMIT_ID, "wave")), "", False),
    INTENTS.name: (frozenset(("state", "comment", "is_paused", "hw_before", "down_before", "unfit_before")), "", True),
    OVERRIDES.name: (frozenset(OVERRIDES.columns), "", True),
    FREEZES.name: (frozenset(FREEZES.columns), "", True),
    DPUS.name: (frozenset(("wave", "is_out")), "", False),
    ACTIONS.name: (frozenset(), "certificate", True),
}
"""What operators who are not administrators may change. Their history entries must have the CN of their certificate."""
_FROZEN: dict[str, _Permission] = {
    INTENTS.name: (_OPERATORS[INTENTS.name][0], "", False),
    OVERRIDES.name: (frozenset(), "", False),
    DPUS.name: (frozenset(), "", False),
}

VIEW_TABLES: Mapping[str, StoreTable[Any]] = {
    "services": SERVICES,
    "staged": STAGED,
    "dpus": DPUS,
    "overrides": OVERRIDES,
    "watches": WATCHES,
}
WRITER_TABLES: Mapping[str, StoreTable[Any]] = {
    **VIEW_TABLES,
    "intents": INTENTS,
    "actions": ACTIONS,
    "freezes": FREEZES,
}
"""Tables by their attribute of a view and of changes. Only the controller and the commands read the last three."""


def fleet_columns(*, with_intents: bool) -> dict[str, tuple[str, ...]]:
    """Return the tables and columns of the fleet's database that a client requests."""
    tables = WRITER_TABLES if with_intents else VIEW_TABLES
    columns = (*_FLEET_COLUMNS, _SILENT) if with_intents else _FLEET_COLUMNS
    return {FLEET: columns, **{table.name: table.columns for table in tables.values()}}


def fleet_view(fleet: Row | None, values: Mapping[str, Mapping[Any, Any]], *, store_id: str) -> FleetView:
    """Return the view of a row of `Fleet`, whose UUID is `store_id`, and of values by table and key. Raises
    StoreMalformed if there is no row; StoreNewer if it needs a newer version."""
    if fleet is None:
        reason = "there is no row; create the database with `xenoovs fleet init`"
        raise StoreMalformed(table=FLEET, row="-", column="name", reason=reason)
    if fleet["format"] > FORMAT:
        raise StoreNewer(table=FLEET, row=fleet["name"], column="format", value=str(fleet["format"]))
    found: dict[str, Any] = {name: values.get(table.name, {}) for name, table in WRITER_TABLES.items()}
    return FleetView(
        **{column: fleet[column] for column in _FLEET_COLUMNS if column != "removed"},
        **found,
        store_id=store_id,
        content=_hash([sorted(each.content for each in found[name].values()) for name in ("services", "staged")]),
        removed=frozenset(fleet["removed"]),
        silent=frozenset(fleet.get(_SILENT, ())),
    )


RowIds = Mapping[tuple[str, Any], str]
"""The UUIDs of rows, by table and key."""


def operations(
    view: FleetView, changes: Changes, ids: RowIds, *, commit_id: str, freezes: Mapping[str, Freeze] | None = None
) -> list[Operation]:
    """Return the operations of one transaction that makes `changes` to `view`, and the next generation. The first is a
    `wait` with a timeout of 0, which fails if the store has another generation or commit. `commit_id`: a random number.
    `freezes`: those that the store must have, and no others; None for any."""
    generation = changes.generation or view.generation + 1
    where = _where(view.store_id)
    same = {"generation": view.generation, COMMIT_ID: view.commit_id}
    waits = [_wait(FLEET, where, same.keys(), [same])]
    if freezes is not None:
        # Other programs may freeze a fleet without a new generation.
        waits.append(_wait(FREEZES.name, [], FREEZES.columns, map(FREEZES.row, freezes.values())))
    fleet: dict[str, Any] = {"generation": generation, COMMIT_ID: commit_id}
    given = ((column, getattr(changes, column)) for column in ("intent", "wave", "switch_at_ms", "removed", _SILENT))
    fleet |= {column: atom(value) for column, value in given if value is not None}
    if changes.ack:
        fleet["ack"] = generation
    made = [*waits, {"op": "update", "table": FLEET, "where": where, "row": fleet}]
    for name, table in WRITER_TABLES.items():
        stamp = {"generation": generation} if table in (SERVICES, STAGED) else {}
        made += _changes(table, getattr(view, name), getattr(changes, name), ids, stamp)
    return made


def _wait(table: str, where: list[Any], columns: Iterable[str], rows: Iterable[Row]) -> Operation:
    made: Operation = {"op": "wait", "table": table, "timeout": 0, "where": where, "until": "=="}
    return made | {"columns": list(columns), "rows": [_json(row) for row in rows]}


def _changes(
    table: StoreTable[_Value],
    present: Mapping[Any, _Value],
    wanted: Mapping[Any, _Value | None],
    ids: RowIds,
    stamp: Row,
) -> Iterator[Operation]:
    """Yield the operations of one table. `stamp`: columns that every changed row gets too."""
    for key, value in wanted.items():
        found = ids.get((table.name, key))
        if value is None:
            if found is not None:
                yield {"op": "delete", "table": table.name, "where": _where(found)}
        elif found is None:
            yield {"op": "insert", "table": table.name, "row": _json({**table.row(value), **stamp})}
        else:
            old, new = table.row(present[key]), table.row(value)
            updated, mutations = _difference({**old, **stamp}, {**new, **stamp})
            if updated or mutations:
                updated |= stamp
            if updated:
                yield {"op": "update", "table": table.name, "where": _where(found), "row": _json(updated)}
            if mutations:
                yield {"op": "mutate", "table": table.name, "where": _where(found), "mutations": mutations}


def _difference(old: Row, new: Row) -> tuple[dict[str, Any], list[list[Any]]]:
    """Return the columns to replace, and the mutations of maps."""
    updated, mutations = dict[str, Any](), list[list[Any]]()
    for column, value in new.items():
        before = old[column]
        if before == value:
            continue
        if not isinstance(value, Mapping) or column == _PLANNED:
            updated[column] = value
            continue
        # `insert` leaves keys alone that the map has already (RFC 7047, 5.1): they are deleted first.
        gone = [key for key in before if value.get(key) != before[key]]
        come = {key: text for key, text in value.items() if before.get(key) != text}
        if gone:
            mutations.append([column, "delete", ["set", gone]])
        if come:
            mutations.append([column, "insert", atom(come)])
    if (updated or mutations) and _PLANNED in new:
        # Rows of earlier versions have all home blocks there.
        updated[_PLANNED] = new[_PLANNED]
    return updated, mutations


def _where(uuid: str) -> list[Any]:
    return [["_uuid", "==", ["uuid", uuid]]]


def _json(row: Row) -> dict[str, Any]:
    return {column: atom(value) for column, value in row.items()}


def atom(value: object) -> object:
    """Return the value of a column as JSON (RFC 7047, 5.1). Raises StoreRejected for text that a column cannot hold."""
    if isinstance(value, Mapping):
        return ["map", [[atom(key), atom(each)] for key, each in value.items()]]
    if isinstance(value, frozenset):
        return ["set", [atom(each) for each in sorted(value)]]
    # A server closes the connection when it receives such a character (RFC 7047, 3.1, <string>).
    if isinstance(value, str) and FORBIDDEN.search(value):
        raise StoreRejected(reason=f"{value[:40]!r} is text with a zero or half a character of UTF-16")
    return value


def status_operations(status: DpuStatus, *, is_new: bool) -> list[Operation]:
    """Return the operation that writes the row of a DPU. `is_new`: insert it; updates ignore missing rows."""
    row = _json(STATUSES.row(status))
    if is_new:
        return [{"op": "insert", "table": STATUSES.name, "row": row}]
    where = [["name", "==", row.pop("name")]]
    return [{"op": "update", "table": STATUSES.name, "where": where, "row": row}]
