"""The command line: `main` parses arguments, one module per command does the work."""

import time

STARTED = time.time()  # before any other module of ours is read
