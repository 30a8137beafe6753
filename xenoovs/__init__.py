"""Weighted load balancing in the embedded switch of a DPU, by Open vSwitch.

text -> model -> decision -> program -> plan -> bundle; then dump -> values -> evidence -> findings, the way back.
"""

__version__ = "1.0.0"
