"""OpenFlow 1.4 on the wire (version 0x05): bytes to values and back, pure. No sockets, no clocks.

A caller that talks to a switch needs these:

    frame.py       Frames().feed(data: bytes) -> Iterator[bytes]: the whole messages of a stream
                   Hello(versions), versions_of(hello, version=...) -> frozenset[int]
                   EchoRequest, EchoReply, BarrierRequest, BarrierReply
                   Error(kind, code, data): .name such as OFPFMFC_TABLE_FULL, .refused_xid
    message.py     decode(message: bytes, *, names: Mapping[int, str]) -> Received(version, xid, message)
                   encode(message: Message, *, xid: int, ofports: Mapping[str, int]) -> bytes
                   Message: the closed union of the values of all modules here; Unknown(kind, body) for all else
                   encode_bundle(bundle: Bundle, *, bundle_id, first_xid, ofports) -> Iterator[bytes]: open (first_xid),
                   a message for each flow-mod (first_xid + 1 + index), commit; BundleControl, BundleAdd
                   DescRequest, FlowStatsRequest, AggregateRequest, TableStatsRequest, PortStatsRequest, PortDescRequest
                   and their replies; with `more`, another reply of the same xid follows
                   Port (.is_up), PortStatus; numbers_of(ports) and names_of(ports) make the two mappings below
    flow.py        encode_flow_mod(mod: FlowMod, *, xid, ofports) -> bytes; encode_flow_mods for many
                   FlowFilter, FlowRemoved
    switch.py      FeaturesRequest, FeaturesReply, ConfigRequest, ConfigReply, SetConfig
    controller.py  PacketIn, PacketOut; Role, RoleRequest, RoleReply, RoleStatus
                   which events a controller gets: Event, mask_of, AsyncRequest, AsyncReply, SetAsync

Ports are names in flows. `ofports`: number by name, for what is sent; `names`: name by number, for what came. A port
without a name is called by its number, as the dumps of ovs-ofctl are read (`name_of_number` in openflow/text.py).

What is not known is kept, never guessed: actions as `wire:`, conditions as `oxm:`, instructions as `instruction:`, each
with its bytes in hexadecimal, so that it can be sent back as it came.

Raises WireError (a ParseError) for bytes that are no message, with the offset and what was expected; NotEncodable for a
value that has no bytes: a port without a number, an action or a condition that is only known as text.
"""
