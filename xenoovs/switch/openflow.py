"""OpenFlow with a switch: requests and answers, flows, bundles, and the management socket of a bridge."""

from __future__ import annotations

import errno
import os
import select
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import cached_property, partial
from itertools import chain, islice
from typing import Protocol

from xenoovs.display import span
from xenoovs.errors import (
    MalformedOpenFlow,
    NotEncodable,
    OpenFlowVersionDisabled,
    StandingBy,
    SwitchError,
    SwitchUnreachable,
    WireError,
    counted,
)
from xenoovs.openflow.flow import Bundle, CookieMask, Cookies, FlowKey, FlowMod, Group, GroupMod, ObservedFlow
from xenoovs.openflow.group import IN_FRAME, grouped, resolved
from xenoovs.openflow.text import render_actions, render_flow, render_group_mod, render_match
from xenoovs.openflow.wire import message as wire
from xenoovs.openflow.wire.frame import (
    BARRIER_REPLY,
    BARRIER_REQUEST,
    BUNDLE_CONTROL,
    ECHO_REPLY,
    ECHO_REQUEST,
    ERROR,
    FEATURES_REQUEST,
    HEADER,
    VERSION,
    Error,
    Frames,
    decode_error,
    decode_hello,
    encode_hello,
    message,
    name_versions,
)
from xenoovs.openflow.wire.message import (
    ALL_TABLES,
    Port,
    decode_count,
    decode_features,
    decode_ports,
    encode_bundle,
    encode_count_request,
    encode_discard,
    encode_flows_request,
    encode_groups_request,
    encode_ports_request,
    has_more,
    names_of,
    numbers_of,
)
from xenoovs.switch.endpoint import Endpoint, connected_to
from xenoovs.switch.stderr import lift_lost, rejected

# Requests to a switch and their answers, over any connection.


ANSWER_TIMEOUT_S = 15.0
"""Time limit of the next message of an answer. A busy switch may work on a large bundle for seconds."""

_LARGEST_ANSWER_BYTES = 1 << 26
"""A million flows take about 100 MB; an answer above this limit is a flood."""
_MESSAGE_COST_BYTES = 64
"""Memory that Python needs for a message besides its bytes."""
_LONGEST_ANSWER_S = 60.0

Request = Callable[[int], bytes]
"""Returns the message with this transaction id."""


class Exchange(Protocol):
    """One caller's requests and the messages that answer them."""

    @property
    def bridge(self) -> str:
        """Return the name of the bridge."""

    def take_xids(self, number: int) -> int:
        """Return the first of `number` successive transaction ids, for as many messages."""

    def send(self, data: bytes) -> None:
        """Send whole messages. Raises SwitchUnreachable."""

    def receive(self, *, timeout_s: float) -> bytes:
        """Return the next message that has a transaction id of this exchange. Raises SwitchUnreachable if the
        connection is lost or no message comes, WireError."""


def ask(exchange: Exchange, request: Request, name: str) -> bytes:
    """Return the one message that answers a request. `name`: for errors. Raises SwitchError, WireError."""
    xid = exchange.take_xids(1)
    exchange.send(request(xid))
    frame = next(frame for frame in _received(exchange) if _xid_of(frame) == xid)
    if frame[1] == ERROR:
        raise SwitchError(f"bridge {exchange.bridge} refused {name}: {decode_error(frame).name}")
    return frame


def answers(exchange: Exchange, requests: Iterable[Request]) -> tuple[tuple[bytes, ...], ...]:
    """Send all multipart requests at once and return the messages that answer each. Raises SwitchError, WireError."""
    sent = tuple(requests)
    first = exchange.take_xids(len(sent))
    exchange.send(b"".join(request(xid) for xid, request in enumerate(sent, first)))
    found: dict[int, list[bytes]] = {xid: [] for xid in range(first, first + len(sent))}
    unanswered, received = set(found), _received(exchange)
    while unanswered:
        frame = next(received)
        xid = _xid_of(frame)
        if xid not in unanswered:
            continue
        if frame[1] == ERROR:
            raise SwitchError(f"bridge {exchange.bridge} refused a request: {decode_error(frame).name}")
        found[xid].append(frame)
        if not has_more(frame):
            unanswered.discard(xid)
    return tuple(map(tuple, found.values()))


