"""What the command line does, a module per command; nothing here reads arguments."""
