"""Takes the lab out of the guest, as if it had never been built: `python -m tests.nic.guest.unplug NAME`."""

from __future__ import annotations

import sys

from tests.nic.guest import ovs as switch
from xenoovs.lab.host import delete_namespace, kill_and_wait, processes_in
from xenoovs.lab.lab import open_lab
from xenoovs.switch.process import run


def main() -> None:
    """The namespace of the switch is the guest's own: only its name goes."""
    lab = open_lab(sys.argv[1])
    switch.stop_ovs(lab.ovs, bridge=lab.topology.bridge)
    for namespace in lab.topology.namespaces:
        if namespace != lab.topology.switch_namespace:
            kill_and_wait(processes_in(namespace))
        delete_namespace(namespace)
    run(["rmmod", "eswitch"])
    for fabric in lab.topology.bridges[1:]:
        run(["ip", "link", "delete", fabric.name])


if __name__ == "__main__":
    main()
