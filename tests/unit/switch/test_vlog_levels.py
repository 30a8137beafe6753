"""`vlog/list` as values, and the modules that log about offload in each version."""

from __future__ import annotations

import pytest

from xenoovs.errors import ParseError
from xenoovs.switch.vlog import ModuleLevel, offload_modules, parse_levels

LIST = """\
                 console    syslog    file
                 -------    ------    ------
bridge             OFF        ERR       INFO
dpif_netlink       OFF        ERR       WARN    (rate limiting disabled)
netdev_offload_tc   OFF       INFO        DBG
"""


def test_levels_of_the_log_file_and_rate_limits() -> None:
    assert parse_levels(LIST) == (
        ModuleLevel("bridge", "INFO", is_rate_limited=True),
        ModuleLevel("dpif_netlink", "WARN", is_rate_limited=False),
        ModuleLevel("netdev_offload_tc", "DBG", is_rate_limited=True),
    )


def test_another_text_is_refused_with_its_line() -> None:
    with pytest.raises(ParseError, match="line 6"):
        parse_levels(LIST + "odd\n")


@pytest.mark.parametrize(
    ("present", "wanted"),
    [
        ("bridge dpif netdev_offload netdev_offload_tc tc tunnel dpif_netlink", "netdev_offload netdev_offload_tc tc"),
        ("dpif_offload dpif_offload_tc dpif_offload_tc_netdev tc stream_tcp", None),
        ("netdev_offload_dpdk dpif_netdev", "netdev_offload_dpdk"),
        ("ovs_doca netdev_doca dpdk", "ovs_doca netdev_doca"),
    ],
)
def test_modules_of_each_version(present: str, wanted: str | None) -> None:
    chosen = offload_modules(ModuleLevel(name, "INFO", is_rate_limited=True) for name in present.split())
    names = [module.name for module in chosen]
    assert set((wanted or "dpif_offload dpif_offload_tc dpif_offload_tc_netdev tc").split()) <= set(names)
    assert not {"bridge", "dpif", "tunnel", "stream_tcp", "dpif_netdev", "dpdk"} & set(names)
