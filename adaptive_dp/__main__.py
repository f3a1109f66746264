"""``python -m adaptive_dp``: the command line."""

import sys

from adaptive_dp.cli import main

sys.exit(main())
