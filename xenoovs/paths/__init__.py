"""The paths of a DPU: rank them, and combine them until the DPU is saturated."""
