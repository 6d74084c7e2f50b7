"""Plans against torch: random problems from all that an op allows, judged by what torch computes in float64."""