def _received(exchange: Exchange, *, timeout_s: float = ANSWER_TIMEOUT_S) -> Iterator[bytes]:
    """Yield messages for this exchange. Raises what `receive` raises; WireError for a flood.

    A switch that sets OFPMPF_REPLY_MORE in every part, or answers one request for ever, would be read without end.
    """
    longest_s = max(_LONGEST_ANSWER_S, 2 * timeout_s)
    left, deadline_s = _LARGEST_ANSWER_BYTES, time.monotonic() + longest_s
    while True:
        frame = exchange.receive(timeout_s=timeout_s)
        yield frame
        left -= len(frame) + _MESSAGE_COST_BYTES
        if left < 0 or time.monotonic() > deadline_s:
            limits = f"{_LARGEST_ANSWER_BYTES >> 20} MiB and {span(longest_s)}"
            raise WireError(data=frame, offset=HEADER.size, expected=f"the last part of an answer within {limits}")


def _xid_of(frame: bytes) -> int:
    return int(HEADER.unpack_from(frame)[3])


# Dumps and counts of flows by multipart requests (OpenFlow 1.4.0, 7.3.5).


def request_flows(exchange: Exchange, only: Cookies, *, table: int = ALL_TABLES) -> tuple[bytes, ...]:
    """Return the undecoded messages that list the flows with these cookies, and the groups if flows use groups of
    xenoovs. Raises SwitchError, WireError."""
    requests = (partial(encode_flows_request, each, table=table) for each in only)
    frames = tuple(chain.from_iterable(answers(exchange, requests)))
    # Groups are read after the flows that name them: a group that is gone meanwhile has no flows any more.
    return (*frames, *request_groups(exchange)) if any(IN_FRAME in frame for frame in frames) else frames


def request_groups(exchange: Exchange) -> tuple[bytes, ...]:
    """Return the undecoded messages that describe all groups. Raises SwitchError, WireError."""
    return answers(exchange, (encode_groups_request,))[0]


def decode_flows(frames: Iterable[bytes], names: Mapping[int, str]) -> tuple[ObservedFlow, ...]:
    """Return the flows in the order of the messages. `names`: port names by number. Raises WireError."""
    flows, groups = list[ObservedFlow](), list[Group]()
    for frame in frames:
        if wire.is_of_groups(frame):
            groups += wire.decode_group_descriptions(frame, names)
        else:
            flows += wire.decode_flows(frame, names)
    return resolved(flows, groups) if groups else tuple(flows)


def decode_groups(frames: Iterable[bytes], names: Mapping[int, str]) -> tuple[Group, ...]:
    """Return the groups in the order of the messages. Raises WireError."""
    return tuple(chain.from_iterable(wire.decode_group_descriptions(frame, names) for frame in frames))


def count_flows(exchange: Exchange, only: Cookies) -> tuple[int, ...]:
    """Return how many flows have the cookies of each mask. Raises SwitchError, WireError."""
    replies = answers(exchange, (partial(encode_count_request, each) for each in only))
    return tuple(sum(map(decode_count, frames)) for frames in replies)


def request_ports(exchange: Exchange) -> tuple[Port, ...]:
    """Return the ports of the bridge. Raises SwitchError, WireError."""
    (frames,) = answers(exchange, (encode_ports_request,))
    return tuple(chain.from_iterable(map(decode_ports, frames)))


def request_datapath_id(exchange: Exchange) -> int:
    """Return the datapath id of the bridge, 64 bits. Raises SwitchError, WireError."""
    return decode_features(ask(exchange, lambda xid: message(FEATURES_REQUEST, xid=xid), "FEATURES_REQUEST"))


def request_barrier(exchange: Exchange) -> None:
    """Return when the bridge has finished all earlier requests. Raises SwitchError, WireError."""
    ask(exchange, lambda xid: message(BARRIER_REQUEST, xid=xid), "BARRIER_REQUEST")


_STEPS, _STEP_S = 20, 0.1


def wait_in_step(barrier: Callable[[], None]) -> None:
    """Wait until the switch has worked for two seconds: each tenth of a second ends with its answer to a barrier.

    For events that OpenFlow does not report. Two seconds are four rounds of the revalidators of Open vSwitch. Time in
    which a slow or stopped switch does nothing does not count.
    """
    for _ in range(_STEPS):
        time.sleep(_STEP_S)
        barrier()


