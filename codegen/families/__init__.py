"""One folder for each family: what its specs say, the rules they obey, the decisions that make ops of them."""
