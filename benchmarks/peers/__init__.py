"""Side by side with everything a user could pick instead: `python benchmarks/peers`, or `make bench-peers`."""
