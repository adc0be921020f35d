#!/bin/bash
# torchrun: start this script on every node with the node's number, 0 to NODES - 1.
#   docs/examples/torchrun.sh NODE NODES HOST photos      # HOST: the name of node 0
set -euo pipefail
node=${1:?which node? docs/examples/torchrun.sh NODE NODES HOST DATA}
nodes=${2:?how many nodes? docs/examples/torchrun.sh NODE NODES HOST DATA}
host=${3:?which host is node 0? docs/examples/torchrun.sh NODE NODES HOST DATA}
data=${4:?which data? docs/examples/torchrun.sh NODE NODES HOST DATA}

# --no-python: torchrun starts a program, not a script. Its agent uses the port; the ranks use the next.
# --resume: the run continues if it is started again, by hand or by torchrun's --max-restarts.
torchrun --no-python --nnodes "$nodes" --node-rank "$node" --nproc-per-node 8 --max-restarts 3 \
  --master-addr "$host" --master-port 29500 \
  ./launcher vit_large --data "$data" --resume runs/torchrun --local-batch 64
