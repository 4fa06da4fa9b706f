"""The rows of a small data-set run, and the files that it leaves."""

import hashlib
from pathlib import Path

from tests.support.models import SENTENCE

WORDS = SENTENCE.strip(".").replace(",", "").split()


ROWS = [{"text": " ".join(WORDS[: 1 + k % 9]) + f" {k}", "label": k % 2} for k in range(22)]


def files(folder):
    """All that a job leaves but the times."""
    return {
        p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in Path(folder).iterdir() if p.name != "timings.jsonl"
    }
