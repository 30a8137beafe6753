"""An application of os-ken that xenoovs does not know: it prints what it observes, one JSON array a line."""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import json
from typing import Any

from os_ken.base.app_manager import OSKenApp
from os_ken.controller import ofp_event
from os_ken.controller.handler import CONFIG_DISPATCHER, DEAD_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
from os_ken.ofproto import ofproto_v1_3


def say(*words: object) -> None:
    print(json.dumps(words), flush=True)


class OtherApp(OSKenApp):  # type: ignore[misc]
    """Of OpenFlow 1.3, as most applications are."""

    OFP_VERSIONS = (ofproto_v1_3.OFP_VERSION,)

    @set_ev_cls(ofp_event.EventOFPStateChange, [CONFIG_DISPATCHER, MAIN_DISPATCHER, DEAD_DISPATCHER])
    def state_changed(self, event: Any) -> None:
        say("state", event.datapath.id, event.state)

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def features(self, event: Any) -> None:
        datapath, parser = event.msg.datapath, event.msg.datapath.ofproto_parser
        say("features", datapath.id)
        actions = [parser.OFPActionOutput(datapath.ofproto.OFPP_CONTROLLER)]
        instructions = [parser.OFPInstructionActions(datapath.ofproto.OFPIT_APPLY_ACTIONS, actions)]
        flow = parser.OFPFlowMod(datapath=datapath, priority=0, match=parser.OFPMatch(), instructions=instructions)
        datapath.send_msg(flow)

    @set_ev_cls(ofp_event.EventOFPPortStatus, MAIN_DISPATCHER)
    def port(self, event: Any) -> None:
        say("port", event.msg.datapath.id, event.msg.desc.name.decode())

    @set_ev_cls(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)
    def packet(self, event: Any) -> None:
        say("packet", event.msg.datapath.id, event.msg.match["in_port"])
