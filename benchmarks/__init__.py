"""Speed of plans beside other libraries: cases from specs, interleaved timing, reports."""
