"""``python -m adaptive_dp``: the command line."""

import sys

from adaptive_dp.cli.main import main

sys.exit(main())
