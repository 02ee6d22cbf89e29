"""Finds the shared library and calls its one function.

It uses ctypes only and needs no compiler and no other package. Every function of trainyard runs the
command of that name and returns the same document.
"""

import ctypes
import os
import shutil
import threading

_FILE = "libtrainyard.so"
_NOTE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p)
_STOP = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p)
_lock = threading.Lock()
_loaded = None


class _Listener(ctypes.Structure):
    _fields_ = [("note", _NOTE), ("should_stop", _STOP), ("context", ctypes.c_void_p)]


class Error(Exception):
    """A failure, with the program's message. `exit_code` is the exit code of the program."""

    exit_code = 1


class UsageError(Error, ValueError):
    """An unknown option, or an invalid value."""

    exit_code = 2


class InputError(Error, ValueError):
    """A file, a workload or a cluster that cannot be read."""

    exit_code = 3


class NoPlanError(Error):
    """No plan satisfies the question."""

    exit_code = 4


class LibraryError(ImportError):
    """The shared library or one of its dependencies is missing."""


_ERRORS = {kind.exit_code: kind for kind in (Error, UsageError, InputError, NoPlanError)}
_INTERRUPTED = 130


def _places():
    """Places of the library, the nearest first: its path, and the folder of its data or None."""
    named = os.environ.get("TRAINYARD_LIBRARY")
    if named:
        yield named, None
        return
    here = os.path.dirname(os.path.abspath(__file__))
    yield os.path.join(here, _FILE), os.path.join(here, "data")
    # An installation: PREFIX/lib/python3.X/site-packages/trainyard (dist-packages on Debian), and
    # PREFIX/lib/trainyard/python.
    prefix = os.path.normpath(os.path.join(here, *[os.pardir] * 4))
    yield os.path.join(prefix, "lib", "trainyard", "python", _FILE), os.path.join(prefix, "share", "trainyard")
    source = os.path.dirname(os.path.dirname(here))
    for build in ("release", "ci", "planner"):
        yield os.path.join(source, "build", build, _FILE), source
    program = shutil.which("trainyard")
    if program:
        prefix = os.path.dirname(os.path.dirname(os.path.realpath(program)))
        yield os.path.join(prefix, "lib", "trainyard", "python", _FILE), os.path.join(prefix, "share", "trainyard")
    yield _FILE, "/usr/share/trainyard"


def _open(path):
    # igraph links OpenBLAS, which nothing here uses. By default it starts a thread per core when it is
    # loaded.
    before = os.environ.get("OPENBLAS_NUM_THREADS")
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    try:
        return ctypes.CDLL(path)
    finally:
        if before is None:
            del os.environ["OPENBLAS_NUM_THREADS"]
        else:
            os.environ["OPENBLAS_NUM_THREADS"] = before


def _load():
    tried = []
    for path, data in _places():
        if os.path.dirname(path) and not os.path.exists(path):
            tried.append(path + ": not there")
            continue
        try:
            library = _open(path)
        except OSError as error:
            tried.append(str(error))
            continue
        if data is not None and os.path.isdir(data):
            os.environ.setdefault("TRAINYARD_DATA", data)
        worker = os.path.join(os.path.dirname(path), "trainyard-worker")
        if not os.access(worker, os.X_OK):
            worker = shutil.which("trainyard-worker")
        if worker:
            os.environ.setdefault("TRAINYARD_WORKER", worker)
        library.ty_command.argtypes = [
            ctypes.c_int,
            ctypes.POINTER(ctypes.c_char_p),
            ctypes.POINTER(_Listener),
            ctypes.POINTER(ctypes.c_void_p),
            ctypes.POINTER(ctypes.c_void_p),
        ]
        library.ty_command.restype = ctypes.c_int
        library.ty_command_free.argtypes = [ctypes.c_void_p]
        library.ty_command_free.restype = None
        library.ty_command_version.restype = ctypes.c_char_p
        return library
    raise LibraryError(
        "libtrainyard is not found; it needs igraph, cJSON, libxml2, libyaml and libmd of this machine (Debian: "
        "apt-get install libigraph-dev libcjson-dev libxml2-dev libyaml-dev libmd-dev). TRAINYARD_LIBRARY "
        "can name it. Tried:\n  " + "\n  ".join(tried)
    )


def library():
    """The loaded library."""
    global _loaded
    with _lock:
        if _loaded is None:
            _loaded = _load()
    return _loaded


def version():
    """Version of the library."""
    return library().ty_command_version().decode()


def _taken(handle):
    text = ctypes.string_at(handle).decode() if handle else None
    library().ty_command_free(handle)
    return text


def ask(words, progress=None):
    """Runs `trainyard WORDS...` and returns its output as text.

    progress: receives lines on progress. An exception in it, also KeyboardInterrupt, ends the command and
    is raised here.
    """
    raised = []

    def note(_context, line):
        if progress is not None and not raised:
            try:
                progress(line.decode(errors="replace"))
            except BaseException as error:  # exceptions cannot pass through C; raised below
                raised.append(error)

    def should_stop(_context):
        return bool(raised)

    def held(call):
        # Python handles Ctrl-C between two of its instructions, so it may raise in the callback.
        def guarded(context):
            try:
                return call(context)
            except BaseException as error:
                raised.append(error)
                return True

        return guarded

    encoded = [str(word).encode() for word in words]
    array = (ctypes.c_char_p * len(encoded))(*encoded)
    listener = _Listener(_NOTE(note), _STOP(held(should_stop)), None)
    answer, message = ctypes.c_void_p(), ctypes.c_void_p()
    code = library().ty_command(
        len(encoded), array, ctypes.byref(listener), ctypes.byref(answer), ctypes.byref(message)
    )
    text, why = _taken(answer), _taken(message)
    if raised:
        raise raised[0]
    if code == _INTERRUPTED:
        raise KeyboardInterrupt
    if text is None or why is None:
        raise MemoryError("trainyard: memory ran out")
    if code != 0:
        error = _ERRORS.get(code, Error)(why or "trainyard %s ended with code %d" % (words[0], code))
        error.answer = text
        raise error
    return text
