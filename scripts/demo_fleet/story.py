"""The steps of the demo: what is going to happen, what happens, and what the clients noticed."""

from __future__ import annotations

import subprocess
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from scripts.demo_fleet import network, store
from scripts.demo_fleet.clients import RATE
from scripts.demo_fleet.network import CLIENTS, DPUS, FLOWS, PORT, VIP
from scripts.demo_fleet.place import Place
from scripts.demo_fleet.tally import (
    Homes,
    Record,
    Row,
    clients_by_server,
    homes,
    least_moves,
    render,
    row_of,
    servers_of_clients,
)

_STEPS = 8
_ROUND_S = 2.0 * len(FLOWS) / RATE
"""In this time each flow asks at least once."""

_ANSWER_S = 1.0
"""How long the next answer is waited for."""

_STEP_S = 0.1
_WORDS_A_SECOND = 4.0
"""How fast a person reads text that is new."""

_RESULT_S = 4.0
"""How long a person looks at the result of a step."""

_PATIENCE_S = 120.0

_PICTURE = """\
                               +- dpu1 -+
  64 clients --- router -ECMP--+- dpu2 -+-- LAN -- web1, web2, web3, web4
                   |           +- dpu3 -+    |
                   +-------- answers --------+

  store1, store2, store3 (a controller each) --- relay1, relay2 --- their agents"""


class Unfinished(Exception):
    """Something of the demo did not come; the text says what."""


