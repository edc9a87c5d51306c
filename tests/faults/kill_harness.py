"""Ends a process at every call that changes the file system, and looks at what is left.

A parent that has everything imported and loaded forks a child for each point; `kill_shim.c`, which the parent was
started with, ends the child there. Run as a program, this compiles the shim and starts pytest with it:

    python tests/faults/kill_harness.py [arguments of pytest]
"""

import ctypes
import functools
import math
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

KILLED = 137  # the status of a child that the shim has ended
SECONDS = 300  # after which a child is taken to hang
EVERY = os.environ.get("ESSENT_FAULTS_MOST") == "all"  # every point of every test: an hour and more
SHIM, MARK = Path(__file__).with_name("kill_shim.c"), "ESSENT_KILL_SHIM"
WITHOUT = f"run it under the shim: python {Path(__file__).name} [arguments of pytest], or make check-faults"

Tree = dict[str, str] | None  # relative path -> what is there; None where nothing is


def compile_shim(folder: Path) -> Path:
    """Compile the shim into a folder."""
    library = folder / "kill_shim.so"
    command = [os.environ.get("CC", "cc"), "-O1", "-shared", "-fPIC", "-o", str(library), str(SHIM), "-ldl"]
    subprocess.run(command, check=True)
    return library


def environment(library: Path) -> dict[str, str]:
    """The environment of a process whose children can be killed."""
    return {**os.environ, "LD_PRELOAD": str(library), MARK: str(library), "TOKENIZERS_PARALLELISM": "false"}


@functools.cache
def shim() -> Any:
    """The shim, which this process was started with.

    Raises:
        RuntimeError: it was started without; says how to do so.
    """
    library = ctypes.CDLL(None)
    if MARK not in os.environ or not hasattr(library, "kill_arm"):
        raise RuntimeError(f"This process was started without the shim; {WITHOUT}.")
    library.kill_arm.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_char_p]
    library.kill_arm.restype = library.kill_disarm.restype = None
    library.kill_written.restype = ctypes.c_long
    library.kill_journal.restype = ctypes.c_char_p
    return library


# -- what is there ----------------------------------------------------------------------------------------------------


def tree_of(target: Path) -> Tree:
    """Digests of every file of a folder, and its folders; a file is {"": digest}."""
    if not target.exists():
        return None
    if target.is_file():
        return {"": _digest(target)}
    return {str(path.relative_to(target)): _digest(path) for path in sorted(target.rglob("*"))}


def _digest(path: Path) -> str:
    return "folder" if path.is_dir() else sha256(path.read_bytes()).hexdigest()


def differences(actual: Tree, expected: Tree) -> str:
    """What differs between two trees, for people."""
    before, after = expected or {}, actual or {}
    names = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    return ", ".join(f"{name or 'the file'} differs" for name in names) or "nothing differs"


# -- children ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Child:
    """How a child ended: status, what its action returned, or the traceback; the calls that were counted."""

    status: int
    value: Any = None
    error: str = ""
    calls: tuple[str, ...] = ()
    written: int = 0


def run_in_child(action: Callable[[], Any], folder: Path, kill_at: int = 0, *, half: bool = False) -> Child:
    """Run an action in a forked child, which ends at its `kill_at`-th counted call below a folder.

    Args:
        kill_at: 0 runs it to its end.
        half: end in the middle of the `kill_at`-th call that writes data, instead of before the `kill_at`-th of all.
    """
    library = shim()
    source, sink = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a fork beside threads, which are not used
        number = os.fork()
    if number == 0:
        _be_child(library, action, folder, kill_at, half, sink)
    os.close(sink)
    with os.fdopen(source, "rb") as pipe:
        payload = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])
    if not payload:
        return Child(status, error="" if status == KILLED else f"The child ended with status {status}.")
    value, error, calls, written = pickle.loads(payload)  # noqa: S301  from our own child
    return Child(status, value, error, calls, written)


def _be_child(
    library: Any, action: Callable[[], Any], folder: Path, kill_at: int, half: bool, sink: int
) -> None:  # pragma: no cover
    status, value, error = 1, None, ""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(SECONDS)
    try:
        library.kill_arm(kill_at, int(half), os.fsencode(folder))
        value = action()
        library.kill_disarm()
        status = 0
    except BaseException:
        library.kill_disarm()
        error = traceback.format_exc()
    calls = tuple(library.kill_journal().decode("utf-8", "replace").splitlines())
    payload = pickle.dumps((value, error, calls, library.kill_written()))
    while payload:
        payload = payload[os.write(sink, payload) :]
    os._exit(status)


