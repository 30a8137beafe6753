"""Adaptive routing: paths of tunnels are probed, and blocks leave those that are congested or dead.

frame.py     probes, answers and ICMP quotes as bytes; pure
rounds.py    rounds under way: answers are paired with what was sent; pure
score.py     what the last rounds say of each path; pure
decide.py    which blocks move, by these scores; pure, chance is handed in
port.py      the packet socket on the agent's port, with time stamps of the kernel
discover.py  source ports that the fabric hashes to different paths
mover.py     the loop: probe, decide, place
"""
