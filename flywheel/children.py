"""Commands of ours as processes that end when we do, in whatever way that is."""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None  # loaded here: nothing may be loaded after a fork


def start(command: Sequence[str], **options: Any) -> "subprocess.Popen[str]":
    """Start a command in text mode. On Linux it is ended, as by `kill`, when the thread that started it ends.

    A killed turn would otherwise leave a training behind, which the same command would then make a second time.
    """
    parent = os.getpid()

    def bind() -> None:
        if _LIBC is not None:
            _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != parent:  # it ended before we were bound to it
                os._exit(1)

    return subprocess.Popen(command, text=True, preexec_fn=bind, **options)  # it takes no lock
