"""Commands that write specs and generated files."""
