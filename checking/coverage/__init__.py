"""Which branches of device code the spec-driven tests take on the host device."""
