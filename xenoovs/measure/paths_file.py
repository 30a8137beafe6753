"""The file of the paths of a DPU, as `xenoovs measure paths` reads it."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import Annotated

from xenoovs.dataclass import dataclass
from xenoovs.errors import did_you_mean
from xenoovs.model import values
from xenoovs.model.form import Listed
from xenoovs.model.load import load_form
from xenoovs.model.values import Key, Remark
from xenoovs.paths.plan import (
    MAX_PATHS,
    MAX_RESOURCES,
    DpuPath,
    MeasuredPair,
    PairVerdict,
    PathKind,
    Resource,
    ResourceUse,
    share_bottlenecks,
)


class Direction(Enum):
    """In which direction of a duplex resource a path costs something."""

    IN = "in"
    OUT = "out"
    BOTH = "both"


_AMOUNT, _NAME = Key(values.amount), Key(values.name)
_TWO_NAMES, _TWO_AMOUNTS = Key(Listed(values.name, least=2, most=2)), Key(Listed(values.amount, least=2, most=2))


@dataclass(frozen=True, slots=True)
class UseForm:
    """What a unit of load costs a resource."""

    resource: Annotated[str, _NAME]
    cost: Annotated[Fraction, _AMOUNT] = Fraction(1)
    direction: Annotated[Direction | None, Key(values.choice(Direction))] = None


@dataclass(frozen=True, slots=True)
class ResourceForm:
    """What paths share."""

    name: Annotated[str, _NAME]
    capacity: Annotated[Fraction, _AMOUNT]
    duplex: Annotated[bool, Key(values.flag)] = False


@dataclass(frozen=True, slots=True)
class PathForm:
    """One path."""

    name: Annotated[str, _NAME]
    backend: Annotated[str | None, _NAME] = None
    kind: Annotated[PathKind | None, Key(values.choice(PathKind))] = None
    capacity: Annotated[Fraction | None, _AMOUNT] = None
    interval: Annotated[tuple[Fraction, ...] | None, _TWO_AMOUNTS] = None
    latency_us: Annotated[Fraction | None, Key(values.amount, name="latency_us")] = None
    cpu: Annotated[Fraction | None, _AMOUNT] = None
    uses: Annotated[tuple[UseForm, ...], Key(Listed(UseForm, most=MAX_RESOURCES))] = ()


@dataclass(frozen=True, slots=True)
class PairForm:
    """Two paths that were measured at the same time, and what each still carried."""

    paths: Annotated[tuple[str, ...], _TWO_NAMES]
    rates: Annotated[tuple[Fraction, ...], _TWO_AMOUNTS]
    verdict: Annotated[PairVerdict | None, Key(values.choice(PairVerdict))] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PathsForm:
    """The whole file."""

    version: Annotated[int, Key(values.version)]
    unit: Annotated[str, Key(values.text)] = "Mpps"
    resources: Annotated[tuple[ResourceForm, ...], Key(Listed(ResourceForm, most=MAX_RESOURCES))] = ()
    paths: Annotated[tuple[PathForm, ...], Key(Listed(PathForm, least=1, most=MAX_PATHS))]
    pairs: Annotated[tuple[PairForm, ...], Key(Listed(PairForm, most=MAX_PATHS * MAX_PATHS))] = ()


def load_paths(file: Path) -> tuple[tuple[DpuPath, ...], tuple[Resource, ...], str]:
    """Return paths, resources and the unit of capacities. Raises FileUnusable; ConfigError for mistakes in the file."""
    form = load_form(file, PathsForm, _check)
    resources = tuple(Resource(one.name, one.capacity, one.duplex) for one in form.resources)
    pairs = (
        MeasuredPair(pair.paths[0], pair.paths[1], pair.rates[0], pair.rates[1], pair.verdict) for pair in form.pairs
    )
    paths, shared = share_bottlenecks([_path(one) for one in form.paths], pairs)
    return paths, (*resources, *shared), form.unit


def _check(form: PathsForm) -> Iterator[Remark]:
    """What must hold between the parts of the file."""
    duplex = dict[str, bool]()
    for number, resource in enumerate(form.resources):
        if resource.name in duplex:
            yield Remark(("resources", number, "name"), f"'{resource.name}' is there already; name each once")
        duplex[resource.name] = resource.duplex
    yield from _check_pairs(form)
    names = set[str]()
    for number, path in enumerate(form.paths):
        here = ("paths", number)
        if path.name in names:
            yield Remark((*here, "name"), f"'{path.name}' is there already; name each once")
        names.add(path.name)
        if path.capacity is None and not any(use.cost for use in path.uses):
            yield Remark(here, "nothing limits this path; add `capacity:`, or `uses:` of a resource")
        for index, use in enumerate(path.uses):
            where = (*here, "uses", index)
            if use.resource not in duplex:
                known = did_you_mean(use.resource, duplex, "did you mean {}?") or "add it to `resources`"
                yield Remark((*where, "resource"), f"'{use.resource}' is no resource; {known}")
            elif duplex[use.resource] and use.direction is None:
                yield Remark(where, f"{use.resource} is duplex; add `direction: in`, out or both")
            elif not duplex[use.resource] and use.direction is not None:
                message = f"{use.resource} is not duplex, so directions share it; remove the key, or add `duplex: true`"
                yield Remark((*where, "direction"), message)


def _check_pairs(form: PathsForm) -> Iterator[Remark]:
    capacities = {path.name: path.capacity for path in form.paths}
    for number, pair in enumerate(form.pairs):
        for index, name in enumerate(pair.paths):
            here = ("pairs", number, "paths", index)
            if name not in capacities:
                known = did_you_mean(name, capacities, "did you mean {}?") or "add it to `paths`"
                yield Remark(here, f"'{name}' is no path; {known}")
            elif not capacities[name]:
                yield Remark(here, f"path {name} has no `capacity:`, to which its rate in the pair is compared; add it")
        if pair.paths[0] == pair.paths[1]:
            yield Remark(("pairs", number, "paths"), f"'{pair.paths[0]}' is both paths; write two")


def _path(form: PathForm) -> DpuPath:
    uses = tuple(
        ResourceUse(
            use.resource,
            Fraction(0) if use.direction is Direction.OUT else use.cost,
            use.cost if use.direction in (Direction.OUT, Direction.BOTH) else Fraction(0),
        )
        for use in form.uses
    )
    return DpuPath(form.name, form.capacity, form.latency_us, form.cpu, uses, form.kind, form.backend)
