"""Plans, simulates and explains distributed training of neural networks.

    import trainyard

    plan = trainyard.plan("gpt2", "2x dgx-a100")
    plan.step_time_s            # seconds
    plan.show()                 # prints the plan; in a notebook shows the report
    trainyard.estimate(plan)["summary"]
    trainyard.whatif("gpt2", "2x dgx-a100", vary={"hosts": [1, 2, 4]}).frame()

Every function runs the command of its name (trainyard COMMAND --help). Keywords are its options, with
_ for -. Answers are dicts, the documents of docs/schemas; units such as seconds, bytes and FLOPs are in the
names of their keys. Failures are exceptions with the program's messages.
"""

import html as _html
import json as _json
import os as _os
import tempfile as _tempfile

from ._library import (
    Error,
    InputError,
    LibraryError,
    NoPlanError,
    UsageError,
    ask,
    version,
)
from ._trace import trace

__all__ = [
    "Cluster",
    "Document",
    "Error",
    "InputError",
    "LibraryError",
    "NoPlanError",
    "Plan",
    "UsageError",
    "WhatIf",
    "Workload",
    "ask",
    "command",
    "compare",
    "estimate",
    "frame",
    "memory",
    "plan",
    "score",
    "simulate",
    "systems",
    "trace",
    "validate",
    "version",
    "whatif",
]


def frame(rows):
    """Rows as a pandas.DataFrame."""
    try:
        import pandas
    except ImportError as error:
        raise ImportError("a DataFrame needs pandas; the rows are a list of dicts without it") from error
    return pandas.DataFrame(list(rows))


# ---- Words -------------------------------------------------------------------------------------


class _Files:
    """Temporary files for documents; deleted at the end of the call."""

    def __enter__(self):
        self._folder = None
        self._names = {}
        return self

    def __exit__(self, *_):
        if self._folder is not None:
            self._folder.cleanup()

    def path(self, name):
        if self._folder is None:
            self._folder = _tempfile.TemporaryDirectory(prefix="trainyard-python-")
        return _os.path.join(self._folder.name, name)

    def word(self, value, name):
        """Returns a name or path unchanged, and the path of a file for a document."""
        if isinstance(value, (Workload, Cluster)):
            value = value.definition
        if isinstance(value, dict):
            path = self.path(name + ".json")
            with open(path, "w", encoding="utf-8") as file:
                _json.dump(value, file)
            self._names[path] = str(value.get("name", name))
            return path
        return _os.fspath(value)

    def named(self, text):
        """Replaces temporary paths in a text by the names of their documents."""
        for path, name in self._names.items():
            text = text.replace(path, _json.dumps(name)[1:-1])
        return text

    def ask(self, words, progress=None):
        """Calls ask() and replaces temporary paths by the names of their documents."""
        try:
            return self.named(ask(words, progress))
        except Error as error:
            error.args = (self.named(str(error)),)
            raise


def _value(value):
    if isinstance(value, dict):
        return ",".join("%s=%s" % (key, _value(each)) for key, each in value.items())
    if isinstance(value, (list, tuple)):
        return ",".join(_value(each) for each in value)
    return str(value)


def _words(files, options):
    words = []
    for key, value in options.items():
        option = "--" + key.replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            words.append(option)
        elif key == "vary":
            for axis, values in value.items():
                words += [option, "%s=%s" % (axis, _value(values))]
        elif key in ("workload", "cluster", "profile", "stack", "task"):
            words += [option, files.word(value, key)]
        else:
            words += [option, _value(value)]
    return words


def command(name, *names, progress=None, **options):
    """Runs any command. Returns its document with json=True, else its text."""
    with _Files() as files:
        words = [name] + [files.word(each, "file-%d" % i) for i, each in enumerate(names)]
        words += _words(files, options)
        text = files.ask(words, progress)
    return Document(_json.loads(text)) if options.get("json") else text


# ---- Workloads and clusters --------------------------------------------------------------------


class Workload:
    """A model: a name of the zoo ("gpt2", "gpt2 sequence=512"), a file, or a document."""

    _command = "workload"

    def __init__(self, definition):
        self.definition = definition

    @classmethod
    def names(cls):
        """Known names."""
        return ask([cls._command, "list", "--quiet"]).split()

    @classmethod
    def load(cls, path):
        """Imports a file of Trainyard or of another program."""
        with _Files() as files:
            made = files.path("imported.json")
            ask([cls._command, "import", _os.fspath(path), "--output", made, "--quiet"])
            with open(made, encoding="utf-8") as file:
                return cls(_json.load(file))

    def document(self):
        """The complete document, as a dict."""
        with _Files() as files:
            return Document(_json.loads(ask([self._command, "export", files.word(self.definition, self._command)])))

    def describe(self):
        """Summary figures, as a dict."""
        with _Files() as files:
            return Document(
                _json.loads(ask([self._command, "show", files.word(self.definition, self._command), "--json"]))
            )

    def save(self, path):
        with open(path, "w", encoding="utf-8") as file:
            _json.dump(self.document(), file, indent=1)

    def __repr__(self):
        name = self.definition.get("name") if isinstance(self.definition, dict) else self.definition
        return "%s(%r)" % (type(self).__name__, name)


class Cluster(Workload):
    """A cluster: "2x dgx-a100", "leaf:4 host:4 gpu:8 @h100 ...", "local:2", a file, or a document."""

    _command = "cluster"


