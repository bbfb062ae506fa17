"""Compare closefar with everything a user could pick instead, on the same data, in one run.

    python benchmarks/peers [--work pairs,classes] [--peers ITML,closefar] [--seeds 5] [--jobs 2] [--quick] ...

Records of all trials are saved in results.json as they come; a second call goes on where the first stopped.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # adapters and works know this package as `peers`
    from peers.options import main

    sys.exit(main())
