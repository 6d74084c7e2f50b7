"""Mutation testing: plant one defect at a time in kernels and plans, and see whether the spec-driven tests fail.

`mutants` lists the defects, `kernel_trial` and `plan_trial` judge one, `run` judges many.
"""
