"""On the path of worker processes that are to die: one of them, or all, end themselves at a counted audit event.

`DYING` is a JSON object:
    at: the number of the event, from 1; 0: none dies, and `counted` in the folder says how many a start has.
    since: count from the first os.mkdir or os.rename of a part on; null: from the start of the interpreter on.
    victims: any of "worker" and "parent", the process that started it.
    folder: its file `claimed` is made by the worker that dies; None: all die.
"""

import json
import os
import signal
import sys
from threading import Lock


def _arm(at, since, victims, folder):
    lock, count, counting = Lock(), 0, since is None

    def hook(event, arguments):
        nonlocal at, count, counting
        of_a_part = event in ("os.mkdir", "os.rename") and "part-" in str(arguments[0])
        counting = counting or (of_a_part and event == since)
        if not counting:
            return
        with lock:
            count += 1
            number = count
        if number == at:
            for process in (os.getppid(), os.getpid()):
                if ("worker" if process == os.getpid() else "parent") in victims:
                    os.kill(process, signal.SIGKILL)
        if not at and of_a_part:  # the first one
            at = -1
            with open(os.path.join(folder, "counted"), "w", encoding="utf-8") as file:
                file.write(str(number))

    sys.addaudithook(hook)


if "DYING" in os.environ and "--multiprocessing-fork" in sys.orig_argv:
    _plan = json.loads(os.environ["DYING"])
    try:
        if _plan["folder"] is not None:
            os.close(os.open(os.path.join(_plan["folder"], "claimed"), os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        pass
    else:
        _arm(**_plan)
