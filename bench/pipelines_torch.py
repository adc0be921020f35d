"""PyTorch's side of bench/pipelines: a timm ViT cut into stages, trained by torch.distributed.pipelining's
1F1B schedule with gloo between the processes, one stage each; prints one JSON line.

The comparison favours PyTorch: images are in memory already normalised, and the faster of the fused and the
foreach optimizer is used.
"""

import argparse
import json
import os
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from measure import of_steps
from peers import TIMM_NAMES, add_sizes, faster_optimizer, make_model, versions
from torch.distributed.pipelining import PipelineStage, Schedule1F1B


class Part(torch.nn.Module):
    """Blocks [begin, end) of a ViT; the first stage also has the layers before them, the last those after."""

    def __init__(self, vit, begin, end):
        super().__init__()
        self.first, self.last = begin == 0, end == len(vit.blocks)
        self.blocks = vit.blocks[begin:end]
        if self.first:
            self.patch_embed, self.cls_token, self.pos_embed = vit.patch_embed, vit.cls_token, vit.pos_embed
        if self.last:
            self.norm, self.head = vit.norm, vit.head

    def forward(self, x):
        if self.first:
            x = self.patch_embed(x)
            x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], 1) + self.pos_embed
        x = self.blocks(x)
        return self.head(self.norm(x)[:, 0]) if self.last else x


def work(rank, args):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(args.port))
    torch.set_num_threads(args.threads)
    dist.init_process_group("gloo", rank=rank, world_size=args.pipeline)
    torch.manual_seed(0)
    vit = make_model(vars(args), args.classes).train()
    depth = len(vit.blocks)
    cuts = [depth * i // args.pipeline for i in range(args.pipeline + 1)]
    part = Part(vit, cuts[rank], cuts[rank + 1])
    del vit
    stage = PipelineStage(part, rank, args.pipeline, torch.device("cpu"))  # infers the shapes once
    schedule = Schedule1F1B(stage, args.micro_batches, loss_fn=F.cross_entropy)
    images = torch.randn(args.batch, 3, args.image_size, args.image_size)
    labels = torch.randint(args.classes, (args.batch,))
    last = rank + 1 == args.pipeline

    def gradients():
        losses = []
        if rank == 0:
            schedule.step(images)
        elif last:
            schedule.step(target=labels, losses=losses)
        else:
            schedule.step()

    gradients()
    optimizer, kind = faster_optimizer(part, vars(args), lambda: None)
    seconds = []
    for _ in range(args.warmup + args.steps):
        dist.barrier()
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        gradients()
        optimizer.step()
        dist.barrier()
        seconds.append(time.perf_counter() - begin)
    if rank == 0:
        measured = of_steps(seconds, args.batch, args.warmup)
        print(json.dumps({**measured, "optimizer": kind, **versions(args.model)}))
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=list(TIMM_NAMES))
    add_sizes(parser, pipeline=2, micro_batches=4, threads=1, batch=16, image_size=224, patch_size=16, classes=10)
    add_sizes(parser, steps=4, warmup=1, port=29577)
    parser.set_defaults(optimizer="adamw", lr=1e-4, weight_decay=0.05, decay="weights")
    args = parser.parse_args()
    mp.spawn(work, (args,), nprocs=args.pipeline)


if __name__ == "__main__":
    main()
