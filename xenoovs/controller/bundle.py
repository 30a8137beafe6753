"""Flows by a bundle of OpenFlow 1.4: all flow-mods or none (OpenFlow Switch Specification 1.4.0, 7.3.9)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from xenoovs.controller.frames import BARRIER_REPLY, BUNDLE_CONTROL, ERROR, HEADER
from xenoovs.controller.line import Exchange, Line
from xenoovs.controller.notices import error_of, is_slave_error
from xenoovs.errors import NotEncodable, StandingBy, SwitchError
from xenoovs.openflow.action import Output
from xenoovs.openflow.bundle import Bundle, FlowMod
from xenoovs.openflow.render import render_actions, render_match
from xenoovs.openflow.text import render_name
from xenoovs.openflow.wire.bundle import BundleControl, BundleStep, encode_bundle
from xenoovs.openflow.wire.codec import encode
from xenoovs.openflow.wire.echo import BarrierRequest
from xenoovs.openflow.wire.error import Error
from xenoovs.switch.stderr import rejected

_PIECE_BYTES = 1 << 16
_COMMIT_S, _COMMIT_PER_FLOW_S = 15.0, 0.002
"""A commit of 16,000 flows takes a tenth of a second on a PC; a busy BlueField may be some ten times slower."""


def send_bundle(line: Line, bundle: Bundle) -> None:
    """All flow-mods or none. Raises BundleRejected, StandingBy, SwitchUnreachable.

    After SwitchUnreachable the change may or may not have happened, as a whole: read the tables again.
    """
    with line.exchange() as exchange:
        first = exchange.take_xids(len(bundle) + 2)
        messages = _encoded(line, bundle, first_xid=first)
        commit_s = _COMMIT_S + _COMMIT_PER_FLOW_S * len(bundle)
        for piece in _pieces(islice(messages, len(bundle) + 1)):
            exchange.send(piece)
        # A switch refuses single flow-mods and would still commit the others: ask for all it has to say before that.
        refusals = _barrier(exchange, timeout_s=commit_s)
        if not refusals:
            exchange.send(next(messages))
            refusals = _answer(exchange, last_xid=first + len(bundle) + 1, timeout_s=commit_s)
        elif first not in refusals:
            _discard(exchange, bundle_id=first)
        if refusals:
            raise _refusal(line, bundle, refusals, first_xid=first)


def _encoded(line: Line, bundle: Bundle, *, first_xid: int) -> Iterator[bytes]:
    """Open, flow-mods, commit. Raises BundleRejected before anything is sent."""
    numbers = line.numbers
    try:
        return iter(tuple(encode_bundle(bundle, bundle_id=first_xid, first_xid=first_xid, ofports=numbers)))
    except NotEncodable as unknown:
        raise rejected(line.bridge, None, _explain(bundle, numbers) or str(unknown)) from None


def _pieces(messages: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in larger pieces: a call of send(2) for each flow-mod would take longer than all the rest."""
    piece = bytearray()
    for message in messages:
        piece += message
        if len(piece) >= _PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
    yield bytes(piece)


def _barrier(exchange: Exchange, *, timeout_s: float) -> dict[int, Error]:
    xid = exchange.take_xids(1)
    exchange.send(encode(BarrierRequest(), xid=xid))
    return _answer(exchange, last_xid=xid, timeout_s=timeout_s)


def _discard(exchange: Exchange, *, bundle_id: int) -> None:
    xid = exchange.take_xids(1)
    exchange.send(encode(BundleControl(bundle_id, BundleStep.DISCARD_REQUEST), xid=xid))
    _answer(exchange, last_xid=xid, timeout_s=_COMMIT_S)


def _answer(exchange: Exchange, *, last_xid: int, timeout_s: float) -> dict[int, Error]:
    """What was refused, by transaction id, up to the answer to `last_xid`. Of several for one the first."""
    refusals: dict[int, Error] = {}
    while True:
        frame = exchange.receive(timeout_s=timeout_s)
        _, kind, _, xid = HEADER.unpack_from(frame)
        if kind == ERROR:
            refusals.setdefault(xid, error_of(frame))
        if xid == last_xid and kind in (ERROR, BARRIER_REPLY, BUNDLE_CONTROL):
            return refusals


def _refusal(line: Line, bundle: Bundle, refusals: dict[int, Error], *, first_xid: int) -> SwitchError:
    if any(is_slave_error(error) for error in refusals.values()):
        line.is_standby = True
        return StandingBy(bridge=line.bridge)
    about = [xid for xid in sorted(refusals) if 0 < xid - first_xid <= len(bundle)]
    if about:
        return rejected(line.bridge, refusals[about[0]].name, _told(bundle.mods[about[0] - first_xid - 1]))
    xid, error = sorted(refusals.items())[0]
    step = "the opening" if xid == first_xid else "the commit"
    return rejected(line.bridge, error.name, f"{step} of a bundle of {len(bundle)} flow-mods")


def _told(mod: FlowMod) -> str:
    """A flow-mod as ovs-ofctl tells of one that was refused."""
    flow = mod.flow
    table = f"table:{flow.table} " if flow.table else ""
    match = render_match(flow.match)
    key = f"priority={flow.priority}{',' if match else ''}{match}"
    return f"{mod.command.name} {table}{key} actions={render_actions(flow.actions)}"


def _explain(bundle: Bundle, numbers: dict[str, int]) -> str | None:
    """Which port is unknown, in the words of ovs-ofctl."""
    for mod in bundle.mods:
        port = mod.flow.match.in_port
        if port is not None and port not in numbers:
            return f"{_told(mod)} ({render_name(port)}: invalid or unknown port for in_port)"
        for action in mod.flow.actions:
            if isinstance(action, Output) and action.port not in numbers:
                return f"{_told(mod)} ({render_name(action.port)}: output to unknown port)"
    return None
