"""One problem run once: arrays placed in guarded memory, the plan called, its outputs judged."""
