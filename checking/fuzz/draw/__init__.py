"""Random input: changed specs, payloads, random programs."""
