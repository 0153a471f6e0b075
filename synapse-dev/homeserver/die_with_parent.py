"""Runs a Python module so that it cannot outlive the process that started it, even when that one is killed with SIGKILL.

usage: python die_with_parent.py PARENT_PID MODULE [ARGUMENT ...]

Linux tells the kernel (PR_SET_PDEATHSIG); elsewhere a thread looks twice a second whether the parent is still the parent.
"""
import ctypes
import os
import runpy
import signal
import sys
import threading
import time

parent = int(sys.argv[1])


def watch() -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)


if sys.platform == "linux":
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
else:
    threading.Thread(target=watch, daemon=True).start()
if os.getppid() != parent:  # it died before we asked to be told
    sys.exit(1)

sys.argv = sys.argv[2:]
sys.path.pop(0)  # the folder of this file
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
