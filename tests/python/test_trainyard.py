"""import trainyard over the built library: its answers equal the program's output."""

import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import unittest

import trainyard

PROGRAM = os.environ["TRAINYARD"]


def program(*words):
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


class Questions(unittest.TestCase):
    def test_a_plan_is_the_programs(self):
        plan = trainyard.plan("gpt2", "2x dgx-a100", fix={"pp": 2, "interleave": 1}, top=1)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "plan.json")
            code, text, _ = program(
                "plan", "-w", "gpt2", "-c", "2x dgx-a100", "--fix", "pp=2,interleave=1", "--top", "1", "-o", path
            )
            with open(path, encoding="utf-8") as file:
                self.assertEqual(plan, json.load(file))
        self.assertEqual(code, 0)
        self.assertEqual(plan.text, text)
        self.assertEqual(plan.step_time_s, plan["simulation"]["step_time_s"])
        self.assertEqual(len(plan.stages), 2)
        self.assertIn("gpt2 on 2x dgx-a100", repr(plan))
        self.assertIn(text.splitlines()[0], plan._repr_html_())

    def test_readers_of_a_plan(self):
        plan = trainyard.plan("lenet", "2x p100-server", top=1)
        estimate, simulation = plan.estimate(), plan.simulate(seeds=2, jitter="5%")
        self.assertEqual(estimate["schema"], "trainyard.estimate/1")
        self.assertEqual(simulation["schema"], "trainyard.simulation/2")
        self.assertEqual(simulation["seeds"], 2)
        self.assertGreater(estimate["step_time_s"], 0)
        self.assertTrue(plan.html().lstrip().lower().startswith("<!doctype html"))
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "plan.json")
            plan.save(path)
            self.assertEqual(trainyard.Plan.load(path), plan)
            self.assertEqual(trainyard.estimate(path)["step_time_s"], estimate["step_time_s"])

    def test_documents_go_in_and_keep_their_names(self):
        workload = trainyard.Workload("lenet").document()
        cluster = trainyard.Cluster("2x p100-server").document()
        workload["name"] = "my lenet"
        plan = trainyard.plan(workload, trainyard.Cluster(cluster), top=1)
        self.assertEqual(plan["workload"]["name"], "my lenet")
        self.assertEqual(plan["cluster_name"], cluster["name"])
        self.assertEqual(plan.step_time_s, trainyard.plan("lenet", "2x p100-server", top=1).step_time_s)
        self.assertNotIn("trainyard-python", plan.text + json.dumps(plan))
        self.assertEqual(plan.estimate()["step_time_s"], plan["prediction"]["step_time_s"])

    def test_a_plan_that_was_changed_is_refused(self):
        plan = trainyard.plan("lenet", "2x p100-server", no_simulate=True)
        plan["cluster"]["link_types"][0]["bandwidth_bytes_per_s"] *= 2
        with self.assertRaises(trainyard.InputError):
            plan.estimate()

    def test_memory_whatif(self):
        memory = trainyard.memory("gpt2", "2x dgx-a100", fix={"pp": 4, "interleave": 1})
        self.assertEqual(len(memory["stages"]), 4)
        table = trainyard.whatif("gpt2", "2x dgx-a100", vary={"hosts": [1, 2]}, no_simulate=True)
        self.assertEqual([row["values"]["hosts"] for row in table["rows"]], ["1", "2"])
        self.assertGreater(table["rows"][0]["step_time_s"], table["rows"][1]["step_time_s"])

    def test_names(self):
        self.assertIn("gpt2", trainyard.Workload.names())
        self.assertIn("dgx-h100", trainyard.Cluster.names())
        self.assertEqual(trainyard.Workload("lenet").describe()["parameters"], 431080)
        self.assertEqual(program("--version")[1].strip(), "trainyard " + trainyard.version())

    def test_rows_as_a_frame(self):
        try:
            import pandas
        except ImportError:
            with self.assertRaisesRegex(ImportError, "needs pandas"):
                trainyard.frame([{"a": 1}])
            return
        table = trainyard.whatif("gpt2", "2x dgx-a100", vary={"hosts": [1, 2]}, no_simulate=True).frame()
        self.assertIsInstance(table, pandas.DataFrame)
        self.assertEqual(list(table["hosts"]), ["1", "2"])


class Page(unittest.TestCase):
    def test_the_blocks_of_the_page_run_one_after_the_other(self):
        with open(os.path.join(os.environ["SOURCE"], "docs", "reference", "python.md"), encoding="utf-8") as file:
            blocks = re.findall(r"^```python\n(.*?)^```", file.read(), re.M | re.S)
        self.assertGreater(len(blocks), 3)
        names, said, before = {}, io.StringIO(), os.getcwd()
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(said):
            os.chdir(folder)
            try:
                for block in blocks:
                    exec(compile(block, "docs/reference/python.md", "exec"), names)
                self.assertGreater(os.path.getsize("gpt2.html"), 10000)
            finally:
                os.chdir(before)
        for text in ("data parallel", "Throughput", "does not fit"):
            self.assertIn(text, said.getvalue())

    def test_the_cells_of_the_notebook_run_one_after_the_other(self):
        path = os.path.join(os.environ["SOURCE"], "docs", "examples", "notebook.py")
        with open(path, encoding="utf-8") as file:
            cells = re.split(r"^# %%.*\n", file.read(), flags=re.M)[1:]
        names, said, before = {}, [], os.getcwd()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                for cell in cells:
                    said.append(io.StringIO())
                    with contextlib.redirect_stdout(said[-1]):
                        exec(compile(cell, path, "exec"), names)
                self.assertGreater(os.path.getsize("gpt2.html"), 10000)
            finally:
                os.chdir(before)
        code = [text.getvalue() for cell, text in zip(cells, said) if not cell.startswith("# ")]
        self.assertEqual(len(code), 6)
        for text, shown in zip(code, ("Throughput", " - chosen", "ms where device 3", "samples/s", "does not fit")):
            self.assertIn(shown, text)
        self.assertGreater(names["straggler"].step_time_s, names["plan"].step_time_s)
        speeds = [row["samples_per_s"] for row in names["table"].rows]
        self.assertEqual(speeds, sorted(speeds))
        self.assertEqual(len(speeds), 3)