class Story:
    """Shows the demo, step by step."""

    def __init__(self, place: Place, *, is_fast: bool) -> None:
        self._place, self._is_fast = place, is_fast
        self._record = Record(place.directory / "clients.log")
        self._host = next(iter(store.HOSTS))
        self._done = 0
        self._rows = list[Row]()

    def run(self) -> None:
        """Build all, let things happen, and show the table."""
        self._build()
        self._first_config()
        self._roll_out()
        self._server_dies()
        self._leader_dies()
        self._dpu_dies()
        self._store_dies()
        self._summary()

    def _build(self) -> None:
        self._step(
            "Three DPUs, four servers, a router, a store",
            "Everything is in network namespaces of its own; the network and the Open vSwitch of this machine "
            "are left alone. Each DPU has a real Open vSwitch (userspace, no NIC). The router spreads packets by "
            "their addresses and ports (ECMP), so one client's packets take several DPUs.",
        )
        print(_PICTURE, flush=True)
        self._pause(_RESULT_S)
        self._say("Building takes some seconds: the network and Open vSwitch ...")
        network.build(self._place)
        self._say("the store ...")
        first, *others = store.HOSTS
        store.start_server(self._place, first)
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda host: store.start_server(self._place, host), others))
            list(pool.map(lambda relay: store.start_relay(self._place, relay), store.RELAYS))
        self._say("the agents of the DPUs ...")
        for dpu in DPUS:
            store.start_agent(self._place, dpu)
        for dpu in DPUS:
            self._fleet("add-dpu", dpu, *(("--wave", "1") if dpu == DPUS[0] else ()))

    def _first_config(self) -> None:
        self._step(
            "The first config goes to all DPUs",
            f"The service dns has the VIP {VIP} and three servers: web1 with weight 2, web2 and web3 with 1. The "
            "store says which server has which clients, and each DPU installs exactly that. Watch: the clients "
            "meet several DPUs, and each client has one server.",
        )
        self._apply({"web1": 2, "web2": 1, "web3": 1}, "--now")
        asked = "".join(f"{flow.client} {flow.port}\n" for flow in FLOWS)
        self._place.start("clients", "clients.log", "scripts.demo_fleet.clients", VIP, str(PORT), stdin=asked)
        self._wait(lambda: len(self._homes()) == len(FLOWS), "answers to all clients")
        routes = network.dpus_of(self._place)
        met = Counter(client for client, _ in {(flow.client, dpu) for flow, dpu in routes.items()})
        several, torn = sum(count > 1 for count in met.values()), self._torn(self._homes())
        shares = ", ".join(f"{name} {count}" for name, count in sorted(Counter(routes.values()).items()))
        self._say(f"{len(FLOWS)} flows of {len(CLIENTS)} clients ask {RATE} times a second: {shares}.")
        self._say(f"{several} clients meet two or three DPUs; {torn} clients have more than one server.")
        self._show_clients(self._homes())
        self._say("In another terminal, see the DPUs live:")
        print(f"  .venv/bin/xenoovs fleet --directory {store.directory_of(self._place, 'store3')} top", flush=True)

    def _roll_out(self) -> None:
        self._step(
            "A canary roll-out: a fourth server",
            "web4 joins; each server gets a quarter. dpu1 is the canary and changes first. If it stays well for "
            "5 s, the others follow, as wave 3; wave 2 is for larger fleets. Watch: a quarter of the clients, 16, move "
            "to web4, and no other client. Meanwhile they have their old or new server, by the DPU that a packet "
            "takes.",
        )
        weights = dict.fromkeys(network.SERVERS, 1)
        self._event(
            "web4 joins, canary first",
            lambda: self._apply(weights, "--soak", "5s"),
            had_to=lambda before: least_moves(before, weights),
        )

    def _server_dies(self) -> None:
        self._step(
            "A server dies: web2",
            "Its program is killed. The DPUs probe each server every second. When two of the three say that web2 is "
            "down, the controller ejects it on all DPUs, without an operator. Watch: its 16 clients get no "
            "answers until then, and no other client notices anything.",
        )

        def die() -> None:
            self._place.kill("web2")
            self._say("killed the program of web2")
            self._wait(lambda: self._clients_of("web2") == 0, "answers to the clients of web2")
            self._say("$ xenoovs fleet status | tail -1")
            self._say(self._run_fleet("status", capture=True).stdout.strip().rpartition("\n")[2])

        self._event("web2 dies", die, had_to=lambda before: before["web2"])

    def _leader_dies(self) -> None:
        leader = self._wait(lambda: store.leader(self._place), "a leader")
        self._step(
            f"The leader of the store dies: {leader}",
            "Its two databases and its controller are killed with kill -9. The other two elect a leader in "
            "2 to 3 s. Meanwhile web2 is repaired; the controller of the new leader gives it its clients back. "
            "Watch: nothing is lost, and only the 16 clients of web2 move.",
        )

        def die() -> None:
            killed = self._place.kill(leader)
            self._say(f"killed {killed} processes of {leader}")
            begun_s = time.monotonic()
            network.start_server_program(self._place, "web2")
            self._say("started the program of web2")
            self._host = self._wait(lambda: store.leader(self._place), "another leader")
            self._say(f"{self._host} leads after {time.monotonic() - begun_s:.1f} s")
            self._wait(lambda: self._clients_of("web2") == len(CLIENTS) // 4, "the clients of web2")

        weights = dict.fromkeys(network.SERVERS, 1)
        self._event("leader dies, web2 back", die, had_to=lambda before: least_moves(before, weights))

    def _dpu_dies(self) -> None:
        routes = Counter(network.dpus_of(self._place).values())
        self._step(
            "A DPU dies: dpu3 loses power",
            f"Its links go down and its processes are killed. {routes['dpu3']} of {len(FLOWS)} flows go through "
            "it. The router sees the links go down and spreads the packets over dpu1 and dpu2. Watch: no client "
            "has to move, because these two have the same blocks. (A DPU that hangs with its link up is found "
            "by BFD: docs/how-to/announce-a-vip.md.)",
        )

        def die() -> None:
            killed = network.cut_power(self._place, "dpu3")
            self._say(f"killed {killed} processes of dpu3")

        self._event("dpu3 loses power", die, had_to=lambda before: 0)

    def _store_dies(self) -> None:
        self._step(
            "The whole store dies",
            "The other servers, controllers and relays are killed too. Watch: nothing happens. DPUs forward with "
            "what they have for as long as it takes, and start with it after a reboot.",
        )

        def die() -> None:
            killed = sum(map(self._place.kill, (*store.HOSTS, *store.RELAYS)))
            self._say(f"killed {killed} processes of the store")

        self._event("the whole store dies", die, had_to=lambda before: 0)

    def _summary(self) -> None:
        self._step(
            "What the clients noticed",
            "Each row is an event and the seconds after it; a flow is a client and its port.",
        )
        print(render(self._rows), flush=True)
        torn = sum(each.torn for each in self._rows)
        self._say(f"Clients that had two servers after an event, by different DPUs: {torn}.")
        self._say("Next: docs/how-to/fleet.md does it by hand; docs/explanation/fleet.md says why it is so.")

    def _event(self, name: str, happen: Callable[[], None], *, had_to: Callable[[Counter[str]], int]) -> None:
        """Let something happen; wait until all is quiet; say what the clients noticed."""
        before, routes = self._homes(), network.dpus_of(self._place)
        begun_s = time.monotonic()
        happen()
        # Each flow asks once more, and what it asked last is answered.
        time.sleep(_ROUND_S)
        end_s = time.monotonic()
        self._await_answers(begun_s, end_s)
        now = network.dpus_of(self._place)
        packets = self._record.between(begun_s, end_s)
        after = homes(packet for packet in packets if packet.sent_s > end_s - _ROUND_S)
        found = row_of(
            name,
            packets,
            before=before,
            after=after,
            rerouted=sum(now[flow] != routes[flow] for flow in FLOWS),
            had_to=had_to(clients_by_server(before)),
        )
        self._rows.append(found)
        self._show_clients(after)
        self._say(
            f"{found.lost} of {found.sent} packets lost; {found.moved} clients have another server "
            f"({found.had_to} had to); {found.rerouted} flows take another DPU."
        )
        if found.flapped:
            self._say(f"{found.flapped} clients went to and fro, while some DPUs had the old blocks.")

    def _await_answers(self, begun_s: float, end_s: float) -> None:
        """Wait as long as answers to the packets of a time come; what has none then is lost."""
        missing, left = -1, 0
        while missing != left:
            missing = left
            time.sleep(_ANSWER_S)
            self._record.update()
            left = sum(packet.server is None for packet in self._record.between(begun_s, end_s))

    def _homes(self) -> Homes:
        """Return which server each flow has now."""
        self._record.update()
        now_s = time.monotonic()
        return homes(self._record.between(now_s - _ROUND_S, now_s))

    def _clients_of(self, server: str) -> int | None:
        """Return how many clients a server has; None: some clients get no answers."""
        found = self._homes()
        return clients_by_server(found)[server] if len(found) == len(FLOWS) else None

    def _torn(self, found: Homes) -> int:
        return sum(len(servers) > 1 for servers in servers_of_clients(found).values())

    def _show_clients(self, found: Homes) -> None:
        counts = clients_by_server(found)
        self._say("clients now: " + ", ".join(f"{server} {counts[server]}" for server in sorted(counts)))

    def _apply(self, weights: Mapping[str, int], *options: str) -> None:
        (self._place.directory / "services.yaml").write_text(_config(weights))
        self._shown("apply", "services.yaml", "--yes", *options)

    def _shown(self, command: str, *words: str) -> None:
        """Show a command of the fleet and what it prints."""
        self._say(f"$ xenoovs fleet {' '.join((command, *words))}")
        done = self._run_fleet(command, *words, capture=False)
        if done.returncode:
            raise Unfinished(f"`xenoovs fleet {command}` ended with status {done.returncode}")

    def _fleet(self, command: str, *words: str) -> None:
        done = self._run_fleet(command, *words, capture=True)
        if done.returncode:
            raise Unfinished(f"`xenoovs fleet {command}` ended with status {done.returncode}: {done.stderr}")

    def _run_fleet(self, command: str, *words: str, capture: bool) -> subprocess.CompletedProcess[str]:
        place, directory = self._place, store.directory_of(self._place, self._host)
        return subprocess.run(
            place.python(store.NAMESPACE, "xenoovs", "fleet", "--directory", str(directory), command, *words),
            cwd=place.directory,
            env=place.environment("operator"),
            text=True,
            capture_output=capture,
            check=False,
        )

    def _wait(self, condition: Callable[[], object], what: str) -> str:
        deadline_s = time.monotonic() + _PATIENCE_S
        while not (found := condition()):
            if time.monotonic() > deadline_s:
                raise Unfinished(f"waited {_PATIENCE_S:.0f} s for {what}")
            time.sleep(_STEP_S)
        return str(found)

    def _step(self, title: str, text: str) -> None:
        self._pause(_RESULT_S)
        self._done += 1
        print(f"\n\033[1m==> {self._done}/{_STEPS} {title}\033[0m")
        self._say(text)
        self._pause(len(text.split()) / _WORDS_A_SECOND)

    def _say(self, text: str) -> None:
        print(textwrap.fill(text, 78, break_long_words=False, break_on_hyphens=False), flush=True)

    def _pause(self, seconds: float) -> None:
        if not self._is_fast:
            time.sleep(seconds)


def _config(weights: Mapping[str, int]) -> str:
    """Return the config of the fleet with these servers."""
    lines = [
        "version: 1",
        "switch: {ingress: [in], egress: out}",
        "health: {probe: dns, query: example.org, interval: 1s, timeout: 1s}",
        "services:",
        "  - name: dns",
        f"    vip: {VIP}",
        "    protocol: udp",
        f"    ports: [{PORT}]",
        "    vip_mac: 02:00:5e:10:00:80",
        "    backends:",
    ]
    for server, weight in weights.items():
        mac, address = network.server_mac(server), network.server_address(server)
        lines.append(f"      - {{name: {server}, mac: {mac}, address: {address}, weight: {weight}}}")
    return "\n".join([*lines, ""])
