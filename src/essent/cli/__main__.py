"""`python -m essent.cli`."""

import sys

from essent.cli.app import main

sys.exit(main())
