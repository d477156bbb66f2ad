"""Runs a command that must not outlive whoever started it: `python guardian.py COMMAND...`.

The parent holds the other end of standard input. When that closes, because the parent ended in whatever way, the
command and all that it has started are ended too. It imports nothing of Flywheel, so that it starts at once.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

_PATIENCE = 10.0
"""Seconds between asking the command to end and killing it."""


def main(command: list[str]) -> int:
    """Run the command in a process group of its own until it, or our standard input, ends; its exit code."""
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)

    def end(*_: object) -> None:
        for kind in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, kind)
            deadline = time.monotonic() + _PATIENCE
            while child.poll() is None and time.monotonic() < deadline:
                time.sleep(0.05)

    def watch() -> None:
        while os.read(0, 1 << 16):  # a buffered reader would abort the interpreter at its own end
            pass
        end()

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's; it closes the pipe when it is done
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=end).start())
    threading.Thread(target=watch, daemon=True).start()
    code = child.wait()
    end()  # what it started may still run
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
