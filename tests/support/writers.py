"""A process that loads a model once and forks runs of one job, which tests kill, or give a disk that is too small.

`python -m tests.support.writers MODEL DATA` reads lines of JSON from stdin. {"out": folder, "heads": n, "most_bytes": n
or null, "log": file, "stop_at": n or null, "die_after": [n, seconds] or null} starts a run and prints the number of its
process. The model has n attention heads under the same weights, and a file of more than `most_bytes` bytes is an error,
as on a full disk. The run adds a line to the log for each batch, and one in the end: "finished", or the error. It
stands still after `stop_at` lines, and dies at once when it has computed for so many seconds after line n.

{"wait": number} prints the status with which a process ended, {"wait_until_still": number} that of one that ended or
stands still. So nothing depends on how fast the machine is.
"""

import json
import os
import resource
import signal
import sys

import pyarrow.parquet  # noqa: F401  # once, for all that are forked
import torch
import transformers

import gaflow
from gaflow.jobs import attribute


def load(model, heads):
    config = transformers.AutoConfig.from_pretrained(model)
    config.num_attention_heads = heads
    loaded = transformers.AutoModelForSequenceClassification.from_pretrained(model, config=config)
    explainer = gaflow.Explainer(loaded.eval(), model)
    explainer("a dog")  # what is loaded on first use
    return explainer


def run(explainer, data, job):
    dying_line, seconds = job["die_after"] or (None, 0.0)
    lines = 0
    with open(job["log"], "a") as log:

        def say(line):
            nonlocal lines
            log.write(f"{line}\n")
            log.flush()
            lines += 1
            if lines == job["stop_at"]:
                os.kill(os.getpid(), signal.SIGSTOP)
            if lines == dying_line:
                signal.setitimer(signal.ITIMER_PROF, seconds)  # whose signal ends the process wherever it is

        if job["most_bytes"] is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (job["most_bytes"], job["most_bytes"]))
        try:
            attribute(
                explainer,
                data,
                job["out"],
                ["attcat", "rawatt"],
                batch_size=2,
                shard_size=4,
                progress=lambda done, total: say(done),
            )
        except gaflow.GaflowError as error:
            say(f"{type(error).__name__}: {error}")
        else:
            say("finished")


def main(model, data):
    torch.set_num_threads(1)
    explainers = {heads: load(model, heads) for heads in (4, 2)}
    for line in sys.stdin:
        order = json.loads(line)
        if "wait" in order:
            answer = os.waitpid(order["wait"], 0)[1]
        elif "wait_until_still" in order:
            answer = os.waitpid(order["wait_until_still"], os.WUNTRACED)[1]
        else:
            answer = os.fork()
            if answer == 0:
                run(explainers[order["heads"]], data, order)
                os._exit(0)
        print(answer, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
