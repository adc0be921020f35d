#!/bin/bash
# Open MPI: one rank per GPU on the hosts of a host file with lines like "node0 slots=8".
#   docs/examples/mpirun.sh hosts photos
# All hosts share the barevision folder. Rank 0 is on the first host. The run resumes if started again.
set -euo pipefail
hosts=${1:?which hosts? docs/examples/mpirun.sh HOSTFILE DATA}
data=${2:?which data? docs/examples/mpirun.sh HOSTFILE DATA}

MASTER_ADDR=$(awk '{ print $1; exit }' "$hosts")
export MASTER_ADDR MASTER_PORT=29500

mpirun --hostfile "$hosts" -x MASTER_ADDR -x MASTER_PORT --bind-to none \
  ./launcher vit_large --data "$data" --resume runs/mpi --local-batch 64