class Mistakes(unittest.TestCase):
    def check(self, kind, words, call):
        """The exception's message and code are the program's."""
        code, _, said = program(*words)
        with self.assertRaises(kind) as caught:
            call()
        self.assertEqual(caught.exception.exit_code, code)
        self.assertIn(str(caught.exception), said)
        self.assertTrue(str(caught.exception))

    def test_sentences(self):
        self.check(
            trainyard.InputError,
            ["plan", "-w", "gpt2x", "-c", "2x dgx-a100"],
            lambda: trainyard.plan("gpt2x", "2x dgx-a100"),
        )
        self.check(
            trainyard.UsageError,
            ["plan", "-w", "gpt2", "-c", "2x dgx-a100", "--fixx", "3"],
            lambda: trainyard.plan("gpt2", "2x dgx-a100", fixx=3),
        )
        self.check(
            trainyard.UsageError,
            ["plan", "-w", "gpt2", "-c", "2x dgx-a100", "--fix", "ppp=3"],
            lambda: trainyard.plan("gpt2", "2x dgx-a100", fix={"ppp": 3}),
        )
        self.check(
            trainyard.NoPlanError,
            ["plan", "-w", "gpt3-175b", "-c", "1x p100-server", "--fix", "pp=1"],
            lambda: trainyard.plan("gpt3-175b", "1x p100-server", fix={"pp": 1}),
        )

    def test_nothing_is_printed(self):
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                "import trainyard\ntrainyard.plan('lenet', '2x p100-server')\n"
                "try:\n trainyard.plan('nothing', '2x p100-server')\nexcept trainyard.Error: pass",
            ],
            capture_output=True,
            check=True,
        )
        self.assertEqual((done.stdout, done.stderr), (b"", b""))

    def test_a_call_from_each_of_several_threads(self):
        expected = trainyard.plan("lenet", "2x p100-server", no_simulate=True)
        found = []
        threads = [
            threading.Thread(target=lambda: found.append(trainyard.plan("lenet", "2x p100-server", no_simulate=True)))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(found, [expected] * 4)


class Listening(unittest.TestCase):
    def import_note(self, progress):
        path = os.path.join(os.environ["SOURCE"], "tests", "topologies", "data", "topology.conf")
        return trainyard.command("cluster", "import", path, host="dgx-a100", progress=progress)

    def test_progress_hears_notes(self):
        lines = []
        self.import_note(lines.append)
        self.assertTrue(any("devices on" in line for line in lines), lines)

    def test_what_progress_raises_ends_the_command(self):
        def stop(_line):
            raise RuntimeError("enough")

        with self.assertRaisesRegex(RuntimeError, "enough"):
            self.import_note(stop)
        self.assertGreater(trainyard.plan("lenet", "2x p100-server", no_simulate=True).step_time_s, 0)


try:
    import torch
except ImportError:
    torch = None


@unittest.skipIf(torch is None, "torch is not here")
class Traces(unittest.TestCase):
    def test_lenet_has_the_figures_of_the_zoo(self):
        model = torch.nn.Sequential(
            torch.nn.Conv2d(1, 20, 5),
            torch.nn.MaxPool2d(2),
            torch.nn.Conv2d(20, 50, 5),
            torch.nn.MaxPool2d(2),
            torch.nn.Flatten(),
            torch.nn.Linear(800, 500),
            torch.nn.ReLU(),
            torch.nn.Linear(500, 10),
        )
        traced = trainyard.trace(model, torch.zeros(4, 1, 28, 28), name="traced", global_batch=128)
        figures, known = traced.describe(), trainyard.Workload("lenet").describe()
        self.assertEqual(figures["parameters"], known["parameters"])
        ours = {layer["name"]: layer["forward_flop"] for layer in figures["layers"]}
        zoo = {layer["name"]: layer["forward_flop"] for layer in known["layers"]}
        for mine, theirs in (("0", "conv2d1"), ("2", "conv2d2"), ("5", "linear1"), ("7", "linear2")):
            self.assertEqual(ours[mine], zoo[theirs])
        plan = trainyard.plan(traced, "2x p100-server", top=1)
        self.assertEqual(plan["workload"]["name"], "traced")

    def test_what_is_no_module_is_refused(self):
        with self.assertRaisesRegex(trainyard.UsageError, "found int, expected a torch.nn.Module"):
            trainyard.trace(3, torch.zeros(1))


if __name__ == "__main__":
    result = unittest.main(exit=False, verbosity=0).result
    print("%d passed, %d failed, %d skipped" % (
        result.testsRun - len(result.failures) - len(result.errors) - len(result.skipped),
        len(result.failures) + len(result.errors), len(result.skipped)))
    sys.exit(not result.wasSuccessful())
