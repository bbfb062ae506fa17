"""How each peer is called, one module for each environment or package; imported in the peer's interpreter only.

A module has `PEERS`, a function from the training data to `Learned` for each name, and may have `warm_up`, which is
called before anything is measured.
"""
