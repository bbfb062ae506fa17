"""``python -m closefar.experiments`` is ``closefar paper``."""

import sys

from closefar.cli import main

if __name__ == "__main__":
    sys.argv[1:1] = ["paper"]
    main()
