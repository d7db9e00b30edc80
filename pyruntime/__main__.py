"""`python -m pyruntime`: see `pyruntime.cli`."""

import sys

from pyruntime.cli import main

sys.exit(main())
