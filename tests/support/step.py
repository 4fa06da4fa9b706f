"""A script to schedule: `python -m tests.support.step FILE --wait-for FILE --code N` writes a file and exits."""

import argparse
import sys
import time
from pathlib import Path

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--wait-for", type=Path, help="end only when this file is there")
    parser.add_argument("--code", type=int, default=0)
    parser.add_argument("--seconds")
    options = parser.parse_args()
    while options.wait_for and not options.wait_for.exists():
        time.sleep(0.05)
    options.file.write_text(f"seconds {options.seconds}")
    print("wrote", options.file.name)
    sys.exit(options.code)
