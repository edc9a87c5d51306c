"""Is on the path of worker processes that are to die: the first one to claim it ends at a counted audit event.

`DYING` is a JSON object:
    at: the number of the event, from 1; 0 counts only.
    work: count from the first file of a part on, not from the start of the interpreter.
    victims: "worker", "parent" (the process that started it), "both".
    folder: where `claimed` is made by the worker that is to die, and `counted` holds what a whole worker counted.
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
        if not counting:
            if event != "os.mkdir" or "part-" not in str(arguments[0]):
                return
            counting = True
        with lock:
            count += 1
            here = count
        if here == at:
            if victims in ("parent", "both"):
                os.kill(os.getppid(), signal.SIGKILL)
            if victims in ("worker", "both"):
                os.kill(os.getpid(), signal.SIGKILL)
        if not at and (event, work) in _ENDS:
            with open(os.path.join(folder, "counted"), "w", encoding="utf-8") as file:
                file.write(str(here))

    sys.addaudithook(hook)


_ENDS = {("os.rename", True), ("os.mkdir", False)}  # what a whole worker raises while it works, and begins to


if "DYING" in os.environ and "--multiprocessing-fork" in sys.orig_argv:
    _plan = json.loads(os.environ["DYING"])
    try:
        os.close(os.open(os.path.join(_plan["folder"], "claimed"), os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        pass
    else:
        _arm(**_plan)
