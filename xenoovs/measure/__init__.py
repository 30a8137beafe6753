"""Experiments: send a load over a bed of machines, store samples of what arrived, and judge them."""
