"""`python -m dismix`, for source trees that are not installed."""

from dismix.cli import main

if __name__ == "__main__":
    main()