def render_dump(flows: Iterable[ObservedFlow]) -> str:
    """Return the lines that `ovs-ofctl --no-stats dump-flows` prints for these flows."""
    return "".join(f" {render_flow(seen.flow)}\n" for seen in flows)


# Bundles of OpenFlow 1.4, which apply all flow-mods or none (OpenFlow Switch Specification 1.4.0, 7.3.9).


_PIECE_BYTES = 1 << 16
COMMIT_S, COMMIT_PER_FLOW_S = 15.0, 0.002
"""A bundle of 16,000 flows takes 0.1 to 0.9 s on two cores of a PC; a busy BlueField may be some ten times slower."""

_IS_SLAVE = "OFPBRC_IS_SECONDARY"
"""Open vSwitch calls OFPBRC_IS_SLAVE so since 2.15."""


def send_bundle(exchange: Exchange, bundle: Bundle, *, ofports: Mapping[str, int]) -> None:
    """Apply all flow-mods or none. After SwitchUnreachable read the tables: all of the bundle may have been applied.

    Args and Raises as of `open_bundle`.
    """
    open_bundle(exchange, bundle, ofports=ofports)()


def open_bundle(exchange: Exchange, bundle: Bundle, *, ofports: Mapping[str, int]) -> Callable[[], None]:
    """Send all flow-mods. The returned function commits all or none, and raises what this one raises.

    Until then nothing changes. The end of the connection drops them, and so does Open vSwitch after 10 s
    (ovs-vswitchd.conf.db(5), `bundle-idle-timeout`, which can be set to 1 s or more); it then refuses a commit.

    Args:
        exchange: of a connection on which OpenFlow 1.4 was agreed.
        bundle: with the groups that its flows need (`with_groups`).
        ofports: port numbers by the names that the flows use.

    Raises:
        BundleRejected: the switch refused a flow-mod or the bundle.
        NotEncodable: a flow has no bytes in OpenFlow 1.4; nothing was changed.
        StandingBy: another controller is master.
        SwitchUnreachable, WireError: the connection is lost, or what came is no OpenFlow.
    """
    first = exchange.take_xids(len(bundle) + 2)
    messages = encode_bundle(bundle, bundle_id=first, first_xid=first, ofports=ofports)
    timeout_s = COMMIT_S + COMMIT_PER_FLOW_S * len(bundle)
    has_begun = False
    try:
        # The switch works on one piece while the next is encoded.
        for piece in _pieces(islice(messages, len(bundle) + 1)):
            exchange.send(piece)
            has_begun = True
    except NotEncodable:
        if has_begun:
            _discard(exchange, bundle_id=first)
        raise
    # A switch that refuses single flow-mods would still commit the others: collect all refusals before the commit.
    refusals = _barrier(exchange, timeout_s=timeout_s)
    if refusals:
        if first not in refusals:
            _discard(exchange, bundle_id=first)
        raise _refusal(exchange.bridge, bundle, refusals, first_xid=first)

    def commit() -> None:
        exchange.send(next(messages))
        refusals = _refusals(exchange, last_xid=first + len(bundle) + 1, timeout_s=timeout_s)
        if refusals:
            raise _refusal(exchange.bridge, bundle, refusals, first_xid=first)

    return commit


def with_groups(exchange: Exchange, bundle: Bundle, *, ofports: Mapping[str, int]) -> Bundle:
    """Add the groups that the flows need, and delete those that they no longer use. Raises SwitchError, WireError."""
    if not bundle.has_groups:
        return bundle
    names = {number: name for name, number in ofports.items()}

    def users(numbers: tuple[int, ...]) -> Iterator[tuple[int, FlowKey]]:
        requests = (partial(encode_flows_request, CookieMask(0, 0), group=number) for number in numbers)
        for number, frames in zip(numbers, answers(exchange, requests), strict=True):
            yield from ((number, seen.flow.key) for frame in frames for seen in wire.decode_flows(frame, names))

    return grouped(bundle, decode_groups(request_groups(exchange), names), users)


