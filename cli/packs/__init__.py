"""Commands that make packs: machine code to run without a compiler."""