# -- every point ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class State:
    """What a killed child has left.

    Attributes:
        target: what the action writes.
        call: the counted call it was killed at, "number name path".
        half: killed in the middle of it, not before it.
        old, new: what `read` finds in the target before the action, and after an action that was not killed.
        after_kill: what it finds after the death.
        names: what is beside the target, and the target, after an action that was not killed.
    """

    target: Path
    call: str
    half: bool
    old: Any
    new: Any
    after_kill: Any
    names: frozenset[str]

    def run(self, action: Callable[[], Any]) -> Any:
        """What an action returns on what was left; it runs to its end, in a child.

        Raises:
            AssertionError: it fails, or leaves more around the target than an action that was not killed.
        """
        child = run_in_child(action, self.target.parent)
        assert child.status == 0, f"After a death at {self}:\n{child.error}"
        leftovers = {entry.name for entry in self.target.parent.iterdir()} - self.names
        assert not leftovers, f"After a death at {self} the next run leaves {leftovers}."
        return child.value

    def __str__(self) -> str:
        return f"{'half of ' if self.half else ''}{self.call}"


def killed_at_every_write(
    action: Callable[[], Any],
    target: Path,
    *,
    most: int | None = None,
    read: Callable[[Path], Any] = tree_of,
) -> Iterator[State]:
    """Kill an action at every call that changes something beside or in its target.

    The folder around the target must be the test's own: it is put back to what it was before each child. The action
    runs in children only; it should do the same each time.

    Args:
        action: writes the target.
        target: a file or folder, existing or not.
        most: at most so many points of each kind, spread evenly up to the last call; None, or "all" in the variable
            ESSENT_FAULTS_MOST, is every one.
        read: what of the target is compared; by default every byte. It sees a target that may not exist.

    Raises:
        AssertionError: the action fails, or changes nothing.
    """
    around = target.parent
    with tempfile.TemporaryDirectory(prefix="essent-faults-") as backup:
        before = Path(backup) / "before"
        shutil.copytree(around, before)
        old = read(target)
        for middle in (False, True):
            whole = run_in_child(action, around, half=middle)
            assert whole.status == 0, f"The action fails without being killed:\n{whole.error}"
            assert whole.calls, f"The action changes nothing in {around}."
            new, names = read(target), frozenset(entry.name for entry in around.iterdir())
            step = 1 if EVERY or most is None else math.ceil(len(whole.calls) / most)
            for number in sorted(range(len(whole.calls), 0, -step)):
                _put_back(before, around)
                call = f"{number} {whole.calls[number - 1]}"
                child = run_in_child(action, around, number, half=middle)
                assert child.status in (0, KILLED), f"At {call}:\n{child.error}"
                if child.status == KILLED:  # 0: it made fewer calls this time
                    yield State(target, call, middle, old, new, read(target), names)
            _put_back(before, around)


def _put_back(before: Path, around: Path) -> None:
    shutil.rmtree(around)
    shutil.copytree(before, around)


def check_old_or_new(
    action: Callable[[], Any], target: Path, *, most: int | None = None, read: Callable[[Path], Any] = tree_of
) -> int:
    """Kill an action everywhere: the target is the old one or the new one, and the next run leaves the new one alone.

    Args: those of `killed_at_every_write`.

    Returns:
        The number of points.
    """
    points = 0
    for state in killed_at_every_write(action, target, most=most, read=read):
        points += 1
        assert state.after_kill in (state.old, state.new), (
            f"Killed at {state}, neither the old one nor the new one: {differences(state.after_kill, state.new)}"
        )
        state.run(action)
        assert read(target) == state.new, (
            f"The run after a death at {state} leaves something else: {differences(read(target), state.new)}"
        )
    return points


def check_resumes(action: Callable[[], Any], target: Path, *, most: int) -> Any:
    """Kill an action everywhere: the next run returns what every other one returns, and leaves nothing else.

    Args: those of `killed_at_every_write`.

    Returns:
        What it returns.
    """
    results = []
    for state in killed_at_every_write(action, target, most=most):
        results.append(state.run(action))
        assert results[-1] == results[0], f"Killed at {state}: the next run ends elsewhere."
    assert results
    return results[0]


def main(arguments: list[str]) -> int:
    """Start pytest under the shim."""
    with tempfile.TemporaryDirectory(prefix="essent-faults-") as folder:
        library = compile_shim(Path(folder))
        return subprocess.run([sys.executable, "-m", "pytest", *arguments], env=environment(library)).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
