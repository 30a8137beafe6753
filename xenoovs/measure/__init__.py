"""Experiments: a load on a bed of machines, samples of what came through, and what they mean."""
