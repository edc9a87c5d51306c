"""`python -m essent`: the command line."""

import sys

from essent.cli.app import main

sys.exit(main())
