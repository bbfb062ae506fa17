"""The file of judgements and the table of points: reading, writing, and that nothing is lost."""
