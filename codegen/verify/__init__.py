"""Tests that follow from a spec: the oracle, the bounds, hostile memory, and every refusal the spec declares."""
