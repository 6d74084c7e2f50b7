"""Runs one problem: arrays in guarded memory, the plan, its outputs."""
