"""The CUDA driver, streams, tensor maps, and devices by name."""
