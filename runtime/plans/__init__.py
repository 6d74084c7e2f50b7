"""What all plans share: descriptors, SKUs, selection, prepared calls."""
