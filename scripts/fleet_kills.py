"""Kills processes of a fleet with SIGKILL.

50 controllers in the midst of a roll-out, 20 leading servers together with their controllers, and 50 leading servers
under two writers.

A roll-out has to end as current or refused and never between, without a gap in the generations. Where the leading
server and its controller are gone, it prints how long after its server leads another controller decides. DPUs are
light: they report what they would have installed, without a bridge. No write may be lost, half there, or there twice.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.ovs.stores import StoreServer, leader_of, running_cluster, service, wait_generation
from tests.patience import eventually
from xenoovs.errors import StoreUnreachable
from xenoovs.fleet.plan import next_change, with_intent, with_override
from xenoovs.store.client import CommitOutcome, DpuStatusClient, StoreClient
from xenoovs.store.rows import StoreDatabase
from xenoovs.store.servers import create_databases, server_of, start_server, stop_server
from xenoovs.store.view import Changes, Dpu, DpuStatus, FleetView, Intent, IntentState

_XENOOVS = str(Path(sys.executable).parent / "xenoovs")
_ENDED = (IntentState.CURRENT, IntentState.REFUSED)
_WAVES = {"dpu1": 1, "dpu2": 2, "dpu3": 3, "dpu4": 3}
_BROKEN = "dpu2"
_MOST_S = 0.1
"""A controller writes the next step of a roll-out within this time."""


def main() -> int:
    """Print the results of both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("roll_outs", type=int, nargs="?", default=50, help="controllers to kill in a roll-out")
    parser.add_argument("takeovers", type=int, nargs="?", default=20, help="leading servers to kill with theirs")
    parser.add_argument("leaders", type=int, nargs="?", default=50, help="leading servers to kill under writes")
    wanted = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.0f}")
    if wanted.roll_outs:
        with tempfile.TemporaryDirectory() as work:
            killed = killed_roll_outs(Path(work), wanted.roll_outs)
        print(f"{wanted.roll_outs} controllers killed in a roll-out: {dict(killed)}")
    if wanted.takeovers:
        with tempfile.TemporaryDirectory() as work:
            delays = takeovers(Path(work), wanted.takeovers)
        middle, worst = statistics.median(delays), max(delays)
        print(f"{wanted.takeovers} leaders killed: another decides after {middle:.2f} s (p50), {worst:.2f} s at most")
    if wanted.leaders:
        with tempfile.TemporaryDirectory() as work:
            writes = killed_leaders(Path(work), wanted.leaders)
        middle, worst = statistics.median(writes.delays), max(writes.delays)
        print(
            f"{wanted.leaders} leaders killed under writes: written again after {middle:.1f} s (p50), {worst:.1f} s at "
            f"most; {writes.committed} writes, {writes.unknown} of unknown outcome"
        )
    print(f"load {os.getloadavg()[0]:.0f}")
    return 0


def config(number: int) -> str:
    """The config of a fleet; the next one has other weights, one service less and one more."""
    lines = ["version: 1", "switch: {ingress: [in], egress: out}", "services:"]
    for index in (0, 1 + number % 2, 3 + number % 3):
        lines.append(f"  - name: s{index}\n    vip: 10.0.0.{index + 1}\n    protocol: udp\n    ports: [53]")
        lines.append("    backends:")
        lines += [
            f"      - {{name: b{each}, mac: 02:00:00:00:00:0{each}, weight: {1 + (number + each) % 3}}}"
            for each in (1, 2, 3)
        ]
    return "\n".join(lines) + "\n"


