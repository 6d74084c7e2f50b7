"""Environment variables by which commands tell the generated tests what to run."""

SPECS = "BARACUDA_TEST_SPECS"  # folder of specs, package of their plans, ops (all if empty)
PACKAGE, OPS = "BARACUDA_TEST_PACKAGE", "BARACUDA_TEST_OPS"
DEVICE = "BARACUDA_TEST_DEVICE"  # "host", "check" (the host device in check mode), "coverage" or "cuda"
COVERAGE = "BARACUDA_TEST_COVERAGE"  # folder where kernels count the branches they take
REPRO = "BARACUDA_TEST_REPRO"  # folder where tests leave a bundle of what fails
SAMPLE = "BARACUDA_TEST_SAMPLE"  # a word that picks a sample of kernels; without it everything in `verify.table` runs
FIRST = "BARACUDA_TEST_FIRST"  # ops that a sample takes before others: those that a change is of
