"""The tour that `baracuda-gen demo` gives."""