@dataclass
class LightDpus:
    """DPUs that report at once what a view gives them, and check that it is one config as a whole.

    Attributes:
        broken: A DPU that reports an error while it has the services of a roll-out; empty: none.
        whole: The services of which a DPU may have either, as texts by name.
        problems: What was wrong.
    """

    states: dict[str, DpuStatusClient]
    broken: str = ""
    whole: list[dict[str, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def take(self, view: FleetView | None) -> None:
        """Take the newest view."""
        for name, client in self.states.items():
            if view is None or name not in view.dpus:
                continue
            has = configs_of(view.of_dpu(name))
            if self.whole and has not in self.whole:
                self.problems.append(f"{name} has half a config at generation {view.generation}")
            is_new = bool(view.wave) and view.dpus[name].wave <= view.wave
            error = "its port is gone" if name == self.broken and is_new else ""
            client.put(DpuStatus(name, seen_ms=int(time.time() * 1000), applied=view.generation, error=error))


@contextmanager
def controller(directory: Path, *, is_alone: bool = True) -> Iterator[subprocess.Popen[bytes]]:
    """A controller, which is killed at the end. `is_alone`: wait until it is active, and not only passive."""
    argv = [_XENOOVS, "fleet", "--directory", str(directory), "serve"]
    with subprocess.Popen(argv, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        try:
            begun = (b"active: the server leads",) if is_alone else (b"active: the server leads", b"passive")
            assert any(any(each in line for each in begun) for line in process.stderr), "the controller has ended"
            yield process
        finally:
            process.kill()


def killed_roll_outs(work: Path, times: int, *, seed: int = 0) -> Counter[str]:
    """Kill the controller in the midst of so many roll-outs; return how many of them ended as what.

    The controller is killed up to 0.1 s after a step that varies: the new config, each wave, the end.

    Raises AssertionError: A roll-out ended between, or a generation is missing.
    """
    chance, ended = random.Random(seed), Counter[str]()
    create_databases(work / "store", name="kills")
    with ExitStack() as stack:
        for database in StoreDatabase:
            stack.callback(stop_server, server_of(work / "store", database))
            assert start_server(server_of(work / "store", database)) == ""
        fleet, states = (server_of(work / "store", database).remote for database in StoreDatabase)
        dpus = LightDpus({name: stack.enter_context(DpuStatusClient(states)) for name in _WAVES})
        client = StoreClient(fleet, with_intents=True, on_change=lambda: dpus.take(client.view()))
        stack.enter_context(client)
        process = stack.enter_context(controller(work / "store"))
        _write(client, Changes(dpus={name: Dpu(name, frozenset(), wave=wave) for name, wave in _WAVES.items()}))
        _roll_out(client, 0, IntentState.STAGED)
        _wait(client, lambda view: view.intent == 1 and next_change(view).is_empty, "the first config")
        for number in range(1, times + 1):
            before = _view(client)
            dpus.broken = _BROKEN if number % 3 == 2 else ""
            dpus.whole = [configs_of(before), configs_of(after_intent(before, config(number)))]
            intent = _roll_out(client, number, IntentState.ROLLING)
            _wait(client, partial(_is_at, intent=intent, step=number % 5), f"its step in roll-out {number}")
            time.sleep(chance.uniform(0, _MOST_S))
            process.kill()
            process.wait()
            at = _view(client)
            process = stack.enter_context(controller(work / "store"))
            after = _wait(client, partial(_is_over, intent=intent), f"the end of roll-out {number}")
            outcome = after.intents[intent].state
            assert (after.wave, after.staged, after.removed) == (0, {}, frozenset())
            assert outcome is (IntentState.REFUSED if dpus.broken else IntentState.CURRENT), after.intents[intent]
            if outcome is IntentState.REFUSED:
                assert after.services == before.services
            ended[f"killed at wave {at.wave or '-'}: {outcome.value}"] += 1
        assert dpus.problems == []
        generation = _view(client).generation
        # Before the end of the server, which leaves the newest state alone in its file.
        seen = generations(server_of(work / "store", StoreDatabase.FLEET).database)
    assert seen == list(range(1, generation + 1)), seen
    return ended


def takeovers(work: Path, times: int) -> list[float]:
    """Kill the leading server and its controller; return for each how long after its server leads another one decides.

    The time begins later where the change to decide about was written later.
    """
    delays = list[float]()
    with ExitStack() as stack:
        servers = stack.enter_context(running_cluster(work / "fleet"))
        states = stack.enter_context(running_cluster(work / "states", database=StoreDatabase.STATES))
        for one, other in zip(servers, states, strict=True):
            # A controller looks for both beside each other.
            one.files.directory.joinpath(other.files.socket.name).symlink_to(other.files.socket)
        running = {
            server.files.directory: stack.enter_context(controller(server.files.directory, is_alone=False))
            for server in servers
        }
        client = stack.enter_context(StoreClient(",".join(each.files.remote for each in servers), with_intents=True))
        _roll_out(client, 0, IntentState.STAGED)
        _wait(client, lambda view: view.intent == 1 and next_change(view).is_empty, "the first config")
        for number in range(times):
            leader = _leader(servers)
            running[leader.files.directory].kill()
            leader.kill()
            successor = _leader([each for each in servers if each is not leader])
            leads_s = time.monotonic()
            weight = Fraction(number % 7 + 1)
            _write_override(client, weight)
            begun_s = max(leads_s, time.monotonic())
            _wait(client, lambda view: next_change(view).is_empty, f"the decision beside {successor.files.directory}")
            delays.append(time.monotonic() - begun_s)
            leader.start()
            running[leader.files.directory] = stack.enter_context(controller(leader.files.directory, is_alone=False))
        generation = _view(client).generation
        assert generation >= 2 + 2 * times
    return delays


@dataclass(frozen=True, slots=True)
class KilledLeaders:
    """What two writers met while leading servers were killed.

    Attributes:
        delays: For each kill, the time until a write that began after it is in the store, in seconds.
        committed: Writes that were answered.
        unknown: Writes whose answer was lost with the server.
    """

    delays: list[float]
    committed: int
    unknown: int


@dataclass(frozen=True, slots=True)
class _Attempt:
    """A write of a generation: the name that it gives to the owner of two services."""

    mark: str
    outcome: CommitOutcome
    began_s: float
    ended_s: float


def killed_leaders(work: Path, times: int) -> KilledLeaders:
    """Kill so many leading servers while two clients race to write each generation.

    Each write changes two services, so that half of one would show.

    Raises AssertionError: A write is lost, half there, or there twice, or the servers differ.
    """
    attempts, is_over, kills = dict[int, list[_Attempt]](), threading.Event(), list[float]()
    with ExitStack() as stack:
        servers = stack.enter_context(running_cluster(work))
        remotes = ",".join(each.files.remote for each in servers)
        reader = stack.enter_context(StoreClient(remotes))
        pool = stack.enter_context(ThreadPoolExecutor(2))
        stack.callback(is_over.set)
        writers = [pool.submit(_write_on, remotes, name, attempts, is_over) for name in ("one", "two")]
        for number in range(times):
            # Writes go on before the next leader dies, and so after the last one died.
            wait_generation(reader, _view(reader).generation + 5)
            leader = _leader(servers)
            leader.kill()
            kills.append(time.monotonic())
            _wait(reader, lambda _: _is_written_since(attempts, kills[-1]), f"a write after kill {number + 1}")
            leader.start(wait=False)
            eventually(leader.serves, "the killed server is back")
        is_over.set()
        for each in writers:
            each.result()
        _check_writes(servers, attempts)
    found = [each for tries in attempts.values() for each in tries]
    return KilledLeaders(
        delays=[_first_written_s(found, kill) - kill for kill in kills],
        committed=sum(each.outcome is CommitOutcome.COMMITTED for each in found),
        unknown=sum(each.outcome is CommitOutcome.UNKNOWN for each in found),
    )


def _write_on(remotes: str, name: str, attempts: dict[int, list[_Attempt]], is_over: threading.Event) -> None:
    """Write the next generation again and again."""
    with StoreClient(remotes, with_intents=True) as writer:
        while not is_over.is_set():
            generation = _view(writer).generation
            mark, began_s = f"{name}{generation}", time.monotonic()
            with suppress(StoreUnreachable):
                changes = Changes({each: service(each, mark) for each in ("dns", "web")})
                outcome = writer.commit(generation, changes, timeout_s=3)
                attempt = _Attempt(mark, outcome, began_s, time.monotonic())
                attempts.setdefault(generation, []).append(attempt)


def _is_written_since(attempts: Mapping[int, list[_Attempt]], kill_s: float) -> bool:
    # A copy: the writers go on.
    return any(
        each.began_s > kill_s and each.outcome is CommitOutcome.COMMITTED
        for tries in [*attempts.values()]
        for each in [*tries]
    )


def _first_written_s(attempts: Sequence[_Attempt], kill_s: float) -> float:
    committed = (each for each in attempts if each.began_s > kill_s and each.outcome is CommitOutcome.COMMITTED)
    return min(each.ended_s for each in committed)


def _check_writes(servers: Sequence[StoreServer], attempts: Mapping[int, Sequence[_Attempt]]) -> None:
    """Check that each generation was written once, and that all servers have the last one."""
    views = list[FleetView]()
    with ExitStack() as stack:
        clients = [stack.enter_context(StoreClient(each.files.remote, with_intents=True)) for each in servers]

        def agree() -> bool:
            # A write whose answer was lost may come true only now.
            views[:] = map(_view, clients)
            return all(view == views[0] for view in views)

        eventually(agree, "one view at all servers")
    newest = views[0].generation
    for generation in range(newest):
        won, perhaps = _marks(attempts, generation)
        assert len(won) == 1 or (not won and perhaps), f"generation {generation + 1} was written {len(won)} times"
    assert not any(_marks(attempts, each)[0] for each in attempts if each >= newest), "a write is lost"
    marks = {next(iter(views[0].services[name].active.owners)) for name in ("dns", "web")}
    assert len(marks) == 1, "a write is half there"
    won, perhaps = _marks(attempts, newest - 1)
    assert marks <= {*(won or perhaps)}


def _marks(attempts: Mapping[int, Sequence[_Attempt]], generation: int) -> tuple[list[str], list[str]]:
    """Return the marks of the writes of a generation that were answered, and of those with an unknown outcome."""
    tries = attempts.get(generation, ())
    return (
        [each.mark for each in tries if each.outcome is CommitOutcome.COMMITTED],
        [each.mark for each in tries if each.outcome is CommitOutcome.UNKNOWN],
    )


def after_intent(view: FleetView, text: str) -> FleetView:
    """Return the services of a view after a new config."""
    changed = with_intent(view, text).changes.services
    merged = {**view.services, **changed}
    return replace(view, services={name: each for name, each in merged.items() if each is not None})


def configs_of(view: FleetView) -> dict[str, str]:
    """Return the texts of all services by name."""
    return {each.name: each.config for each in view.services.values()}


def generations(database: Path) -> list[int]:
    """Return the generations of a database of one server in the order of its log (ovsdb(5), "File Format")."""
    found = list[int]()
    for line in database.read_text().splitlines():
        record = json.loads(line) if line.startswith("{") else {}
        found += [row["generation"] for row in record.get("Fleet", {}).values() if "generation" in row]
    return found


def _is_over(view: FleetView, *, intent: int) -> bool:
    return view.intents[intent].state in _ENDED and next_change(view).is_empty


def _is_at(view: FleetView, *, intent: int, step: int) -> bool:
    """Return whether a roll-out is given (0), in a wave (1 to 3), or at its end (4), or later."""
    state = view.intents[intent].state
    return state in _ENDED or (state is IntentState.ROLLING and step < 4 and view.wave >= step)


def _roll_out(client: StoreClient, number: int, state: IntentState) -> int:
    view = _view(client)
    intent = max(view.intents, default=0) + 1
    given = Intent(intent, config(number), "", "kills", "", int(time.time() * 1000), state)
    _write(client, Changes(intents={intent: given}))
    return intent


def _write_override(client: StoreClient, weight: Fraction) -> None:
    while True:
        view = _view(client)
        made = with_override(view, ("s0", "b1"), weight, author="kills", now_ms=int(time.time() * 1000))
        if client.commit(view.generation, Changes(overrides={("s0", "b1"): made})) is CommitOutcome.COMMITTED:
            return


def _write(client: StoreClient, changes: Changes) -> None:
    while client.commit(_view(client).generation, changes) is not CommitOutcome.COMMITTED:
        pass


def _view(client: StoreClient) -> FleetView:
    eventually(lambda: client.view() is not None, "a view")
    view = client.view()
    assert view is not None
    return view


def _wait(client: StoreClient, condition: Callable[[FleetView], bool], what: str) -> FleetView:
    eventually(lambda: condition(_view(client)), what)
    return _view(client)


def _leader(servers: list[StoreServer]) -> StoreServer:
    found: StoreServer | None = None

    def is_found() -> bool:
        nonlocal found
        found = leader_of(servers)
        return found is not None

    # To ask starts programs: without a pause they would take the processor from the servers that elect.
    eventually(is_found, "a leader")
    assert found is not None
    return found


if __name__ == "__main__":
    sys.exit(main())
