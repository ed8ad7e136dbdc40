"""Evaluations and metrics of many runs as pandas tables: final scores, and a figure of the learning curves.

    python examples/read_runs_with_pandas.py results/runs --out curves.png

The folder is searched for runs. It needs pandas and matplotlib: pip install pandas 'dr-q[plot]'.
"""

import argparse
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from dr_q.report import read_results


def evaluations(folder):
    """A row for each evaluation of each seed: task, preset, seed, agent_steps, return."""
    rows = [row._asdict() for row in read_results([folder])]
    return pd.DataFrame(rows).rename(columns={"score": "return"}).drop(columns="more")


def metrics(folder):
    """The rows of every metrics.csv below the folder, with the run that they are of."""
    files = sorted(Path(folder).rglob("metrics.csv"))
    named = [pd.read_csv(file).assign(run=str(file.parent.relative_to(folder))) for file in files]
    return pd.concat(named, ignore_index=True)


def main(folder, out):
    table = evaluations(folder)
    last = table.loc[table.groupby(["task", "preset", "seed"])["agent_steps"].idxmax()]
    final = last.groupby(["task", "preset"]).agg(
        agent_steps=("agent_steps", "max"), seeds=("seed", "size"), mean=("return", "mean"), std=("return", "std")
    )
    print(final.round(1))

    logged = metrics(folder)
    last = logged.groupby(["run", "seed"])[["critic_loss", "encoder_loss", "q_mean"]].last()
    print(last.groupby("run").mean().round(3))  # the mean over seeds

    curves = table.groupby(["task", "preset", "agent_steps"])["return"].mean()
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    for name, curve in curves.groupby(["task", "preset"]):
        axes.plot(curve.index.get_level_values("agent_steps"), curve, label=", ".join(name))
    axes.set(xlabel="agent steps", ylabel="mean return over seeds")
    axes.legend(fontsize="x-small")
    figure.savefig(out)
    return final


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=Path("curves.png"))
    given = parser.parse_args()
    main(given.folder, given.out)
