"""Random cases in one boot: rules, limits, refusals and faults (`tests/nic/generated.py`)."""

from __future__ import annotations

from tests.nic.generated import CLIENT, PARTS, Case, CaseRound, generate
from tests.nic.guest import nic
from tests.nic.guest.bench import Bench
from tests.nic.guest.record import Round


def generated(bench: Bench, part: str = "generated") -> None:
    """Each round has its flows, limits and faults, in the same Open vSwitch. `part`: of PARTS."""
    # So that there is a key of IPv4, and an action, that it refuses.
    nic.limit(ip_key="N", vlan="N")
    bench.begin("dns")
    bench.prime()
    bench.send(packets_each=2)
    bench.look("before")
    for round_ in generate()[PARTS[part]]:
        bench.record.rounds.append(_run(bench, round_))


def _run(bench: Bench, round_: CaseRound) -> Round:
    nic.set_faults({})
    nic.limit(**round_.limits)
    bench.replace_extra_flows("".join(f"{case.flow}\n" for case in round_.cases))
    if round_.is_faulty_before:
        nic.set_faults(round_.faults)
    bench.send_frames([case.kind.frame(CLIENT) for case in round_.cases])
    seen = [0]

    def is_stable() -> bool:
        seen.append(bench.megaflows)
        return 0 != seen[-1] == seen[-2]

    bench.wait_until(is_stable, "the number of megaflows is the same twice")
    bench.send_frames([frame for case in round_.cases for frame in _frames(case, case.before)])
    nic.set_faults(round_.faults)
    before = nic.rules()
    frames = [frame for case in round_.cases for frame in _frames(case, case.between)]
    with bench.between_samples(lambda: bench.send_frames(frames)):
        verify = bench.xenoovs("verify-offload", "dns", "--tree", "--output", "json")
    after = nic.rules()
    megaflows, filters = bench.appctl("dpctl/dump-flows", "-m"), bench.filters()
    nic.set_faults({})
    ask = ("--src", CLIENT, "--probe-driver", "--listen", "200ms", "--interval", "0s", "--output", "json")
    return Round(megaflows, filters, before, after, verify, bench.xenoovs("why", "dns", *ask))


def _frames(case: Case, packets: int) -> list[bytes]:
    return [case.kind.frame(CLIENT)] * packets
