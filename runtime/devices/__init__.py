"""The CUDA driver, streams, tensor maps, and which device a name means."""
