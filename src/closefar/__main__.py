"""``python -m closefar`` is the command line."""

from closefar.cli import main

if __name__ == "__main__":
    main()
