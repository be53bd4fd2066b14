#!/bin/bash
# One recipe's training on a node that sees this machine's folders (docs/kubernetes.md):
#   sbatch --mem=20G --gpus=1 --time=06:15:00 deploy/slurm/train.sh RECIPE HOURS CONFIRM_COST
# `ec1` is the one in PATH; EC1_HOME, EC1_PROJECT and EC1_DEPLOYMENT come with the submitter's environment.
#SBATCH --job-name=ec1-training
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=4
#SBATCH --open-mode=append
#SBATCH --requeue
# To the script itself, 90 seconds before the time is up: the trainer has a minute for its checkpoint.
#SBATCH --signal=B:TERM@90
set -euo pipefail
# In place of the shell, so that the signal reaches it.
exec ec1 train "$1" --hours "$2" --confirm-cost "$3" --json
