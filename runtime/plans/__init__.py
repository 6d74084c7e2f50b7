"""What all plans share: descriptors, SKUs, selection, and prepared calls."""
