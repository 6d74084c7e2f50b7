"""Load: many threads and streams run kernels over and over, which keep their bits, and the process its size."""
