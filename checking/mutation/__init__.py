"""Mutation testing: defects put into generated kernels and plans one at a time, to see whether the spec's tests object.

`operators` and `python_operators` say what a defect is, `mutants` which there are, `bench` judges them.
"""
