"""Arrays of callers: their types, strides, memory and checks."""
