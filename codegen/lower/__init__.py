"""From a checked spec to the op that templates print."""
