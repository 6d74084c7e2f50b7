"""What is drawn: changed specs, payloads, random programs."""
