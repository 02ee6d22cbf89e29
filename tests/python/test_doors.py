"""Fifty queries through three interfaces: the command line, Python and C. Their answers are equal."""

import json
import os
import subprocess
import unittest

import trainyard

PROGRAM, ASK, EXAMPLE = (os.environ[name] for name in ("TRAINYARD", "ASK", "EXAMPLE"))


def q(workload, cluster, **options):
    return dict(options, workload=workload, cluster=cluster)


# The estimate answers most of them, since it is fast; the last ones use the default.
GPT2, A100 = "gpt2 sequence=256", "1x dgx-a100"
QUESTIONS = [dict(row, no_simulate=True) for row in [
    q("gpt2", "2x dgx-a100"),
    q("gpt2", "2x dgx-a100", precision="fp32"),
    q("gpt2", "2x dgx-a100", precision="fp16"),
    q("gpt2", "2x dgx-a100", stack="trainyard"),
    q("gpt2", "2x dgx-a100", stack="pytorch-ddp"),
    q("gpt2", "2x dgx-a100", stack="megatron"),
    q("gpt2", "1x dgx-h100"),
    q("gpt2", "1x dgx-h100", stack="nemo"),
    q("gpt2", "1x dgx-h100", stack="megatron product_share=0.7"),
    q("gpt2", "1x dgx-h100", seq=512),
    q("gpt2", "1x dgx-h100", global_batch=64),
    q("gpt2", "1x dgx-h100", fix="pp=2"),
    q("gpt2", "1x dgx-h100", fix="tp=2,zero=1"),
    q("gpt2", "1x dgx-h100", fix="pp=2,schedule=gpipe"),
    q("gpt2", "1x dgx-h100", fastest=True),
    q("gpt2", "1x ND40rs_v2"),
    q(GPT2, A100, fix="dp=8,pp=1,compression=top-k:0.01"),
    q(GPT2, A100, fix="dp=8,pp=1,compression=powersgd-2"),
    q(GPT2, A100, allow_lossy=True),
    q(GPT2, A100, fix="staleness=1"),
    q("llama-2-7b", "1x dgx-h100"),
    q("llama-2-7b", "2x dgx-h100", global_batch=128),
    q("llama-2-7b", "1x dgx-h100", precision="fp8"),
    q("llama-2-7b", "1x dgx-a100", global_batch=64, fix="dp=8,zero=3,tp=1"),
    q("llama-2-7b", "1x dgx-a100", stack="pytorch-fsdp", optimizer="muon"),
    q("bert-base", "1x dgx-a100"),
    q("bert-base", "1x dgx-a100", global_batch=60, optimizer="adafactor"),
    q("bert-base", "1x p100-server"),
    q("mixtral-8x7b", "4x dgx-h100"),
    q("resnet50", "1x dgx-a100"),
    q("resnet50", "4x p100-server"),
    q("resnet50", "4x p100-server", precision="fp16"),
    q("resnet50", "4x p100-server", input="data=1.3TB,decode=250"),
    q("resnet50", "1x p100-server", system="ddp"),
    q("vgg16", "4x p100-server"),
    q("vgg16", "4x p100-server", fix="pp=2"),
    q("vgg16", "4x p100-server", system="pipedream"),
    q("vgg16", "4x p100-server", system="horovod"),
    q("vgg16", "2x p100-server", system="parameter-server"),
    q("lenet", "1x p100-server"),
    q("lenet", "1x p100-server", global_batch=512),
    q("lenet", "1x p100-server", budget="phone,variant=int8"),
    q("mlp", "1x p100-server"),
    q("fedavg-cnn", "phones"),
    q("dlrm", "1x dgx-a100"),
    q("gpt2", "host:2 gpu:4 @h100 nvlink4 ndr400"),
]] + [
    q("lenet", "2x p100-server"),
    q("lenet", "1x p100-server", top=1),
    q("mlp", "1x p100-server"),
    q("gpt2", "1x dgx-a100", top=1),
]


def on_the_command_line(question):
    words = ["plan", "--json", "--quiet"]
    for key, value in question.items():
        words.append("--" + key.replace("_", "-"))
        if value is not True:
            words.append(str(value))
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError("%s: %s" % (question, done.stderr))
    return trainyard.Plan(json.loads(done.stdout)).step_time_s


def in_c(questions):
    lines = ["\t".join("%s=%s" % (k, 1 if v is True else v) for k, v in row.items()) for row in questions]
    done = subprocess.run([ASK], input="\n".join(lines) + "\n", capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


class Doors(unittest.TestCase):
    def test_fifty_questions(self):
        self.assertEqual(len(QUESTIONS), 50)
        for question, c in zip(QUESTIONS, in_c(QUESTIONS), strict=True):
            with self.subTest(question=question):
                program = on_the_command_line(question)
                python = trainyard.plan(**question, quiet=True).step_time_s
                self.assertEqual(python, program)
                self.assertLess(abs(float(c) - program), 1e-12 * program)

    def test_the_example(self):
        """docs/examples/plan.c as a reader runs it."""
        for words in (["gpt2", "2x dgx-a100"], ["gpt2", "2x dgx-a100", "trainyard"]):
            done = subprocess.run([EXAMPLE, *words], capture_output=True, text=True, check=True)
            question = dict(zip(("workload", "cluster", "stack"), words))
            self.assertIn(": %.6g s per step" % on_the_command_line(question), done.stdout)


if __name__ == "__main__":
    result = unittest.main(exit=False, verbosity=0).result
    print("%d passed, %d failed" % (result.testsRun, len(result.failures) + len(result.errors)))
    raise SystemExit(not result.wasSuccessful())
