"""On the path of worker processes that are to die: they end themselves when they start, or at a counted audit event.

`DYING` is a folder in which one worker claims to be the one that dies; "": all die.
`DYING_AT`, such as "os.mkdir 30": at the event of that number, from the first one of that kind for a part on;
"start 30": from the start of the interpreter on.
"""

import os
import signal
import sys
from threading import Lock


def die_at(first, at):
    lock, count, counting = Lock(), 0, first == "start"

    def hook(event, arguments):
        nonlocal count, counting
        counting = counting or (event == first and "part-" in str(arguments[0]))
        if counting:
            with lock:
                count += 1
                number = count
            if number == at:  # os.kill is an event, too: not with the lock
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


if "DYING" in os.environ and "--multiprocessing-fork" in sys.orig_argv:
    try:
        if os.environ["DYING"]:
            os.close(os.open(os.path.join(os.environ["DYING"], "claimed"), os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        pass
    else:
        if "DYING_AT" not in os.environ:
            os.kill(os.getpid(), signal.SIGKILL)
        first, at = os.environ["DYING_AT"].split()
        die_at(first, int(at))
