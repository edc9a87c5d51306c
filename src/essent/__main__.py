"""`python -m essent`: the command line."""

import sys

from essent.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
