"""`python -m latentcode` is `latentcode`."""

from latentcode.cli import main

if __name__ == "__main__":
    main()
