"""An application of os-ken that xenoovs does not know: it prints what it observes, one JSON array a line."""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import json
import sys
from typing import Any

from os_ken.base.app_manager import OSKenApp
from os_ken.controller import ofp_event
from os_ken.controller.handler import CONFIG_DISPATCHER, DEAD_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
from os_ken.lib import hub
from os_ken.ofproto import ofproto_v1_3
from os_ken.topology import event as topology_event

from xenoovs import ryu_app


def say(*words: object) -> None:
    # In one write: the threads of events and of requests print at the same time.
    print(f"{json.dumps(words)}\n", end="", flush=True)


class OtherApp(OSKenApp):  # type: ignore[misc]
    """Of OpenFlow 1.3, as most applications are."""

    OFP_VERSIONS = (ofproto_v1_3.OFP_VERSION,)

    def start(self) -> None:
        super().start()
        self.threads.append(hub.spawn(self._ask))

    def _ask(self) -> None:
        """Send each request of stdin: a line of JSON, its route and values."""
        for line in sys.stdin:
            reply = self.send_request(ryu_app.XenoovsRequest(*json.loads(line)))
            say("reply", reply.status, reply.document)

    @set_ev_cls(ryu_app.EventBackendChanged)
    def backend(self, event: ryu_app.EventBackendChanged) -> None:
        say("backend", event.bridge, event.service, event.backend, event.reason, event.number)

    @set_ev_cls(ryu_app.EventServiceChanged)
    def service(self, event: ryu_app.EventServiceChanged) -> None:
        say("service", event.bridge, event.service, event.kind)

    @set_ev_cls(ryu_app.EventProgramApplied)
    def program(self, event: ryu_app.EventProgramApplied) -> None:
        say("program", event.bridge, event.flow_mods)

    @set_ev_cls(ryu_app.EventOffloadSampled)
    def sampled(self, event: ryu_app.EventOffloadSampled) -> None:
        say("sample", event.bridge)

    @set_ev_cls(topology_event.EventSwitchEnter)
    def entered(self, event: Any) -> None:
        say("enter", event.switch.dp.id)
        if isinstance(event.switch.dp, ryu_app.OwnedDatapath):
            say("ports", [port.name.decode() for port in event.switch.ports])
            say("sent", event.switch.dp.send_msg(None))

    @set_ev_cls(topology_event.EventSwitchLeave)
    def left(self, event: Any) -> None:
        say("leave", event.switch.dp.id)

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
        # The last byte of the source address.
        say("packet", event.msg.datapath.id, event.msg.match["in_port"], event.msg.data[29])
