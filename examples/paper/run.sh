#!/bin/bash
# The workflow of a paper: variants, a sweep, more seeds later, a report next to a reference, tables for LaTeX.
#
#   examples/paper/run.sh REFERENCE.csv [OUT] [OPTIONS OF dr-q sweep...]
#
# REFERENCE.csv has curves of others: results/drq.csv of the authors' repository, or task,preset,seed,agent_steps,return.
# Set TASKS, SEEDS and MORE_SEEDS to change what is trained. Killed at any point, the same command continues.
set -euo pipefail
reference=$1
out=${2:-runs/paper}
options=("${@:3}")
read -ra tasks <<< "${TASKS:-dmc/walker-walk dmc/cheetah-run}"
here=$(dirname "$0")
sweep=(dr-q sweep "${tasks[@]}" --preset-file "$here/presets.toml" --presets dr.q slow-fade --out "$out/runs" "${options[@]}")

# 1. What it would take, then the sweep: one machine without Ray (--local); leave it out for Ray, or write --slurm array.
"${sweep[@]}" --seeds "${SEEDS:-5}" --dry-run
"${sweep[@]}" --seeds "${SEEDS:-5}" --local

# 2. A reviewer asks for more seeds: the same folder is extended.
"${sweep[@]}" --seeds "${MORE_SEEDS:-10}" --local

# 3. The report: curves, aggregates, comparisons with the reference and between the presets; tables as CSV and LaTeX.
dr-q report "$out/runs" --reference "$reference" --out "$out/report"
ls "$out"/report/tables/*.tex
