"""Every table and figure of the paper, regenerated: ``python paper`` in a checkout."""
