"""One YAML file per operation: its mathematics and its guarantees."""
