"""What is found while people judge: a fit in a process of its own, how good it is, and what to ask next."""
