"""The paths of a DPU, from a file: ranked by a criterion, and combined in this order until the DPU is saturated.

The guideline is that of the path study of BlueField-2 (X. Wei and others, "Characterizing Off-path SmartNIC for
Accelerating Distributed Systems", OSDI 2023): enumerate, rank, combine. All numbers are exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from fractions import Fraction
from math import gcd, lcm
from pathlib import Path

from xenoovs.dataclass import dataclass, replace
from xenoovs.errors import did_you_mean
from xenoovs.model import values
from xenoovs.model.form import Listed, entry, keyed
from xenoovs.model.load import load_form
from xenoovs.model.values import Remark

MAX_PATHS = 64
MAX_RESOURCES = 64
MAX_WEIGHT = 10_000
"""Largest weight of a split, which is rounded if necessary: a hundredth of a percent is finer than any measurement."""


class Criterion(Enum):
    """The criterion of a ranking."""

    THROUGHPUT = "throughput"
    LATENCY = "latency"
    CPU = "cpu"


class PathKind(Enum):
    """Where a path from the wire ends."""

    WIRE = "wire"
    HOST = "host"
    SOC = "soc"
    SOFTWARE = "software"


class Direction(Enum):
    """A direction of packets on a path: IN from the wire to the backend, OUT from the backend to the wire."""

    IN = "in"
    OUT = "out"
    BOTH = "both"


class PairVerdict(Enum):
    """Whether two paths share a bottleneck, as far as the repeats of a measurement show it."""

    SHARED = "shared"
    APART = "apart"
    UNDECIDED = "undecided"


_TWO_NAMES, _TWO_AMOUNTS = Listed(values.name, least=2, most=2), Listed(values.amount, least=2, most=2)


@keyed()
class Resource:
    """A resource that paths share: NIC cores, a PCIe switch, Arm cores, a link. `capacity`: of each direction, if
    duplex."""

    name: str = entry(values.name)
    capacity: Fraction = entry(values.amount)
    is_duplex: bool = entry(values.flag, default=False, name="duplex")


@keyed()
class ResourceUse:
    """The cost of one unit of load on a path for a resource. `direction`: None if the resource is not duplex."""

    resource: str = entry(values.name)
    cost: Fraction = entry(values.amount, default=Fraction(1))
    direction: Direction | None = entry(Direction, default=None)


@keyed()
class DpuPath:
    """A path through a DPU. `backend`: its name in the config; None if that of the path. `capacity`: of the path alone;
    None if only its resources limit it. `interval`: of a measured capacity. `latency_us`: without load. `cpu`: cores
    that a unit of load keeps busy. These are None if not known."""

    name: str = entry(values.name)
    backend: str | None = entry(values.name, default=None)
    kind: PathKind | None = entry(PathKind, default=None)
    capacity: Fraction | None = entry(values.amount, default=None)
    interval: tuple[Fraction, ...] | None = entry(_TWO_AMOUNTS, default=None)
    latency_us: Fraction | None = entry(values.amount, default=None, name="latency_us")
    cpu: Fraction | None = entry(values.amount, default=None)
    uses: tuple[ResourceUse, ...] = entry(Listed(ResourceUse, most=MAX_RESOURCES), default=())


@keyed()
class MeasuredPair:
    """Two paths under full load together, and the rate of each. `verdict`: None if the rates decide."""

    paths: tuple[str, ...] = entry(_TWO_NAMES)
    rates: tuple[Fraction, ...] = entry(_TWO_AMOUNTS)
    verdict: PairVerdict | None = entry(PairVerdict, default=None)


@dataclass(frozen=True, slots=True)
class Usage:
    """The use of a resource, of a direction of it, or of a path. `price`: growth of the total if the capacity grows by
    1; above 0 for a bottleneck."""

    name: str
    capacity: Fraction
    used: Fraction
    price: Fraction = Fraction(0)

    @property
    def headroom(self) -> Fraction:
        return self.capacity - self.used


@dataclass(frozen=True, slots=True)
class Combination:
    """The best split of load over some paths. `loads`: of each path, in the order of the ranking."""

    paths: tuple[DpuPath, ...]
    loads: tuple[Fraction, ...]
    usages: tuple[Usage, ...]

    @property
    def total(self) -> Fraction:
        return sum(self.loads, Fraction(0))

    @property
    def bottlenecks(self) -> tuple[Usage, ...]:
        """Return the limits without which the total would be greater."""
        return tuple(usage for usage in self.usages if usage.price)


@dataclass(frozen=True, slots=True)
class PathPlan:
    """The best split over the first path of the ranking, its first two, and so on. `alone`: the load that each path
    carries alone. `demand`: None if unlimited."""

    criterion: Criterion
    alone: tuple[Fraction, ...]
    steps: tuple[Combination, ...]
    demand: Fraction | None = None

    @property
    def split(self) -> Combination:
        """Return the best split over all paths, in the order of the ranking."""
        return self.steps[-1]

    @property
    def gain(self) -> Fraction:
        """Return how much more all paths carry than the best one alone, relative to the latter."""
        best = max(self.alone) if self.demand is None else min(max(self.alone), self.demand)
        return self.split.total / best - 1 if best else Fraction(0)

    def weights(self) -> dict[str, int]:
        """Return the weight of each backend in proportion to the loads; 0 for backends without load."""
        loads = dict[str, Fraction]()
        for path, load in zip(self.split.paths, self.split.loads, strict=True):
            name = path.backend or path.name
            loads[name] = loads.get(name, Fraction(0)) + load
        scale = lcm(*(load.denominator for load in loads.values()))
        whole = [int(load * scale) for load in loads.values()]
        divisor = gcd(*whole) or 1
        whole = [weight // divisor for weight in whole]
        if (most := max(whole)) > MAX_WEIGHT:
            whole = [max(1, round(Fraction(weight * MAX_WEIGHT, most))) if weight else 0 for weight in whole]
        return dict(sorted(zip(loads, whole, strict=True)))


def plan_paths(
    paths: Sequence[DpuPath],
    resources: Iterable[Resource] = (),
    *,
    criterion: Criterion = Criterion.THROUGHPUT,
    demand: Fraction | None = None,
) -> PathPlan:
    """Rank paths, and combine them in this order until they are saturated or `demand` is met.

    Among all splits with the greatest total, the result loads the first path of the ranking as much as possible, then
    the second, and so on, so that the order of the input does not matter. At least one path, with its own name; each is
    limited by a capacity of its own, or by resources that are listed.
    """
    known = {resource.name: resource for resource in sorted(resources, key=lambda resource: resource.name)}
    alone = {path.name: _combine([path], known, None).total for path in paths}
    # Equal paths are ordered by the other criteria, then by name.
    order = [criterion, *(other for other in Criterion if other is not criterion)]
    ranking = sorted(paths, key=lambda path: (*(_badness(path, alone[path.name], one) for one in order), path.name))
    steps = [_combine(ranking[:count], known, demand) for count in range(1, len(ranking) + 1)]
    return PathPlan(criterion, tuple(alone[path.name] for path in ranking), tuple(steps), demand)


def _badness(path: DpuPath, alone: Fraction, criterion: Criterion) -> tuple[bool, Fraction]:
    """Return a sort key: better paths come first, and those with an unknown value last."""
    values = {Criterion.THROUGHPUT: -alone, Criterion.LATENCY: path.latency_us, Criterion.CPU: path.cpu}
    value = values[criterion]
    return value is None, value or Fraction(0)


def _combine(paths: Sequence[DpuPath], resources: dict[str, Resource], demand: Fraction | None) -> Combination:
    """Return the split with the greatest total in which earlier paths carry as much as they can."""
    limits = _limits(paths, resources)
    rows, capacities = [row for _, row, _ in limits], [capacity for _, _, capacity in limits]
    everything = [Fraction(1)] * len(paths)
    if demand is not None:
        rows, capacities = [*rows, everything], [*capacities, demand]
    singly = [[Fraction(int(column == index)) for column in range(len(paths))] for index in range(len(paths))]
    loads, prices = maximise([everything, *singly], rows, capacities)
    usages = tuple(
        Usage(name, capacity, sum((a * x for a, x in zip(row, loads, strict=True)), Fraction(0)), price)
        for (name, row, capacity), price in zip(limits, prices, strict=False)
    )
    return Combination(tuple(paths), tuple(loads), usages)


def _limits(paths: Sequence[DpuPath], resources: dict[str, Resource]) -> list[tuple[str, list[Fraction], Fraction]]:
    """Return each limit: its name, the cost of a unit of load on each path, and its capacity."""
    limits = list[tuple[str, list[Fraction], Fraction]]()
    for resource in resources.values():
        uses = [[use for use in path.uses if use.resource == resource.name] for path in paths]
        sides = ((" in", Direction.OUT), (" out", Direction.IN)) if resource.is_duplex else (("", None),)
        for side, other in sides:
            costs = [
                sum((use.cost for use in mine if other is None or use.direction is not other), Fraction(0))
                for mine in uses
            ]
            limits.append((f"{resource.name}{side}", costs, resource.capacity))
    for index, path in enumerate(paths):
        if path.capacity is not None:
            row = [Fraction(int(index == other)) for other in range(len(paths))]
            limits.append((f"path {path.name}", row, path.capacity))
    return limits


# Shared bottlenecks, from measurements of pairs.


TOLERANCE = Fraction(1, 20)
"""Relative noise of the measurement of a pair."""


def share_bottlenecks(
    paths: Sequence[DpuPath], pairs: Iterable[MeasuredPair]
) -> tuple[tuple[DpuPath, ...], tuple[Resource, ...]]:
    """Return the paths and the resources that explain why pairs carry less together than the sum of both alone.

    A path alone (rate a, its capacity) fills a resource of capacity 1. Two paths together reach s = a'/a + b'/b: 2 if
    they share nothing, 1 if they share all. If s is below 2 by more than `TOLERANCE`, they share a resource of capacity
    s. A pair is measured at one point; it is an assumption that one path can have more if the other has less. For an
    undecided pair s counts too, so that a plan promises no total that was not measured.
    """
    by_name = {path.name: path for path in paths}
    resources = list[Resource]()
    for pair in pairs:
        # A path of a pair has a capacity.
        costs = [1 / (by_name[name].capacity or Fraction(1)) for name in pair.paths]
        reached = sum((rate * cost for rate, cost in zip(pair.rates, costs, strict=True)), Fraction(0))
        if pair.verdict is PairVerdict.APART or reached >= 2 * (1 - TOLERANCE):
            continue
        # One path alone fills 1 of it, so its capacity is at least 1 despite noise.
        resource = Resource(" with ".join(pair.paths), max(Fraction(1), reached))
        resources.append(resource)
        for name, cost in zip(pair.paths, costs, strict=True):
            path = by_name[name]
            by_name[name] = replace(path, uses=(*path.uses, ResourceUse(resource.name, cost)))
    return tuple(by_name.values()), tuple(resources)


def advice(plan: PathPlan) -> tuple[str, ...]:
    """Return advice on the choice of hardware by the split, in sentences."""
    used = [path for path, load in zip(plan.split.paths, plan.split.loads, strict=True) if load]
    sentences = list[str]()
    if used and all(path.kind is PathKind.HOST for path in used):
        sentences.append("Only paths to the host are used: a plain NIC is faster, costs less and needs less power.")
    if any(path.kind is PathKind.SOFTWARE for path in used):
        sentences.append("Some load goes through Arm cores: flows that are not offloaded cost as much as this path.")
    if len(plan.alone) == 1:
        sentences.append("There is one path: one alone does not saturate a DPU; add paths in the opposite direction.")
    return tuple(sentences)


# An exact linear program in fractions: the simplex method with Bland's rule.


Row = list[Fraction]


def maximise(
    objectives: Sequence[Sequence[Fraction]], rows: Sequence[Sequence[Fraction]], limits: Sequence[Fraction]
) -> tuple[list[Fraction], list[Fraction]]:
    """Return the x >= 0 with `rows` x <= `limits` that maximises the first objective, then the second, and so on.

    Return the prices too: for each constraint, how much the first objective gains if its limit grows by 1.

    It ends by Bland's rule (R. Bland, New finite pivoting rules for the simplex method, 1977). `limits`: 0 or more, so
    that x = 0 is a first solution. Raises ValueError if an objective has no upper limit.
    """
    size = len(objectives[0]) if objectives else 0
    # Columns: the variables, a slack of each constraint, the right side.
    table = [
        [*map(Fraction, row), *(Fraction(int(index == other)) for other in range(len(rows))), Fraction(limit)]
        for index, (row, limit) in enumerate(zip(rows, limits, strict=True))
    ]
    basis = [size + index for index in range(len(rows))]
    usable = set(range(size + len(rows)))
    prices = list[Fraction]()
    for objective in objectives:
        costs = _reduced([*objective, *([Fraction(0)] * (len(rows) + 1))], table, basis)
        while (entering := min((c for c in usable if costs[c] > 0), default=None)) is not None:
            costs = _pivot(table, basis, costs, entering)
        # The negated reduced costs of the slacks are the dual solution.
        prices = prices or [-cost for cost in costs[size:-1]]
        # A column that would lower this objective stays at 0 for all later ones.
        usable -= {column for column in usable if costs[column] < 0}
    solution = [Fraction(0)] * (size + len(rows))
    for row, column in zip(table, basis, strict=True):
        solution[column] = row[-1]
    return solution[:size], prices


def _reduced(costs: Row, table: list[Row], basis: list[int]) -> Row:
    """Return the reduced costs, which are 0 in the columns of the basis."""
    for row, column in zip(table, basis, strict=True):
        if factor := costs[column]:
            costs = [cost - factor * value for cost, value in zip(costs, row, strict=True)]
    return costs


def _pivot(table: list[Row], basis: list[int], costs: Row, entering: int) -> Row:
    """Bring a column into the basis, and return the new reduced costs."""
    steps = [(row[-1] / row[entering], basis[index], index) for index, row in enumerate(table) if row[entering] > 0]
    if not steps:
        raise ValueError(f"variable {entering} has no limit")
    _, _, leaving = min(steps)
    pivot = table[leaving][entering]
    table[leaving] = [value / pivot for value in table[leaving]]
    for index, row in enumerate(table):
        if index != leaving and (factor := row[entering]):
            table[index] = [a - factor * b for a, b in zip(row, table[leaving], strict=True)]
    basis[leaving] = entering
    factor = costs[entering]
    return [cost - factor * value for cost, value in zip(costs, table[leaving], strict=True)]


# The paths through a bridge, as a file to which users add measured capacities.


DUPLEX = "pcie-switch"
"""The resource with a capacity in each direction."""

_RESOURCES = {
    "nic-cores": "the NIC's packet processing, shared by all paths in hardware",
    DUPLEX: "PCIe to the host and to the Arm cores",
    "arm-cores": "software on the DPU",
}


@dataclass(frozen=True, slots=True)
class BridgePort:
    """A port of a bridge, and the kind of path behind it. `is_offloadable`: the NIC can forward to it in hardware."""

    name: str
    kind: PathKind
    is_offloadable: bool = True


def paths_file(bridges: Iterable[Iterable[BridgePort]]) -> Iterator[str]:
    """Yield the lines of a file of paths through bridges. Capacities are left empty, for measured values."""
    paths = [path for ports in bridges for path in _paths(sorted(ports, key=lambda port: port.name))]
    used = {use.resource for path in paths for use in path.uses}
    yield "# Add the measured capacities, in one unit; latency_us and cpu of a path, if you rank by them."
    yield "# Remove the paths and resources that you do not use."
    yield "version: 1"
    yield "unit: Mpps"
    yield "resources:"
    for name, text in _RESOURCES.items():
        if name in used:
            duplex = ", duplex: true" if name == DUPLEX else ""
            yield f"  - {{name: {name}, capacity: {duplex}}}  # {text}"
    yield "paths:"
    for path in paths:
        kind = "" if path.kind is None else path.kind.value
        directions = ((use.resource, use.direction and f", direction: {use.direction.value}") for use in path.uses)
        shown = ", ".join(f"{{resource: {resource}{direction or ''}}}" for resource, direction in directions)
        yield f"  - {{name: {path.name}, kind: {kind}, capacity: , uses: [{shown}]}}"


def _paths(ports: list[BridgePort]) -> Iterator[DpuPath]:
    """Yield each path from an uplink to another port of the same bridge, in hardware and in software."""
    uplinks = [port for port in ports if port.kind is PathKind.WIRE]
    for uplink in uplinks:
        for port in ports:
            # Only a single offloadable uplink has a path back to itself; ports of a lab have no machine behind them.
            if port is uplink and (len(uplinks) > 1 or not uplink.is_offloadable):
                continue
            name = f"{uplink.name}-{port.name}"
            if uplink.is_offloadable and port.is_offloadable:
                pcie = (
                    (ResourceUse(DUPLEX, direction=Direction.IN),) if port.kind in (PathKind.HOST, PathKind.SOC) else ()
                )
                yield DpuPath(name, kind=port.kind, uses=(ResourceUse("nic-cores"), *pcie))
                name += "-software"
            yield DpuPath(name, kind=PathKind.SOFTWARE, uses=(ResourceUse("arm-cores"),))


# The file of paths.


@keyed(kw_only=True)
class _PathsFile:
    version: int = entry(values.version)
    unit: str = entry(values.text, default="Mpps")
    resources: tuple[Resource, ...] = entry(Listed(Resource, most=MAX_RESOURCES), default=())
    paths: tuple[DpuPath, ...] = entry(Listed(DpuPath, least=1, most=MAX_PATHS))
    pairs: tuple[MeasuredPair, ...] = entry(Listed(MeasuredPair, most=MAX_PATHS * MAX_PATHS), default=())


def load_paths(file: Path) -> tuple[tuple[DpuPath, ...], tuple[Resource, ...], str]:
    """Return paths, resources and the unit of capacities. Raises FileUnusable; ConfigError if the file has mistakes."""
    form = load_form(file, _PathsFile, _check)
    paths, shared = share_bottlenecks(form.paths, form.pairs)
    return paths, (*form.resources, *shared), form.unit


def _check(form: _PathsFile) -> Iterator[Remark]:
    duplex = dict[str, bool]()
    for position, resource in enumerate(form.resources):
        if resource.name in duplex:
            yield Remark(("resources", position, "name"), f"'{resource.name}' is there already; name each once")
        duplex[resource.name] = resource.is_duplex
    yield from _check_pairs(form)
    names = set[str]()
    for position, path in enumerate(form.paths):
        here = ("paths", position)
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


def _check_pairs(form: _PathsFile) -> Iterator[Remark]:
    capacities = {path.name: path.capacity for path in form.paths}
    for position, pair in enumerate(form.pairs):
        for index, name in enumerate(pair.paths):
            here = ("pairs", position, "paths", index)
            if name not in capacities:
                known = did_you_mean(name, capacities, "did you mean {}?") or "add it to `paths`"
                yield Remark(here, f"'{name}' is no path; {known}")
            elif not capacities[name]:
                yield Remark(here, f"path {name} has no `capacity:`, to which its rate in the pair is compared; add it")
        if pair.paths[0] == pair.paths[1]:
            yield Remark(("pairs", position, "paths"), f"'{pair.paths[0]}' is both paths; write two")
