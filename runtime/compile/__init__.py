"""From a kernel's source to machine code: NVRTC, headers, cached cubins."""
