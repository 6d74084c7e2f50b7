"""Arrays of callers: element types, strides, memory and checks."""
