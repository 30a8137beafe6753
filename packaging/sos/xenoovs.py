"""A plugin of sos(1), as sos/report/plugins/xenoovs.py: adds a record of Open vSwitch and its NIC to the report."""

from sos.report.plugins import IndependentPlugin, Plugin


class Xenoovs(Plugin, IndependentPlugin):
    short_desc, plugin_name, profiles, commands = (
        "Hardware offload of Open vSwitch",
        "xenoovs",
        ("network",),
        ("xenoovs",),
    )

    def setup(self):
        self.add_cmd_output(f"xenoovs record --for 2s {self.get_cmd_output_path()}/record.tar.gz", timeout=120)
