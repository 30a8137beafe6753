"""The codec of openflow/wire beside the message objects of os-ken: the same 16,000 flows as messages and back."""

from __future__ import annotations

import gc
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from scripts.bench.configs import large_config
from scripts.bench.measure import Row
from tests.openflow_replies import flows_reply
from xenoovs.compile.program import compile_config
from xenoovs.model.load import parse_config
from xenoovs.openflow.flow import Command, Flow, FlowMod, ObservedFlow
from xenoovs.openflow.wire.flow import encode_mods
from xenoovs.openflow.wire.frame import HEADER
from xenoovs.openflow.wire.message import decode_flows

T = TypeVar("T")

_FLOWS_A_MESSAGE = 300
_OFPORTS = {"p0": 1, "p1": 2}
_NAMES = {number: name for name, number in _OFPORTS.items()}


def rows() -> Iterator[Row]:
    """CPU time of this process, each once: other work on the machine does not count."""
    with tempfile.TemporaryDirectory() as name:
        text = large_config(Path(name)).read_bytes()
    mods = [FlowMod(Command.ADD, flow) for flow in compile_config(parse_config(text, file="large.yaml")).flows]
    theirs = _OsKen()
    packed, encoding = _timed(lambda: list(encode_mods(mods, first_xid=1, ofports=_OFPORTS)))
    read = [theirs.decode_mod(message) for message in packed]
    again, their_encoding = _timed(lambda: [theirs.encode_mod(message) for message in read])
    if list(map(len, again)) != list(map(len, packed)):
        raise RuntimeError("os-ken makes other flow-mods of the same")
    dump = list(_dump(mod.flow for mod in mods))
    found, decoding = _timed(lambda: [tuple(decode_flows(message, _NAMES)) for message in dump])
    seen, their_decoding = _timed(lambda: [theirs.decode_stats(message) for message in dump])
    if list(map(len, found)) != list(map(len, seen)):
        raise RuntimeError("os-ken reads other flows in the same dump")
    yield Row(f"flow-mods to bytes, {len(mods)} of them (CPU)", encoding, "s")
    yield Row("  / message objects of os-ken", encoding / their_encoding, "x", 0.25)
    yield Row("a dump of these flows from bytes (CPU)", decoding, "s")
    yield Row("  / message objects of os-ken", decoding / their_decoding, "x", 1.0)


def _dump(flows: Iterable[Flow]) -> Iterator[bytes]:
    """As a switch lists them: messages of some 300 flows."""
    observed = [ObservedFlow(flow, 1000, 100_000, 10.0) for flow in flows]
    for start in range(0, len(observed), _FLOWS_A_MESSAGE):
        yield flows_reply(observed[start : start + _FLOWS_A_MESSAGE], _OFPORTS)


class _OsKen:
    """Its messages of OpenFlow 1.4."""

    def __init__(self) -> None:
        os.environ.setdefault("OSKEN_HUB_TYPE", "native")
        import_module("os_ken.base.app_manager")
        self._parser: Any = import_module("os_ken.ofproto.ofproto_v1_4_parser")
        self._datapath = import_module("os_ken.ofproto.ofproto_protocol").ProtocolDesc(version=5)

    def decode_stats(self, message: bytes) -> Any:
        """The flows of a part of a dump."""
        parse = self._parser.OFPMultipartReply.parser
        return parse(self._datapath, *HEADER.unpack_from(message), bytearray(message)).body

    def decode_mod(self, message: bytes) -> Any:
        return self._parser.OFPFlowMod.parser(self._datapath, *HEADER.unpack_from(message), bytearray(message))

    def encode_mod(self, read: Any) -> bytes:
        """As an application does it: a match, a flow-mod around it, and its bytes. The actions are there already."""
        match = self._parser.OFPMatch(**dict(read.match.items()))
        mod = self._parser.OFPFlowMod(
            self._datapath,
            cookie=read.cookie,
            table_id=read.table_id,
            priority=read.priority,
            match=match,
            instructions=read.instructions,
        )
        mod.serialize()
        packed: bytes = mod.buf
        return packed


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    # As timeit does: which of both a collection meets is chance.
    gc.collect()
    gc.disable()
    try:
        begun_s = time.process_time()
        done = work()
        return done, time.process_time() - begun_s
    finally:
        gc.enable()
