"""Adaptive routing: paths of tunnels are probed, and blocks leave those that are congested or dead.

frame.py     probes, answers and ICMP quotes as bytes, and source ports that take different paths; pure
score.py     open rounds, and the scores of paths by the last ones; pure
decide.py    which blocks move, by these scores; pure, random choices are an argument
devices.py   packet sockets with time stamps of the kernel, and the MACs of next hops
search.py    searches for source ports on different paths
remote.py    one remote: its rounds, scores, blocks and log events
mover.py     the loop: probe, decide, move blocks
views.py     the views for operators, with reasons
"""
