"""What results must be, and how far a kernel's may lie from it."""