def is_slave_error(error: Error) -> bool:
    """Return whether another controller is master: only a master may change flows (OpenFlow 1.4.0, 6.3.5)."""
    return error.name == _IS_SLAVE


def describe_mod(mod: FlowMod | GroupMod) -> str:
    """Return the text of a flow-mod as ovs-ofctl prints refused ones, or of a group-mod as ovs-ofctl reads them."""
    if isinstance(mod, GroupMod):
        return render_group_mod(mod)
    flow = mod.flow
    table = f"table:{flow.table} " if flow.table else ""
    match = render_match(flow.match)
    key = f"priority={flow.priority}{',' if match else ''}{match}"
    return f"{mod.command.name} {table}{key} actions={render_actions(flow.actions)}"


def _pieces(messages: Iterable[bytes]) -> Iterator[bytes]:
    """Join messages to larger pieces, as one send(2) for each flow-mod would take longer than all the rest."""
    piece = bytearray()
    for packed in messages:
        piece += packed
        if len(piece) >= _PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
    yield bytes(piece)


def _barrier(exchange: Exchange, *, timeout_s: float) -> dict[int, Error]:
    xid = exchange.take_xids(1)
    exchange.send(message(BARRIER_REQUEST, xid=xid))
    return _refusals(exchange, last_xid=xid, timeout_s=timeout_s)


def _discard(exchange: Exchange, *, bundle_id: int) -> None:
    xid = exchange.take_xids(1)
    exchange.send(encode_discard(bundle_id, xid))
    _refusals(exchange, last_xid=xid, timeout_s=COMMIT_S)


def _refusals(exchange: Exchange, *, last_xid: int, timeout_s: float) -> dict[int, Error]:
    """Collect errors by transaction id until `last_xid` is answered. The first error of an id counts."""
    refusals: dict[int, Error] = {}
    for frame in _received(exchange, timeout_s=timeout_s):
        kind, xid = frame[1], _xid_of(frame)
        if kind == ERROR:
            refusals.setdefault(xid, decode_error(frame))
        if xid == last_xid and kind in (ERROR, BARRIER_REPLY, BUNDLE_CONTROL):
            break
    return refusals


def _refusal(bridge: str, bundle: Bundle, refusals: dict[int, Error], *, first_xid: int) -> SwitchError:
    if any(map(is_slave_error, refusals.values())):
        return StandingBy(bridge=bridge)
    about = [xid for xid in sorted(refusals) if 0 < xid - first_xid <= len(bundle)]
    if about:
        return rejected(bridge, refusals[about[0]].name, describe_mod(bundle.in_order[about[0] - first_xid - 1]))
    xid, error = sorted(refusals.items())[0]
    step = "the opening" if xid == first_xid else "the commit"
    return rejected(bridge, error.name, f"{step} of a bundle of {counted(len(bundle), 'flow-mod')}")


# OpenFlow connections to the management socket of a bridge, RUNDIR/BRIDGE.mgmt, at which ovs-vswitchd listens.
#
# Each call opens a connection of its own (docs/adr/0017): that takes 0.13 ms, and no connection has to be kept alive,
# shared between threads, or replaced after a restart of ovs-vswitchd.


GREETING_TIMEOUT_S = 10.0
"""Time limit of the HELLO of ovs-vswitchd, which gives up a silent controller after as long (inactivity_probe of
ovs-vswitchd.conf.db(5), twice), and a large change keeps it busy for a second or two on a fast machine."""

GREETINGS = 5
"""ovs-vswitchd closes a connection one second after it accepted it if the HELLO of the other side is not there
(run_CONNECTING of lib/rconn.c). On a busy machine this process may be too late, and tries again."""

_READ_BYTES = 1 << 18

_SILENT = (
    "ovs-vswitchd does not answer: it is stopped or very busy, or ovsdb-server is away, without which some versions "
    "serve no bridge; see `systemctl status ovsdb-server ovs-vswitchd`"
)


