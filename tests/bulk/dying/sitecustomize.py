"""On the path of worker processes that are to die: one of them, or all, end themselves at a counted audit event.

`DYING` is a JSON object:
    at: the number of the event, from 1; 0: none dies, and `counted` in the folder says how many there were at the end
        of a start, or of the last part.
    work: count from the first file of a part on; else from the start of the interpreter to there.
    victims: any of "worker" and "parent", the process that started it.
    folder: its file `claimed` is made by the worker that dies; None: all die.
"""

import json
import os
import signal
import sys
from threading import Lock


def _arm(at, work, victims, folder):
    lock, count, counting = Lock(), 0, not work

    def hook(event, arguments):
        nonlocal count, counting
        begins = event == "os.mkdir" and "part-" in str(arguments[0])
        counting = counting or begins
        if not counting:
            return
        with lock:
            count += 1
            here = count
        if here == at:
            for process in (os.getppid(), os.getpid()):
                if ("worker" if process == os.getpid() else "parent") in victims:
                    os.kill(process, signal.SIGKILL)
        if not at and (event == "os.rename" if work else begins):
            with open(os.path.join(folder, "counted"), "w", encoding="utf-8") as file:
                file.write(str(here))

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
