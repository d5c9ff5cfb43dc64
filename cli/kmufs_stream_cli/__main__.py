"""python -m kmufs_stream_cli"""

import sys

from kmufs_stream_cli.app import main

sys.exit(main())