class Connection:
    """A connection for one thread. Implements `Exchange`."""

    def __init__(self, sock: socket.socket, *, bridge: str) -> None:
        self.bridge = bridge
        self._socket = sock
        self._frames, self._arrived = Frames(), deque[bytes]()
        self._next_xid = 1

    @cached_property
    def _ports(self) -> tuple[Port, ...]:
        return request_ports(self)

    @property
    def names(self) -> dict[int, str]:
        return names_of(self._ports)

    @property
    def numbers(self) -> dict[str, int]:
        return numbers_of(self._ports)

    def take_xids(self, number: int) -> int:
        self._next_xid += number
        return self._next_xid - number

    def send(self, data: bytes) -> None:
        view, deadline_s = memoryview(data), time.monotonic() + ANSWER_TIMEOUT_S
        while view:
            events = self._wait(select.POLLIN | select.POLLOUT, deadline_s)
            if events & ~select.POLLOUT:
                # While 100 replies wait ovs-vswitchd reads no further request (OFCONN_REPLY_MAX, ofproto/connmgr.c).
                self._read()
            if events & select.POLLOUT:
                view, deadline_s = view[self._socket.send(view) :], time.monotonic() + ANSWER_TIMEOUT_S
            elif time.monotonic() > deadline_s:
                raise TimeoutError

    def receive(self, *, timeout_s: float) -> bytes:
        deadline_s = time.monotonic() + timeout_s
        while True:
            frame = self._next_frame(deadline_s)
            _, kind, _, xid = HEADER.unpack_from(frame)
            if kind == ECHO_REQUEST:
                self.send(message(ECHO_REPLY, frame[HEADER.size :], xid=xid))
            elif 0 < xid < self._next_xid:
                return frame
            # Other messages may come without a pause.
            if time.monotonic() > deadline_s:
                raise TimeoutError

    def close(self) -> None:
        self._socket.close()

    def greet(self) -> None:
        """Agree on OpenFlow 1.4: each side sends HELLO at once (OpenFlow 1.4.0, 6.3.1)."""
        deadline_s = time.monotonic() + GREETING_TIMEOUT_S
        self.send(encode_hello((VERSION,), xid=self.take_xids(1)))
        spoken = decode_hello(self._next_frame(deadline_s))
        if VERSION not in spoken:
            raise OpenFlowVersionDisabled(bridge=self.bridge, version="OpenFlow14", spoken=name_versions(spoken))

    def _next_frame(self, deadline_s: float) -> bytes:
        while not self._arrived:
            self._wait(select.POLLIN, deadline_s)
            self._read()
        return self._arrived.popleft()

    def _read(self) -> None:
        data = self._socket.recv(_READ_BYTES)
        if not data:
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        self._arrived += self._frames.feed(data)

    def _wait(self, events: int, deadline_s: float) -> int:
        poll = select.poll()
        poll.register(self._socket, events)
        for _, happened in poll.poll(max(0.0, deadline_s - time.monotonic()) * 1000):
            return happened
        raise TimeoutError


def _greeted(path: str, bridge: str, *, greetings: int = GREETINGS) -> Connection:
    """Return a connection on which OpenFlow 1.4 was agreed. Raises OSError, WireError, OpenFlowVersionDisabled."""
    sock = connected_to(path, GREETING_TIMEOUT_S)
    try:
        sock.settimeout(0)
        connection = Connection(sock, bridge=bridge)
        connection.greet()
    except (ConnectionResetError, BrokenPipeError):
        sock.close()
        if greetings == 1:
            raise
    except BaseException:
        sock.close()
        raise
    else:
        return connection
    return _greeted(path, bridge, greetings=greetings - 1)


@contextmanager
def connected(endpoint: Endpoint, bridge: str) -> Iterator[Connection]:
    """Connect for the time of a `with`. Raises, also from within the `with`: BridgeMissing if there is no socket of
    this name, MalformedOpenFlow if the peer sent something else, OpenFlowVersionDisabled if the bridge does not allow
    OpenFlow 1.4, SwitchUnreachable if ovs-vswitchd does not answer in time or the connection is lost."""
    target = endpoint.management(bridge)
    try:
        with closing(_greeted(target.removeprefix("unix:"), bridge)) as connection:
            yield connection
    except WireError as error:
        raise MalformedOpenFlow(f"{target}: {error}") from None
    except TimeoutError:
        raise SwitchUnreachable(target=target, reason=_SILENT) from None
    except OSError as error:
        raise lift_lost(error.strerror or str(error), endpoint=endpoint, bridge=bridge) from None
