"""Run the Python blocks of a JSON file, pairs of code and page, one after the other, with common variables."""

import json
import sys
from pathlib import Path

if __name__ == "__main__":
    import tiny_runs

    tiny_runs.tiny_train()
    tiny_runs.tiny_sweeps()
    sys.path.insert(0, str(Path.cwd()))
    variables = {"__name__": "__main__"}
    for code, page in json.loads(Path(sys.argv[1]).read_text()):
        exec(compile(code, page, "exec"), variables)
