"""Lets `python -m resnas.cli` work."""

from resnas.cli import main

if __name__ == "__main__":
    main()
