"""Flips bits in the JSON files of a run and reads them as the commands do; prints what is not refused in one line.

    python -m tests.faults.json_flips RUN SEED COUNT

In a process of its own: in the tests' process the types of arguments are checked before the settings are.
"""

import random
import sys
from pathlib import Path

import dr_q
from dr_q.diagnostics.doctor import examine_run
from dr_q.run_folder import RunJson
from dr_q.training.api import resume_settings
from tests.envs import toys
from tests.faults import damages


def main(run: Path, seed: int, count: int) -> None:
    """Read each file after each flip."""
    rng, refused = random.Random(seed), 0

    def settings() -> None:
        chosen = resume_settings(run, toys.Walk, None)
        RunJson(run, chosen.to_json(), {}, chosen.seed_list, {}).resume(120)

    reads = {
        "run.json": settings,
        "policy/policy.json": lambda: dr_q.load(run, 1),
        "checkpoints/120/checkpoint.json": lambda: None,
    }
    for name, read in reads.items():
        whole = (run / name).read_bytes()
        for number in range(count):
            damages.flip(run / name, rng)
            try:
                found = list(examine_run(run))
                refused += not all(finding.ok for finding in found)
                read()
            except dr_q.DrQError:
                refused += 1
            except Exception as error:
                print(f"{name}, flip {number}: {type(error).__name__}: {error}")
            (run / name).write_bytes(whole)
    print(f"{refused} refused")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
