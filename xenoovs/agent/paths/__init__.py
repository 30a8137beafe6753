"""Adaptive routing: paths of tunnels are probed, and blocks leave those that are congested or dead.

frame.py     probes, answers and ICMP quotes as bytes, and source ports that take different paths; pure
score.py     rounds under way, and what the last ones say of each path; pure
decide.py    which blocks move, by these scores; pure, chance is handed in
devices.py   packet sockets with time stamps of the kernel, and the MACs of routers
search.py    when these are looked for, and the search
remote.py    one remote: its rounds, scores, blocks, and what is logged of them
mover.py     the loop: probe, decide, place
views.py     what operators see of it, and why
"""
