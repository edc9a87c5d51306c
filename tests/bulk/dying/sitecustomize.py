"""On the path of worker processes that are to die when they start.

`DYING` is a folder in which one worker claims to be the one that dies; "": all die.
"""

import os
import signal
import sys

if "DYING" in os.environ and "--multiprocessing-fork" in sys.orig_argv:
    try:
        if os.environ["DYING"]:
            os.close(os.open(os.path.join(os.environ["DYING"], "claimed"), os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        pass
    else:
        os.kill(os.getpid(), signal.SIGKILL)
