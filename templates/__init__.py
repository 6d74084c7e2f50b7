"""One Jinja template per kernel family: it loops and prints, it decides nothing."""
