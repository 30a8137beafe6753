"""Adaptive routing: paths of tunnels are probed, and blocks leave those that are congested or dead."""
