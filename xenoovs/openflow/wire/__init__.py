"""OpenFlow 1.4 on the wire (version 0x05): bytes to values and back, pure. No sockets, no clocks.

Whoever talks to a switch needs these and no other names:

    frame.py     split(buffer: bytes) -> tuple[tuple[bytes, ...], bytes]       whole messages, and the rest of a stream
    codec.py     decode(message: bytes, *, names: Mapping[int, str]) -> Received   Received(version, xid, message)
                 encode(message: Message, *, xid: int, ofports: Mapping[str, int]) -> bytes
    message.py   Message: the closed union of all values below; Unknown(kind, body) for all other messages
    flow_mod.py  encode_flow_mod(mod: FlowMod, *, xid: int, ofports: Mapping[str, int]) -> bytes
    bundle.py    encode_bundle(bundle: Bundle, *, bundle_id: int, first_xid: int, ofports) -> Iterator[bytes]
                     open (first_xid), one message a flow-mod (first_xid + 1 + index), commit (first_xid + 1 + len(bundle))
                 BundleControl(bundle_id, step: BundleStep, flags), BundleAdd(bundle_id, flags, inner: bytes)
    hello.py     Hello(versions: frozenset[int]), common_version(ours, theirs: Received) -> int | None
    echo.py      EchoRequest(data), EchoReply(data), BarrierRequest(), BarrierReply()
    error.py     Error(kind: int, code: int, data: bytes); .name: OFPFMFC_TABLE_FULL ...; .refused_xid
    features.py  FeaturesRequest(), FeaturesReply(datapath_id, buffers, tables, auxiliary_id, capabilities),
                 ConfigRequest(), ConfigReply(flags, miss_send_len), SetConfig(flags, miss_send_len)
    role.py      RoleRequest(role: Role, generation_id), RoleReply(...), RoleStatus(role, reason, generation_id)
    events.py    AsyncRequest(), AsyncReply(masks), SetAsync(masks): which events a controller is told, by role
    port.py      Port(number, name, mac, config, state, properties), PortStatus(reason, port); .link_down, .down
    packet.py    PacketIn(reason, table, cookie, match, data, total_length, buffer_id), PacketOut(in_port, actions, data)
    flow_removed.py  FlowRemoved(key: FlowKey, cookie, reason, packets, bytes, duration_s, idle_timeout, hard_timeout)
    multipart.py DescRequest, FlowStatsRequest, AggregateRequest, TableStatsRequest, PortStatsRequest, PortDescRequest
                 and their replies, each with `more: bool` (another reply with the same xid follows)

Ports are names in all values. `ofports`: number by name, for what is sent; `names`: name by number, for what came. A
number without a name is written as digits, as `ovs-ofctl --names` does, and digits without a port are a number.

Raises: WireError (a ParseError) for bytes that are no message, with the offset and what was expected; NotEncodable for a
value that has no bytes: a port without a number, an action or condition that is only known as text.
"""
