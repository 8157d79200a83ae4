"""A stand-in for a broker: takes the lock as one does, notes what it found, and serves nobody."""

import fcntl
import json
import signal
import sys
import time
from pathlib import Path

log_dir, note = Path(sys.argv[1]), Path(sys.argv[2])
with (log_dir / ".lock").open("a+b") as lock:
    fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    sizes = {str(path.relative_to(log_dir)): path.stat().st_size for path in log_dir.glob("*/*.log")}
    note.write_text(json.dumps({"monotonic": time.monotonic(), "sizes": sizes}))
    signal.sigwait({signal.SIGTERM})
