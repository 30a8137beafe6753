"""Columns of tables, each declared once: JSON, its schema, printed tables, metrics and docs are made from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from xenoovs.dataclass import MISSING, Field, dataclass, dataclass_transform, field, replace

if TYPE_CHECKING:
    from xenoovs.model.values import Parser


T = TypeVar("T")


class Kind(Enum):
    """Types of the Prometheus exposition format."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


Number = float | None
Measure = Callable[[Any], Number | Mapping[Any, Number]]
"""Reads a metric from a value: its number, or numbers by the value of its own label, or by a tuple if it has several
own labels. None for no sample."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of a column. `name`: includes the unit; `_total` ends that of a counter. `help`: empty if it is the doc
    of the column. `of`: reads the metric from the value of a row; None if it is the value of the column. `labels`: its
    own; in `Table.metrics` after those of the table."""

    name: str
    help: str = ""
    of: Measure | None = None
    labels: tuple[str, ...] = ()
    kind: Kind = Kind.GAUGE
    buckets: tuple[float, ...] = ()


gauge, counter = Metric, partial(Metric, kind=Kind.COUNTER)


@dataclass(frozen=True, slots=True)
class Row(Generic[T]):
    """A row of a table. `parent`: the value that contains it, such as the service of a backend; None if none does.
    `now_s`: when it was read, in seconds since 1970."""

    value: T
    parent: Any
    now_s: float


@dataclass(frozen=True, slots=True)
class Shown:
    """How terminals and pages show a column; they hide one without a `header`. `cell`: renders a value that is not
    None. `keep`: its rank on a narrow terminal: the lowest is left out first, 0 never. `is_number`: whether it is
    aligned to the right. `in_tables`: whether printed tables have it. `live`: its least width in `top`; 0 if `top` does
    not have it. `live_from`: the least width of a terminal on which `top` has it. `only_if`: it is shown if this holds
    for some row; None for always."""

    header: str = ""
    cell: Callable[[Any], str] = str
    keep: int = 0
    is_number: bool = False
    in_tables: bool = True
    live: int = 0
    live_from: int = 0
    style: Callable[[Row[Any]], str] = lambda _: "plain"
    only_if: Callable[[Row[Any]], bool] | None = None

    def is_for(self, rows: Iterable[Row[Any]]) -> bool:
        """Return whether the column is shown for these rows."""
        return self.only_if is None or any(map(self.only_if, rows))


text, number = Shown, partial(Shown, is_number=True)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. Fields of records are also in JSON; other columns are for terminals and metrics.

    `of`: reads it from a row; None if it is a field. `json`: converts its value for JSON; None if that is not needed,
    as for fields of records. `parser`: of a field of a request. `name`: key in JSON, set by the record; empty if JSON
    does not have it."""

    doc: str = ""
    of: Callable[[Row[Any]], Any] | None = None
    json: Callable[[Any], Any] | None = None
    parser: Parser[Any] | None = None
    shown: Shown = Shown()
    metrics: tuple[Metric, ...] = ()
    name: str = ""

    def value(self, value: Any) -> Any:
        """Return the column's value for the value of a row."""
        return getattr(value, self.name) if self.of is None else self.of(Row(value, None, 0.0))

    def text(self, row: Row[Any]) -> str:
        value = getattr(row.value, self.name) if self.of is None else self.of(row)
        return "-" if value is None else self.shown.cell(value)


def column(doc: str, *metrics: Metric, default: Any = MISSING, factory: Any = MISSING, **more: Any) -> Any:
    """Return a field of a record. `more`: other attributes of Column."""
    made = {"column": Column(doc, metrics=metrics, **more)}
    return field(default_factory=factory, metadata=made) if factory is not MISSING else field(
        default=default, metadata=made
    )  # fmt: skip


def computed(doc: str, *metrics: Metric, of: Callable[[Any], Any] | None = None, **more: Any) -> Column:
    """Return a column that is not a field of a record. `of`: reads it from the value of a row; None to read the
    attribute with the name of the column. `more`: other attributes of Column."""
    return Column(doc, None if of is None else lambda row: of(row.value), metrics=metrics, **more)


def named(**columns: Column) -> tuple[Column, ...]:
    """Return columns with their keys in JSON; those whose name begins with `_` are not in JSON."""
    return tuple(each if name.startswith("_") else replace(each, name=name) for name, each in columns.items())


_COLUMNS: dict[type, tuple[Column, ...]] = {}
_FIELDS: dict[type, tuple[Column, ...]] = {}


@dataclass_transform(frozen_default=True, field_specifiers=(column,))
def record(kind: type[T]) -> type[T]:
    """Make a frozen dataclass with slots from a class whose attributes are columns, and store its columns in order."""
    inherited = (each for base in kind.__bases__ for each in _COLUMNS.get(base, ()))
    own = (
        replace(value.metadata["column"], name=name) if isinstance(value, Field) else value
        for name, value in vars(kind).items()
        if isinstance(value, Field | Column)
    )
    found = (*inherited, *own)
    made = dataclass(frozen=True, slots=True)(kind)
    _COLUMNS[made], _FIELDS[made] = found, tuple(each for each in found if each.name)
    return made


def columns_of(kind: type) -> tuple[Column, ...]:
    """Return the columns of a record, in the order in which they are declared."""
    return _COLUMNS[kind]


def fields_of(kind: type) -> tuple[Column, ...] | None:
    """Return the columns of a record that JSON has; None if `kind` is not a record."""
    return _FIELDS.get(kind)


@dataclass(frozen=True, slots=True)
class Table:
    """A table. `rows`: returns the rows of a state, each after the values of its labels. `labels`: names of the labels
    of its metrics."""

    rows: Callable[[Any], Iterable[tuple[tuple[str, ...], Any]]]
    columns: tuple[Column, ...]
    labels: tuple[str, ...] = ()

    def metrics(self) -> tuple[Metric, ...]:
        """Return the metrics of all columns, each with its help, its labels and the function that reads it."""
        return tuple(
            replace(
                metric, help=metric.help or each.doc, labels=(*self.labels, *metric.labels), of=metric.of or each.value
            )
            for each in self.columns
            for metric in each.metrics
        )

    def shown(self, state: Any) -> list[Row[Any]]:
        return [Row(value, None, 0.0) for _, value in self.rows(state)]

    def documents(self, state: Any) -> list[dict[str, Any]]:
        """Return the rows as JSON objects."""
        named = [each for each in self.columns if each.name]
        return [
            {each.name: each.value(value) if each.json is None else each.json(each.value(value)) for each in named}
            for _, value in self.rows(state)
        ]


def shown_columns(columns: Iterable[Column], rows: Iterable[Row[Any]]) -> list[Column]:
    """Return the columns that printed tables and pages have for these rows."""
    rows = [*rows]
    return [each for each in columns if each.shown.header and each.shown.in_tables and each.shown.is_for(rows)]


def page_table(columns: Iterable[Column], rows: Iterable[Row[Any]]) -> dict[str, Any]:
    """Return a table for a page: the headers of terminals, and each cell with its style."""
    rows = [*rows]
    shown = shown_columns(columns, rows)
    return {
        "headers": [each.shown.header.lower() for each in shown],
        "rows": [[(each.text(row), each.shown.style(row)) for each in shown] for row in rows],
    }
