"""Give a Llama maps: train it on text, add maps without changing a bit of what it says, and train both on navigation.

python examples/upcycle_llama.py --text data/books/train --record upcycle.json     # an hour on one core
python examples/upcycle_llama.py --text README.md --tiny                           # a minute: nothing is learned

Three things are printed: whether the logits before and after `add_maps` are equal, the perplexity of the plain model
and of the one with maps after the same further training on text, and the accuracy of both on revisited cells of a
world (task `navigation`) after the same number of its sequences.
"""

import argparse
import copy
import gzip
import hashlib
import json
import math
from pathlib import Path

import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM

import mapformers as mf
from mapformers.hf import add_maps, load_with_maps
from mapformers.runs.checkout import commit

BYTES = 256
NEVER_READ = 255  # no byte of UTF-8, and no token of the world: Llama never learns what it pads with
HEAD = 32  # width of a head: the path needs planes that RoPE turns slowly, and a small head has few


def read_text(path: Path) -> tuple[torch.Tensor, dict]:
    """A file, or all files of a folder (.gz ones unpacked), as bytes; and which text it is, for the record."""
    files = [path] if path.is_file() else sorted(found for found in path.rglob("*") if found.is_file())
    parts = [gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes() for file in files]
    text = b"\n".join(parts)
    told = {"name": path.absolute().name, "files": len(files), "bytes": len(text)}
    told["sha256"] = hashlib.sha256(text).hexdigest()
    return torch.frombuffer(bytearray(text), dtype=torch.uint8).long(), told


def windows(text: torch.Tensor, batch: int, length: int, generator: torch.Generator) -> torch.Tensor:
    starts = torch.randint(0, len(text) - length, (batch,), generator=generator).tolist()
    return torch.stack([text[start : start + length] for start in starts])


def train(model: LlamaForCausalLM, batches, steps: int, rate: float, path_rate: float, map_first: int = 0):
    """AdamW on batches of (tokens, targets); targets of −100 have no loss.

    ``path_rate`` is the rate of the path beside that of the rest: a tenth on text, where RoPE is a good start, all of
    it in a world, whose map has to be found. For the first ``map_first`` steps the mean movement is held at zero, so
    that a map is found before a clock.
    """
    path = [parameter for name, parameter in model.named_parameters() if ".path." in name]
    rest = [parameter for name, parameter in model.named_parameters() if ".path." not in name]
    groups = [{"params": rest}, {"params": path, "lr": rate * path_rate, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95), weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / 50) * (1 - step / steps))
    model.train()
    for step, (tokens, targets) in enumerate(batches):
        mf.training.zero_mean_movement(model, step < map_first)
        logits = model(tokens, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if (step + 1) % 100 == 0:
            print(f"  step {step + 1} of {steps}, loss {loss.item():.3f}", flush=True)
    mf.training.zero_mean_movement(model, False)
    return model.eval()


def text_batches(text: torch.Tensor, steps: int, args: argparse.Namespace, seed: int):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        rows = windows(text, args.batch, args.length + 1, generator)
        yield rows[:, :-1], rows[:, 1:]


def world_batches(task: mf.Task, steps: int, args: argparse.Namespace, seed: int):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        batch = task.sample("iid", batch_size=args.batch, generator=generator)
        yield batch.tokens, batch.targets.masked_fill(~batch.loss_mask, -100)


@torch.no_grad()
def perplexity(model: LlamaForCausalLM, text: torch.Tensor, args: argparse.Namespace) -> float:
    losses = [
        torch.nn.functional.cross_entropy(model(tokens, use_cache=False).logits.flatten(0, 1), targets.flatten())
        for tokens, targets in text_batches(text, 8, args, seed=99)
    ]
    return math.exp(torch.stack(losses).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--text", type=Path, required=True, help="a file or a folder")
    parser.add_argument("--tiny", action="store_true", help="every step at a size that learns nothing")
    parser.add_argument("--width", type=int, default=64, help=f"a multiple of {HEAD}")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--rank", type=int, default=4, help="of the maps; the world needs two")
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--text-steps", type=int, default=1500)
    parser.add_argument("--world-steps", type=int, default=1500)
    parser.add_argument("--rate", type=float, default=1e-3, help="learning rate on text")
    parser.add_argument("--world-rate", type=float, default=2e-3, help="learning rate in the world")
    parser.add_argument("--out", type=Path, default=Path("runs/llama-with-maps"))
    parser.add_argument("--record", type=Path, help="a JSON file for what was found")
    args = parser.parse_args()
    if args.width % HEAD or args.width < HEAD:
        parser.error(f"--width must be a multiple of {HEAD}, not {args.width}.")
    if args.tiny:
        args.width, args.length, args.batch, args.text_steps, args.world_steps = 32, 32, 4, 2, 2

    began_at = commit()  # others may be made while this runs
    task = mf.build_task("navigation", dims=2, steps=16 if args.tiny else 128)
    sizes = {"hidden_size": args.width, "intermediate_size": 4 * args.width, "num_hidden_layers": args.layers}
    torch.manual_seed(0)
    tokens = {"vocab_size": BYTES, "pad_token_id": NEVER_READ, "eos_token_id": None}
    config = LlamaConfig(num_attention_heads=args.width // HEAD, **tokens, **sizes)
    text, which_text = read_text(args.text)
    cut = len(text) * 9 // 10
    first = text_batches(text[:cut], args.text_steps, args, seed=0)
    plain = train(LlamaForCausalLM(config), first, args.text_steps, args.rate, path_rate=0.1)

    mapped = add_maps(copy.deepcopy(plain), rank=args.rank, omega_max=2 * math.pi, base=64)
    sample = text[None, : args.length]
    with torch.no_grad():
        found = {"same logits": torch.equal(plain(sample).logits, mapped(sample).logits)}
    print("same logits:", found["same logits"])

    for name, model in (("plain", plain), ("with maps", mapped)):
        more = args.text_steps // 2
        train(model, text_batches(text[:cut], more, args, seed=1), more, args.rate / 3, path_rate=0.1)
        found[f"perplexity, {name}"] = perplexity(model, text[cut:], args)
        print(f"perplexity, {name}: {found[f'perplexity, {name}']:.3f}", flush=True)
    for name, model in (("plain", plain), ("with maps", mapped)):
        walks = world_batches(task, args.world_steps, args, seed=2)
        train(model, walks, args.world_steps, args.world_rate, path_rate=1.0, map_first=args.world_steps // 3)
        scores = mf.evaluate(model, task, "iid", n_sequences=16 if args.tiny else 256)
        found[f"accuracy, {name}"] = float(scores["accuracy"])
        print(f"accuracy on revisits, {name}: {found[f'accuracy, {name}']:.3f}", flush=True)

    mapped.save_pretrained(args.out)
    loaded, start = load_with_maps(args.out), sample[:, :16]
    settings = {"do_sample": False, "max_new_tokens": 16, "attention_mask": torch.ones_like(start)}
    with_cache, without = (loaded.generate(start, use_cache=use, **settings) for use in (True, False))
    found["generated alike with and without cache"] = torch.equal(with_cache, without)
    print("generated alike with and without cache:", found["generated alike with and without cache"])
    if args.record:
        settings = {name: value for name, value in vars(args).items() if name not in ("text", "out", "record")}
        versions = {"torch": torch.__version__, "transformers": transformers.__version__}
        record = {"settings": settings, "text": which_text, "found": found, "versions": versions, "commit": began_at}
        args.record.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
