"""Bundles of OpenFlow 1.4, which apply all flow-mods or none (OpenFlow Switch Specification 1.4.0, 7.3.9)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from xenoovs.errors import NotEncodable, StandingBy, SwitchError
from xenoovs.openflow.bundle import Bundle, FlowMod
from xenoovs.openflow.render import render_actions, render_match
from xenoovs.openflow.wire.bundle import BundleControl, BundleStep, encode_bundle
from xenoovs.openflow.wire.codec import encode
from xenoovs.openflow.wire.echo import BarrierRequest
from xenoovs.openflow.wire.error import Error
from xenoovs.openflow.wire.frame import HEADER
from xenoovs.openflow.wire.kinds import BARRIER_REPLY, BUNDLE_CONTROL, ERROR
from xenoovs.switch.openflow.exchange import Exchange, error_of
from xenoovs.switch.stderr import rejected

_PIECE_BYTES = 1 << 16
_COMMIT_S, _COMMIT_PER_FLOW_S = 15.0, 0.002
"""A commit of 16,000 flows takes a tenth of a second on a PC; a busy BlueField may be some ten times slower."""

_IS_SLAVE = "OFPBRC_IS_SECONDARY"
"""Open vSwitch calls OFPBRC_IS_SLAVE so since 2.15."""


def send_bundle(exchange: Exchange, bundle: Bundle, *, ofports: Mapping[str, int]) -> None:
    """Apply all flow-mods or none. After SwitchUnreachable read the tables: it may have happened, as a whole.

    Args:
        exchange: of a connection on which OpenFlow 1.4 was agreed.
        bundle: at least one flow-mod.
        ofports: port numbers by the names that the flows use.

    Raises:
        BundleRejected: the switch refused a flow-mod or the bundle.
        NotEncodable: a flow has no bytes in OpenFlow 1.4; nothing was changed.
        StandingBy: another controller is master.
        SwitchUnreachable, WireError: the connection is lost, or what came is no OpenFlow.
    """
    first = exchange.take_xids(len(bundle) + 2)
    messages = encode_bundle(bundle, bundle_id=first, first_xid=first, ofports=ofports)
    timeout_s = _COMMIT_S + _COMMIT_PER_FLOW_S * len(bundle)
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
    if not refusals:
        exchange.send(next(messages))
        refusals = _refusals(exchange, last_xid=first + len(bundle) + 1, timeout_s=timeout_s)
    elif first not in refusals:
        _discard(exchange, bundle_id=first)
    if refusals:
        raise _refusal(exchange.bridge, bundle, refusals, first_xid=first)


def is_slave_error(error: Error) -> bool:
    """Return whether another controller is master, which alone may change flows (OpenFlow 1.4.0, 6.3.5)."""
    return error.name == _IS_SLAVE


def describe_mod(mod: FlowMod) -> str:
    """Return a flow-mod as ovs-ofctl shows one that was refused."""
    flow = mod.flow
    table = f"table:{flow.table} " if flow.table else ""
    match = render_match(flow.match)
    key = f"priority={flow.priority}{',' if match else ''}{match}"
    return f"{mod.command.name} {table}{key} actions={render_actions(flow.actions)}"


def _pieces(messages: Iterable[bytes]) -> Iterator[bytes]:
    """Join messages to larger pieces: a call of send(2) for each flow-mod would take longer than all the rest."""
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
    return _refusals(exchange, last_xid=xid, timeout_s=timeout_s)


def _discard(exchange: Exchange, *, bundle_id: int) -> None:
    xid = exchange.take_xids(1)
    exchange.send(encode(BundleControl(bundle_id, BundleStep.DISCARD_REQUEST), xid=xid))
    _refusals(exchange, last_xid=xid, timeout_s=_COMMIT_S)


def _refusals(exchange: Exchange, *, last_xid: int, timeout_s: float) -> dict[int, Error]:
    """Collect errors by transaction id until `last_xid` is answered; of several for one id the first."""
    refusals: dict[int, Error] = {}
    while True:
        frame = exchange.receive(timeout_s=timeout_s)
        _, kind, _, xid = HEADER.unpack_from(frame)
        if kind == ERROR:
            refusals.setdefault(xid, error_of(frame))
        if xid == last_xid and kind in (ERROR, BARRIER_REPLY, BUNDLE_CONTROL):
            return refusals


def _refusal(bridge: str, bundle: Bundle, refusals: dict[int, Error], *, first_xid: int) -> SwitchError:
    if any(map(is_slave_error, refusals.values())):
        return StandingBy(bridge=bridge)
    about = [xid for xid in sorted(refusals) if 0 < xid - first_xid <= len(bundle)]
    if about:
        return rejected(bridge, refusals[about[0]].name, describe_mod(bundle.mods[about[0] - first_xid - 1]))
    xid, error = sorted(refusals.items())[0]
    step = "the opening" if xid == first_xid else "the commit"
    return rejected(bridge, error.name, f"{step} of a bundle of {len(bundle)} flow-mods")