# ---- Answers -----------------------------------------------------------------------------------


class Document(dict):
    """A document of the program; keys are attributes, too."""

    def __getattr__(self, key):
        try:
            return self[key]
        except KeyError:
            raise AttributeError("no %r in this document; it has %s" % (key, ", ".join(self))) from None

    def save(self, path):
        with open(path, "w", encoding="utf-8") as file:
            _json.dump(self, file, indent=1)


def _notebook():
    try:
        from IPython import get_ipython
        from IPython.display import HTML, display
    except ImportError:
        return None
    shell = get_ipython()
    if shell is None or not hasattr(shell, "kernel"):
        return None
    return lambda page: display(HTML(page))


class Plan(Document):
    """A plan, as `trainyard plan -o` writes it; other programs and commands read it."""

    text = ""

    @classmethod
    def load(cls, path):
        with open(path, encoding="utf-8") as file:
            return cls(_json.load(file))

    @property
    def step_time_s(self):
        """The simulated step time if there is one, else the estimate."""
        return (self.get("simulation") or self["prediction"])["step_time_s"]

    def frame(self):
        """Candidates and their results as a DataFrame."""
        return frame(self["candidates"])

    def estimate(self, **options):
        return estimate(self, **options)

    def simulate(self, **options):
        return simulate(self, **options)

    def report(self, path, *others, **options):
        """Writes the report, an HTML page, to a file. `others` are further documents for the page."""
        command("report", self, *others, output=_os.fspath(path), quiet=True, **options)

    def html(self):
        """The report as HTML text."""
        with _Files() as files:
            path = files.path("report.html")
            self.report(path)
            with open(path, encoding="utf-8") as file:
                return file.read()

    def show(self):
        """Prints the plan; in a notebook shows the report."""
        display = _notebook()
        if display is None:
            print(self.text or ask_of_plan(self))
        else:
            display(
                '<iframe srcdoc="%s" style="width:100%%;height:40em;border:0"></iframe>' % _html.escape(self.html())
            )

    def _repr_html_(self):
        return "<pre>%s</pre>" % _html.escape(self.text or ask_of_plan(self))

    def __repr__(self):
        return "<Plan: %s on %s, %s, %.4g s per step>" % (
            self["workload"]["name"],
            self["cluster_name"],
            self["strategy"],
            self.step_time_s,
        )


def ask_of_plan(plan_document):
    """The text of `trainyard estimate`, for plans that were loaded from a file."""
    return command("estimate", plan_document)


class WhatIf(Document):
    """Rows of a table: the varied values, and the figures of the best plan."""

    def frame(self):
        rows = []
        for row in self["rows"]:
            flat = {}
            for key, value in row.items():
                if key == "values":
                    flat.update(value)
                else:
                    flat[key] = value
            rows.append(flat)
        return frame(rows)


# ---- Questions ---------------------------------------------------------------------------------


def plan(workload=None, cluster=None, progress=None, **options):
    """The best way to train a workload on a cluster.

    options: fix={"pp": 2}, global_batch=, precision=, objective=, top=, ... as `trainyard plan --help`.
    Raises NoPlanError with the reason if nothing fits.
    """
    with _Files() as files:
        path = files.path("plan.json")
        words = ["plan"] + _words(files, dict(options, workload=workload, cluster=cluster, output=path))
        text = files.ask(words, progress)
        with open(path, encoding="utf-8") as file:
            written = file.read()
        result = Plan(_json.loads(files.named(written)))
        if files.named(written) != written:
            del result["digest"]  # digest of the plan with the names of deleted files
    result.__dict__["text"] = text
    return result


def _document(name, *files, progress=None, **options):
    return command(name, *files, progress=progress, json=True, **options)


def estimate(plan, progress=None, **options):
    """Estimates a plan: its program with costs, without contention. Takes milliseconds."""
    return _document("estimate", plan, progress=progress, **options)


def simulate(plan, progress=None, **options):
    """Simulates a plan on a network with contention: straggler=, jitter=, fail=, seeds=, ..."""
    return _document("simulate", plan, progress=progress, **options)


def memory(workload, cluster, progress=None, **options):
    """Memory per device of every stage, by purpose."""
    return _document("memory", progress=progress, workload=workload, cluster=cluster, **options)


def systems(workload, cluster, progress=None, **options):
    """The plan of every known system."""
    return _document("systems", progress=progress, workload=workload, cluster=cluster, **options)


def whatif(workload, cluster, vary, progress=None, **options):
    """The best plan for every combination of values: vary={"hosts": [1, 2, 4], "tp": [1, 2]}."""
    options = dict(options, workload=workload, cluster=cluster, vary=vary, json=True, quiet=True)
    with _Files() as files:
        return WhatIf(_json.loads(files.ask(["whatif"] + _words(files, options), progress)))


def compare(plan, run, progress=None, **options):
    """Compares prediction and measurement; `run` is a file or document of `trainyard run`."""
    return _document("compare", plan, run, progress=progress, **options)


def score(plan, progress=None, **options):
    """Time to target, cost and energy of a plan."""
    return _document("score", plan, progress=progress, **options)


def validate(path, progress=None):
    """Compares predictions with published measurements."""
    return _document("validate", path, progress=progress)
