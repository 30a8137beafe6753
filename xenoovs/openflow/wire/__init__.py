"""OpenFlow 1.4 on the wire (version 0x05) from the side of a controller; pure.

    frame.py    message(kind, body, xid): a whole message; Frames: splits a stream into messages; Reader, errors, HELLO
    message.py  requests to bytes, replies and events to values: ports, counts, bundles, packets, roles, features
    flow.py     flow-mods to bytes, flow statistics to flows; actions, instructions and options
    match.py    matches both ways; learn.py: the action learn() both ways

Messages that only a switch sends have no encoder, those that only a controller sends no decoder.

Flows name ports. `ofports`: number by name, for encoders; `names`: name by number, for decoders. A port without a name
is called by its number, as the dumps of ovs-ofctl are read (`name_of_number` in openflow/text.py).

Unknown parts are preserved: actions as `wire:`, conditions as `oxm:`, instructions as `instruction:`, each with its
bytes in hexadecimal, so that it can be sent back as it came.

Decoders raise WireError (a ParseError) with the offset and what was expected. Encoders raise NotEncodable for a value
that has no bytes: a port without a number, an action or a condition that is only known as text.
"""
