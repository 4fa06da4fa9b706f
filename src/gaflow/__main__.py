"""`python -m gaflow`."""

import sys

from gaflow.cli import main

if __name__ == "__main__":
    sys.exit(main())
