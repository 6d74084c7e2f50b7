"""PTX on the CPU: a model of its instructions runs what NVRTC compiles, GPU-only branches of headers included."""
