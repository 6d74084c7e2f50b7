"""The generator: reads specs, takes every decision, prints kernels and plans."""

import time

STARTED = time.time()  # before any other module here is read
