"""How fast plans are beside their peers: cases from specs, times of all contestants in one run, pages of them."""
